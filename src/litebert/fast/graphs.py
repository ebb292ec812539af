"""Compute texts of one length with OpenVINO: the whole encoder is one graph.

One short text is the commonest request. Its products are small, so that the overhead of
torch's many operators is a quarter to a half of the time. OpenVINO runs them all in one
call, and fuses what lies between the products. It packs a block that several steps share
only once. Texts of different lengths stay with `litebert.fast.steps`, which pads
nothing; OpenVINO offers them its attention, in float32.

Each is used where it is measured to be faster than torch.
"""

import threading
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from litebert.config import Activation
from litebert.errors import missing_package
from litebert.fast.attention import Kernel, Layout, time_each
from litebert.fast.int8 import (
    ByteGrid,
    Int8Linear,
    Sizes,
    is_int8,
    kernels_work,
)
from litebert.fast.steps import Step, projection
from litebert.nn import Albert, AttentionBlock, Batch, FeedForwardBlock
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
"""States (texts, tokens, inputs) -> states (texts, tokens, outputs)."""

_ACTIVATE: dict[Activation, Layer] = {
    "gelu": lambda x: ops.gelu(x, "ERF"),
    "gelu_new": lambda x: ops.gelu(x, "TANH"),
    "gelu_pytorch_tanh": lambda x: ops.gelu(x, "TANH"),
    "relu": ops.relu,
    "tanh": ops.tanh,
    "linear": lambda x: x,
}
# A graph keeps the states of its largest batch, so that larger ones are left to torch.
_MOST_TOKENS = 1_024
# The lengths that are timed, in tokens, and the longest text that each stands for. The
# share of attention grows with the length, so that one length does not speak for all.
_SHORT = 16
_UP_TO = 64
_LONGER = ((128, 256), (512, _MOST_TOKENS))
# Scores of one sequence, at most: 16 MB.
_MOST_SCORES = 2**22


class Compiled:
    """A graph that is compiled for this CPU, in float32 or bf16."""

    def __init__(
        self, states: list[Node], inputs: list[Node], *, in_bf16: bool
    ) -> None:
        settings = {
            "INFERENCE_NUM_THREADS": torch.get_num_threads(),
            "INFERENCE_PRECISION_HINT": "bf16" if in_bf16 else "f32",
            "NUM_STREAMS": 1,
            "PERFORMANCE_HINT": "LATENCY",
        }
        model = openvino.Model(states, inputs, "litebert")
        self._model = openvino.Core().compile_model(model, "CPU", settings)
        self._num_states = len(states)
        # A request holds the memory of a run, so that each thread needs its own.
        self._of_thread = threading.local()

    def run(self, *inputs: Tensor) -> list[Tensor]:
        """Return the outputs for inputs in float32."""
        if not hasattr(self._of_thread, "request"):
            self._of_thread.request = self._model.create_infer_request()
        arrays = [x.float().contiguous().numpy() for x in inputs]
        outputs = self._of_thread.request.infer(
            arrays, share_inputs=True, share_outputs=True
        )
        # copies, because the next run writes to the same memory
        return [
            torch.from_numpy(outputs[number].copy())
            for number in range(self._num_states)
        ]


class Graph:
    """The first steps of an encoder as one graph, with the weights that it has now."""

    def __init__(self, albert: Albert, num_steps: int) -> None:
        if is_int8(albert):
            layers_by_step = _int8_layers(albert, num_steps)
        else:
            layers_by_step = _float_layers(albert, num_steps)
        x = _input(-1, -1, albert.config.hidden_size)  # (texts, tokens, hidden)
        states = []
        state = x
        for layers in layers_by_step:
            state = _step(state, layers)
            states.append(state)
        # in eight bits, what lies between the products is computed in bf16
        in_bf16 = is_int8(albert) or albert.dtype == torch.bfloat16
        self._compiled = Compiled(states, [x], in_bf16=in_bf16)
        self.longest = _MOST_TOKENS  # tokens of a text

    def fits(self, batch: Batch) -> bool:
        """Return whether the texts of a batch have one length, for which this graph is
        the faster way.
        """
        if len(batch.ids) > _MOST_TOKENS:
            return False
        return len(set(batch.lengths)) == 1 and batch.lengths[0] <= self.longest

    def states(
        self, hidden: Float[Tensor, "tokens hidden"], num_texts: int
    ) -> list[Float[Tensor, "tokens hidden"]]:
        """Return the states after each step, in float32."""
        x = torch.unflatten(hidden, 0, (num_texts, -1))
        return [state.flatten(0, 1) for state in self._compiled.run(x)]


def graph_of(albert: Albert, steps: Sequence[Step], *, is_forced: bool) -> Graph | None:
    """Return a graph that knows the longest text for which it is faster than the steps;
    None if there is no such text, or if OpenVINO lacks what the network needs.
    """
    has_precision = albert.dtype in (torch.float32, torch.bfloat16)
    is_supported = has_precision and albert.config.has_full_attention
    if is_int8(albert) and not kernels_work():
        is_supported = False  # this CPU saturates, for OpenVINO as for torch
    if not is_supported:
        return None
    graph = Graph(albert, len(albert.plan))
    if not is_forced:
        graph.longest = _longest_faster(albert, graph, steps)
    return graph if graph.longest else None


def _longest_faster(albert: Albert, graph: Graph, steps: Sequence[Step]) -> int:
    """Return the longest text for which a graph is faster than the steps; 0 if none is.

    Only a short text is timed in full. For longer ones one step is enough: what a call
    costs in itself is nothing beside their products.
    """
    if not _is_faster(graph, steps, _rows(albert, _SHORT), rounds=10):
        return 0
    longest = _UP_TO
    first_step = Graph(albert, 1)
    for length, stands_for in _LONGER:
        if length > albert.config.max_position_embeddings:
            break
        if not _is_faster(first_step, steps[:1], _rows(albert, length), rounds=3):
            break
        longest = stands_for
    return longest


def _rows(albert: Albert, length: int) -> Float[Tensor, "tokens hidden"]:
    return torch.full((length, albert.config.hidden_size), 0.5, dtype=albert.dtype)


def _is_faster(graph: Graph, steps: Sequence[Step], x: Tensor, rounds: int) -> bool:
    """Return whether a graph computes one text in less time than the steps."""
    layout = Layout(Batch.from_lists([[0] * len(x)]))
    by_graph, by_steps = time_each(
        partial(graph.states, x, 1), partial(_apply, steps, x, layout), rounds=rounds
    )
    return by_graph < by_steps


def _apply(steps: Sequence[Step], x: Tensor, layout: Layout) -> Tensor:
    for step in steps:
        x = step(x, layout)
    return x


# ---- a step ----------------------------------------------------------------------------


class Layers(NamedTuple):
    """The layers of one step, as they are in `litebert.fast.steps`; layers that steps
    share have the same constants, which are packed once.
    """

    project: Layer  # query, key and value at once
    mix: Layer
    middle_norm: Layer
    widen: Layer
    narrow: Layer
    norm: Layer
    heads: tuple[int, int]


def _step(x: Node, layers: Layers) -> Node:
    """Return norm(x + attention(x)), then norm(x + feed_forward(x))."""
    heads, head_size = layers.heads
    # (texts, tokens, 3, heads, head_size) -> (3, texts, heads, tokens, head_size)
    by_heads = [0, 0, 3, heads, head_size]
    projected = ops.reshape(layers.project(x), by_heads, special_zero=True)
    parts = ops.split(ops.transpose(projected, [2, 0, 3, 1, 4]), 0, 3).outputs()
    query, key, value = (ops.squeeze(part, [0]) for part in parts)
    mixed = _attend(query, key, value, head_size)
    # (texts, heads, tokens, head_size) -> (texts, tokens, hidden)
    by_token = ops.transpose(mixed, [0, 2, 1, 3])
    joined = ops.reshape(by_token, [0, 0, heads * head_size], special_zero=True)
    hidden = layers.middle_norm(ops.add(layers.mix(joined), x))
    wide = layers.widen(hidden)
    return layers.norm(ops.add(layers.narrow(wide), hidden))


def _attend(
    query: Node, key: Node, value: Node, head_size: int, mask: Node = None
) -> Node:
    """Attend to every key, or to those whose mask is 0, not -inf."""
    scaled = ops.multiply(query, np.float32(head_size**-0.5))
    scores = ops.matmul(scaled, key, False, True)
    if mask is not None:
        scores = ops.add(scores, mask)
    return ops.matmul(ops.softmax(scores, -1), value, False, False)


def _norm(norm: nn.LayerNorm, shift: Tensor) -> Layer:
    weight = _constant(norm.weight)
    bias = _constant(shift)

    def apply(x: Node) -> Node:
        normal = ops.mvn(x, [-1], True, norm.eps, "inside_sqrt")
        return ops.add(ops.multiply(normal, weight), bias)

    return apply


def _linear(weight: Node, bias: Tensor, activation: Activation = "linear") -> Layer:
    """Return x -> activation(x W^T + b)."""
    use_bias = _constant(bias)
    activate = _ACTIVATE[activation]

    def apply(x: Node) -> Node:
        product = ops.matmul(x, weight, False, True)
        return activate(ops.add(product, use_bias))

    return apply


def _constant(x: Tensor) -> Node:
    return ops.constant(x.detach().contiguous().numpy())


# ---- the layers of networks in float ---------------------------------------------------


def _float_layers(albert: Albert, num_steps: int) -> list[Layers]:
    """Return the layers of each step; a block that several steps share is made once."""
    heads = albert.attention[0].heads
    attention = dict[int, tuple[Layer, Layer, Layer]]()
    feed_forward = dict[int, tuple[Layer, Layer, Layer]]()
    layers = list[Layers]()
    for i, j in albert.plan[:num_steps]:
        if i not in attention:
            attention[i] = _float_attention(albert.attention[i])
        if j not in feed_forward:
            feed_forward[j] = _float_feed_forward(albert.feed_forward[j])
        layers.append(Layers(*attention[i], *feed_forward[j], heads))
    return layers


def _float_attention(block: AttentionBlock) -> tuple[Layer, Layer, Layer]:
    weight, bias = projection(block)
    output = block.output
    return (
        _linear(_constant(weight), bias),
        _linear(_constant(output.weight), output.bias),
        _norm(block.norm, block.norm.bias),
    )


def _float_feed_forward(block: FeedForwardBlock) -> tuple[Layer, Layer, Layer]:
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
    config = albert.config
    size = config.hidden_size
    sizes = list(Sizes(3 * size, size, config.intermediate_size, size))
    ranges = albert.get_buffer("ranges")  # (steps, sites, 2)
    shifts = albert.get_buffer("shifts")  # (steps, shifted, hidden)
    biases = albert.get_buffer("biases")  # (steps, outputs)
    activation = config.hidden_act
    if activation in ("gelu_new", "gelu_pytorch_tanh"):
        activation = "gelu"  # the exact form, as torch's products of bytes have it
    plan = albert.plan[:num_steps]
    attention_weights = {i: _attention_bytes(albert.attention[i]) for i, _ in plan}
    wide_weights = {j: _feed_forward_bytes(albert.feed_forward[j]) for _, j in plan}

    layers = []
    for number, (i, j) in enumerate(plan):
        project, mix = attention_weights[i]
        widen, narrow = wide_weights[j]
        attention_norm = albert.attention[i].norm
        norm = albert.feed_forward[j].norm
        grids = [ByteGrid.over(low, high) for low, high in ranges[number].tolist()]
        of_input, of_mixed, of_middle, of_wide = grids
        mean, middle_mean = shifts[number]  # (hidden,) each
        parts = torch.split(biases[number], sizes)
        project_bias, mix_bias, wide_bias, narrow_bias = parts
        project_layer = _linear(project, project_bias)
        wide_layer = _linear(widen, wide_bias, activation)
        layers.append(
            Layers(
                project=_rounded(project_layer, of_input, mean=mean),
                mix=_rounded(_linear(mix, mix_bias), of_mixed),
                middle_norm=_norm(attention_norm, attention_norm.bias - middle_mean),
                widen=_rounded(wide_layer, of_middle),
                narrow=_rounded(_linear(narrow, narrow_bias), of_wide),
                norm=_norm(norm, norm.bias),
                heads=albert.attention[i].heads,
            )
        )
    return layers


def _attention_bytes(block: AttentionBlock) -> tuple[Node, Node]:
    joined = _bytes(block.query, block.key, block.value)
    return joined, _bytes(block.output)


def _feed_forward_bytes(block: FeedForwardBlock) -> tuple[Node, Node]:
    return _bytes(block.intermediate), _bytes(block.output)


def _bytes(*layers: nn.Module) -> Node:
    """Return the joined weights of eight-bit layers, (outputs, inputs)."""
    joined = [layer for layer in layers if isinstance(layer, Int8Linear)]
    quantized = torch.cat([layer.quantized for layer in joined])
    scale = torch.cat([layer.scale for layer in joined]).float()
    weight = ops.convert(_constant(quantized), openvino.Type.f32)
    return ops.multiply(weight, _constant(scale[:, None]))


def _rounded(layer: Layer, grid: ByteGrid, mean: Tensor | None = None) -> Layer:
    """Return a layer whose input, less a mean, is rounded to a grid."""
    low = np.float32(-grid.zero * grid.scale)
    high = np.float32((255 - grid.zero) * grid.scale)

    def apply(x: Node) -> Node:
        if mean is not None:
            x = ops.subtract(x, _constant(mean))
        return layer(ops.fake_quantize(x, low, high, low, high, 256))

    return apply


# ---- attention alone, for texts of different lengths -----------------------------------


@lru_cache
def attention_graph() -> Kernel:
    """Return a kernel for attention in float32; a sequence with too many scores to hold
    is left to torch.
    """

    @lru_cache
    def compiled(head_size: int, has_mask: bool, _num_threads: int) -> Compiled:
        # (sequences, width, heads, head_size)
        inputs = [_input(-1, -1, -1, head_size) for _ in range(3)]
        query, key, value = (ops.transpose(x, [0, 2, 1, 3]) for x in inputs)
        mask = None
        if has_mask:  # (sequences, 1, 1, width); adding zeros would take a tenth
            mask = _input(-1, 1, 1, -1)
            inputs.append(mask)
        mixed = _attend(query, key, value, head_size, mask)
        mixed = ops.transpose(mixed, [0, 2, 1, 3])
        return Compiled([mixed], inputs, in_bf16=False)

    def attend(
        query: Tensor, key: Tensor, value: Tensor, is_key: Tensor | None
    ) -> Tensor:
        num_scores = query.shape[1] * query.shape[2] * key.shape[2]
        if num_scores > _MOST_SCORES:
            return F.scaled_dot_product_attention(query, key, value, is_key)
        inputs = [x.transpose(1, 2) for x in (query, key, value)]
        if is_key is not None:
            mask = torch.zeros(is_key.shape)
            inputs.append(mask.masked_fill_(~is_key, -torch.inf))
        head_size = query.shape[3]
        graph = compiled(head_size, is_key is not None, torch.get_num_threads())
        (mixed,) = graph.run(*inputs)
        return mixed.to(query.dtype).transpose(1, 2)

    return attend


def _input(*shape: int) -> Node:
    """Return an input of a graph; -1 stands for any size."""
    return ops.parameter(openvino.PartialShape(list(shape)), openvino.Type.f32)
