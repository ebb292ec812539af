"""The encoder in OpenVINO's operators: one graph, from token ids to the last hidden states.

Each function here makes operations, and computes nothing: `compile_encoder` hands the
whole graph to OpenVINO, which fuses what lies between the products.
"""

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch
from torch import Tensor, nn

from litebert.config import Activation
from litebert.errors import missing_package
from litebert.fast.int8 import (
    ByteGrid,
    Int8Embedding,
    Int8Table,
    PerProduct,
    calibrated_steps,
    is_int8,
)
from litebert.fast.steps import projection
from litebert.nn import Albert, AttentionBlock, FeedForwardBlock
from litebert.privacy import without_package

try:
    with without_package("openvino_telemetry"):
        import openvino
        from openvino import opset13 as ops
except ImportError as error:
    raise missing_package(
        "openvino", extra="fast", needed_for="a graph of the encoder"
    ) from error

Node: TypeAlias = Any
"""An operation of a graph, or one of its outputs."""
Layer: TypeAlias = Callable[[Node], Node]
"""States (1, tokens, inputs) -> states (1, tokens, outputs)."""


# ---- compiling -------------------------------------------------------------------------


def compile_encoder(albert: Albert, num_steps: int) -> openvino.CompiledModel:
    """Compile the first steps of an encoder for this CPU, with the weights that it has
    now. The inputs are `Tokens`, then `Layout`.
    """
    # In eight bits, what lies between the products is computed in bf16.
    is_half = is_int8(albert) or albert.dtype == torch.bfloat16
    precision = "bf16" if is_half else "f32"
    settings = {
        "INFERENCE_NUM_THREADS": torch.get_num_threads(),
        "INFERENCE_PRECISION_HINT": precision,
        "NUM_STREAMS": 1,
        "PERFORMANCE_HINT": "LATENCY",
    }
    return _core().compile_model(_encoder(albert, num_steps), "CPU", settings)


@cache
def _core() -> openvino.Core:
    """Return the one core of this process, which is never freed.

    A core gives its thread a stack for signal handlers, as AMX needs, and takes the
    memory back when it is freed. With several cores the thread could be left with a
    stack that is gone, and the next Ctrl-C would crash it.
    """
    return openvino.Core()


def shared(x: np.ndarray) -> openvino.Tensor:
    """Return an input of a graph that reads the memory of an array."""
    return openvino.Tensor(x, shared_memory=True)


# ---- inputs ----------------------------------------------------------------------------


class Tokens(NamedTuple):
    """The first inputs of a graph, (tokens,) each."""

    ids: Node
    positions: Node
    segments: Node


class Layout(NamedTuple):
    """The other inputs of a graph, in this order: where attention finds the tokens.

    Keys and queries lie in rectangles with one line for each text, as
    `litebert.fast.parts` lays them out. A cell is a place in a rectangle, counted line
    by line.
    """

    key_rows: Node  # (texts, width): the token in each cell
    mask: Node  # (texts, 1, 1, width), which the scores are added to
    key_cells: Node  # (tokens,): the cell of each token
    # of the last step, which computes only what is read
    query_rows: Node  # (texts, width of the queries): the token in each cell
    query_cells: Node  # (queries,): the cell of each query
    queries: Node  # (queries,): the token of each query


def _token_inputs() -> Tokens:
    return Tokens(
        ids=_input(openvino.Type.i64, -1),
        positions=_input(openvino.Type.i64, -1),
        segments=_input(openvino.Type.i64, -1),
    )


def _layout_inputs() -> Layout:
    return Layout(
        key_rows=_input(openvino.Type.i32, -1, -1),
        mask=_input(openvino.Type.f32, -1, 1, 1, -1),
        key_cells=_input(openvino.Type.i32, -1),
        query_rows=_input(openvino.Type.i32, -1, -1),
        query_cells=_input(openvino.Type.i32, -1),
        queries=_input(openvino.Type.i32, -1),
    )


def _input(dtype: openvino.Type, *shape: int) -> Node:
    """Return an input of a graph; -1 stands for any size."""
    return ops.parameter(openvino.PartialShape(list(shape)), dtype)


def _constant(x: Tensor) -> Node:
    """Return a tensor as part of the graph, which reads its memory."""
    return ops.constant(x.detach().contiguous().numpy(), shared_memory=True)


# ---- the encoder -----------------------------------------------------------------------


class Layers(NamedTuple):
    """The layers of one step, as they are in `litebert.fast.steps`; layers that steps
    share have the same constants, which are packed once.
    """

    project: Layer  # query, key and value at once; queries are scaled
    mix: Layer
    middle_norm: Layer
    widen: Layer
    narrow: Layer
    norm: Layer
    heads: tuple[int, int]


def _encoder(albert: Albert, num_steps: int) -> openvino.Model:
    """Return a model whose output is the last states, (1, queries, hidden)."""
    tokens = _token_inputs()
    layout = _layout_inputs()
    if is_int8(albert):
        layers_by_step = _int8_layers(albert, num_steps)
        # Within an eight-bit graph, states lack the mean of the inputs of the next step.
        mean = calibrated_steps(albert)[0].mean  # (hidden,)
    else:
        layers_by_step = _float_layers(albert, num_steps)
        mean = torch.zeros(albert.config.hidden_size)
    x = _embed(albert, tokens, mean)
    *inner, last = layers_by_step
    for layers in inner:
        mixed = _attend(layers, x, layout.key_rows, layout.key_cells, layout)
        x = _finish(layers, mixed, x)
    # The last step computes only what is read.
    mixed = _attend(last, x, layout.query_rows, layout.query_cells, layout)
    x = _finish(last, mixed, ops.gather(x, layout.queries, 1))
    return openvino.Model([x], [*tokens, *layout], "litebert")


def _embed(albert: Albert, tokens: Tokens, mean: Tensor) -> Node:
    """Return what `Embedding` does, less a mean, (1, tokens, hidden)."""
    embedding = albert.embedding
    words = _look_up(embedding.word, tokens.ids)
    places = _look_up(embedding.position, tokens.positions)
    kinds = _look_up(embedding.segment, tokens.segments)
    total = ops.unsqueeze(ops.add(ops.add(words, places), kinds), [0])
    norm = embedding.norm
    layer = embedding.projection
    # The mean is subtracted from the last bias, whichever that is.
    if isinstance(layer, nn.Identity):
        return _norm(norm, norm.bias - mean)(total)
    assert isinstance(layer.weight, Tensor)
    assert isinstance(layer.bias, Tensor)
    project = _linear(_constant(layer.weight), layer.bias - mean)
    return project(_norm(norm, norm.bias)(total))


def _look_up(table: nn.Module, numbers: Node) -> Node:
    """Return rows of a table, (tokens, size)."""
    if isinstance(table, Int8Embedding):
        rows = ops.gather(_constant(table.quantized), numbers, 0)
        scale = ops.gather(_constant(table.scale[:, None]), numbers, 0)
        return ops.multiply(ops.convert(rows, openvino.Type.f32), scale)
    assert isinstance(table.weight, Tensor)
    return ops.gather(_constant(table.weight), numbers, 0)


def _attend(
    layers: Layers, x: Node, query_rows: Node, query_cells: Node, layout: Layout
) -> Node:
    """Return what attention mixed for the queries, (1, queries, hidden)."""
    # (1, tokens, hidden) each
    query, key, value = ops.split(layers.project(x), 2, 3).outputs()
    q = _by_head(query, query_rows, layers.heads)
    k = _by_head(key, layout.key_rows, layers.heads)
    v = _by_head(value, layout.key_rows, layers.heads)
    # (texts, heads, queries, keys); the mask is broadcast over heads and queries
    scores = ops.add(ops.matmul(q, k, False, True), layout.mask)
    mixed = ops.matmul(ops.softmax(scores, -1), v, False, False)

    # back from the rectangle: one row per cell, of which those of the queries are taken
    heads, head_size = layers.heads
    by_cell = ops.transpose(mixed, [0, 2, 1, 3])  # (texts, queries, heads, head_size)
    rows = ops.reshape(by_cell, [1, -1, heads * head_size], False)
    return ops.gather(rows, query_cells, 1)


def _by_head(x: Node, rows: Node, heads: tuple[int, int]) -> Node:
    """Return rows (1, tokens, hidden) as a rectangle, (texts, heads, width, head_size)."""
    gathered = ops.squeeze(ops.gather(x, rows, 1), [0])  # (texts, width, hidden)
    # 0 keeps a size as it is
    split = ops.reshape(gathered, [0, 0, *heads], special_zero=True)
    return ops.transpose(split, [0, 2, 1, 3])


def _finish(layers: Layers, mixed: Node, x: Node) -> Node:
    """Return norm(x + attention), then norm(x + feed_forward(x))."""
    hidden = layers.middle_norm(ops.add(layers.mix(mixed), x))
    wide = layers.widen(hidden)
    return layers.norm(ops.add(layers.narrow(wide), hidden))


# ---- layers ----------------------------------------------------------------------------


_ACTIVATE: dict[Activation, Layer] = {
    "gelu": lambda x: ops.gelu(x, "ERF"),
    "gelu_new": lambda x: ops.gelu(x, "TANH"),
    "gelu_pytorch_tanh": lambda x: ops.gelu(x, "TANH"),
    "relu": ops.relu,
    "tanh": ops.tanh,
    "linear": lambda x: x,
}


def _linear(weight: Node, bias: Tensor, activation: Activation = "linear") -> Layer:
    """Return x -> activation(x W^T + b)."""
    bias_node = _constant(bias)
    activate = _ACTIVATE[activation]

    def apply(x: Node) -> Node:
        product = ops.matmul(x, weight, False, True)
        return activate(ops.add(product, bias_node))

    return apply


def _norm(norm: nn.LayerNorm, bias: Tensor) -> Layer:
    """Return a layer norm with another bias, (hidden,)."""
    weight_node = _constant(norm.weight)
    bias_node = _constant(bias)

    def apply(x: Node) -> Node:
        normal = ops.mvn(x, [-1], True, norm.eps, "inside_sqrt")
        return ops.add(ops.multiply(normal, weight_node), bias_node)

    return apply


def _scale_queries(projected: Tensor, block: AttentionBlock) -> Tensor:
    """Return weights or biases of query, key and value, with the scale of the scores in
    those of the query: a graph then has one operation less.
    """
    heads, head_size = block.heads
    query, key_and_value = torch.tensor_split(projected, [heads * head_size])
    return torch.cat([query * head_size**-0.5, key_and_value])


# ---- the layers of networks in float ---------------------------------------------------


def _float_layers(albert: Albert, num_steps: int) -> list[Layers]:
    """Return the layers of each step; a block that several steps share is made once."""
    heads = albert.attention[0].heads
    # three layers of each block, by its number
    attention = dict[int, tuple[Layer, Layer, Layer]]()
    feed_forward = dict[int, tuple[Layer, Layer, Layer]]()
    layers = list[Layers]()
    for first, second in albert.plan[:num_steps]:
        if first not in attention:
            attention[first] = _float_attention(albert.attention[first])
        if second not in feed_forward:
            feed_forward[second] = _float_feed_forward(albert.feed_forward[second])
        layers.append(Layers(*attention[first], *feed_forward[second], heads))
    return layers


def _float_attention(block: AttentionBlock) -> tuple[Layer, Layer, Layer]:
    """Return the layers `project`, `mix` and `middle_norm`."""
    weight, bias = projection(block)
    weight = _scale_queries(weight, block)
    bias = _scale_queries(bias, block)
    output = block.output
    return (
        _linear(_constant(weight), bias),
        _linear(_constant(output.weight), output.bias),
        _norm(block.norm, block.norm.bias),
    )


def _float_feed_forward(block: FeedForwardBlock) -> tuple[Layer, Layer, Layer]:
    """Return the layers `widen`, `narrow` and `norm`."""
    wide = block.intermediate
    narrow = block.output
    return (
        _linear(_constant(wide.weight), wide.bias, block.hidden_act),
        _linear(_constant(narrow.weight), narrow.bias),
        _norm(block.norm, block.norm.bias),
    )


# ---- the layers of networks in eight bits ----------------------------------------------
#
# `litebert.fast.int8` says what the grids, means and biases of a step are. OpenVINO
# computes in bytes where it finds a product of a rounded input (FakeQuantize) and of
# bytes with a scale.


def _int8_layers(albert: Albert, num_steps: int) -> list[Layers]:
    """Return the layers of each step, with the grids and biases of that step."""
    activation = albert.config.hidden_act
    if activation in ("gelu_new", "gelu_pytorch_tanh"):
        activation = "gelu"  # the exact form, as torch's products of bytes have it
    plan = albert.plan[:num_steps]
    steps = calibrated_steps(albert)[:num_steps]
    # Each block is made once, and its weights go into every step that applies it.
    attention_weights = dict[int, tuple[Node, Node]]()  # by the number of the block
    wide_weights = dict[int, tuple[Node, Node]]()
    for number in {blocks.attention for blocks in plan}:
        attention_weights[number] = _attention_bytes(albert.attention[number])
    for number in {blocks.feed_forward for blocks in plan}:
        wide_weights[number] = _feed_forward_bytes(albert.feed_forward[number])

    # The norm at the end of a step also subtracts the mean of the next step's inputs;
    # the last states are not shifted. (An explicit difference would do for the first
    # step, but OpenVINO miscomputes one after the embeddings.)
    no_shift = torch.zeros(albert.config.hidden_size)
    next_means = [step.mean for step in steps[1:]] + [no_shift]
    layers = list[Layers]()
    for blocks, step, next_mean in zip(plan, steps, next_means, strict=True):
        attention = albert.attention[blocks.attention]
        norm = albert.feed_forward[blocks.feed_forward].norm
        project_weight, mix_weight = attention_weights[blocks.attention]
        widen_weight, narrow_weight = wide_weights[blocks.feed_forward]
        biases = step.biases
        scaled_bias = _scale_queries(biases.project, attention)
        products = PerProduct(
            project=_linear(project_weight, scaled_bias),
            # The residual of attention lacks the mean, which this bias gives back.
            mix=_linear(mix_weight, biases.mix + step.mean),
            widen=_linear(widen_weight, biases.widen, activation),
            narrow=_linear(narrow_weight, biases.narrow),
        )
        grids = step.grids
        layers.append(
            Layers(
                project=_rounded(products.project, grids.project),
                mix=_rounded(products.mix, grids.mix),
                middle_norm=_norm(
                    attention.norm, attention.norm.bias - step.middle_mean
                ),
                widen=_rounded(products.widen, grids.widen),
                narrow=_rounded(products.narrow, grids.narrow),
                norm=_norm(norm, norm.bias - next_mean),
                heads=attention.heads,
            )
        )
    return layers


def _attention_bytes(block: AttentionBlock) -> tuple[Node, Node]:
    """Return the weights of `project` and `mix`."""
    layers = [_int8_table(x) for x in (block.query, block.key, block.value)]
    quantized = torch.cat([layer.quantized for layer in layers])  # (3 H, H)
    scale = torch.cat([layer.scale for layer in layers])  # (3 H,)
    output = _int8_table(block.output)
    return (
        _bytes(quantized, _scale_queries(scale, block)),
        _bytes(output.quantized, output.scale),
    )


def _feed_forward_bytes(block: FeedForwardBlock) -> tuple[Node, Node]:
    """Return the weights of `widen` and `narrow`."""
    wide = _int8_table(block.intermediate)
    narrow = _int8_table(block.output)
    return _bytes(wide.quantized, wide.scale), _bytes(narrow.quantized, narrow.scale)


def _int8_table(layer: nn.Module) -> Int8Table:
    assert isinstance(layer, Int8Table)
    return layer


def _bytes(quantized: Tensor, scale: Tensor) -> Node:
    """Return weights (outputs, inputs) that are stored in eight bits."""
    weight = ops.convert(_constant(quantized), openvino.Type.f32)
    return ops.multiply(weight, _constant(scale.float()[:, None]))


def _rounded(layer: Layer, grid: ByteGrid) -> Layer:
    """Return a layer whose input is rounded to a grid."""
    # the numbers of the bytes 0 and 255
    low = np.float32(-grid.zero * grid.scale)
    high = np.float32((255 - grid.zero) * grid.scale)
    return lambda x: layer(ops.fake_quantize(x, low, high, low, high, 256))
