"""Compute the encoder with OpenVINO: one graph, from token ids to the last hidden states.

Every operation of torch costs some microseconds in itself, which for a short text is a
quarter to a half of the time. A graph is one call. It also fuses what lies between the
products, and packs a block that several steps share only once.

The tokens of a batch lie end to end, so that no product is computed for padding. Only
attention needs a rectangle with one line for each text: the graph gathers the tokens
into it, and back. Which token goes where is an input of the graph.

The states after each step are not outputs, which would keep OpenVINO from fusing;
`litebert.fast.steps` computes those.
"""

import threading
from collections.abc import Callable, Sequence
from functools import cache, lru_cache
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch
from jaxtyping import Float, Int, Int32, Int64
from torch import Tensor, nn

from litebert.config import Activation
from litebert.errors import missing_package
from litebert.fast.attention import time_each
from litebert.fast.int8 import (
    ByteGrid,
    Int8Embedding,
    Int8Table,
    Sizes,
    is_int8,
    kernels_work,
)
from litebert.fast.steps import Step, apply_steps, projection
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
"""States (1, tokens, inputs) -> states (1, tokens, outputs)."""

# Longer texts stay with torch, which never holds the scores of a whole text.
_LONGEST = 1_024  # tokens
# The lengths that are timed, in tokens, and the longest text that each stands for. The
# share of attention grows with the length, so that one length does not speak for all.
_SHORT = 16
_UP_TO = 64
_LONGER = ((128, 256), (512, _LONGEST))
# Two times that differ by less are equal on a busy machine.
_NOISE = 1.05
# A line of scores that ends within a vector of the CPU takes up to twice the time.
_VECTOR = 16
# Tokens of a part of a batch: smaller parts have less padding, but their products are
# slower. Texts of one length have no padding.
_PART = 512
_PART_OF_ONE_LENGTH = 1_024


# ---- batches ---------------------------------------------------------------------------


class Graph:
    """The first steps of an encoder as one graph, with the weights that it has now."""

    def __init__(self, albert: Albert, num_steps: int) -> None:
        self.num_steps = num_steps
        room = albert.config.max_position_embeddings
        self.longest = min(room, _LONGEST)  # tokens of a text
        # in eight bits, what lies between the products is computed in bf16
        is_half = is_int8(albert) or albert.dtype == torch.bfloat16
        settings = {
            "INFERENCE_NUM_THREADS": torch.get_num_threads(),
            "INFERENCE_PRECISION_HINT": "bf16" if is_half else "f32",
            "NUM_STREAMS": 1,
            "PERFORMANCE_HINT": "LATENCY",
        }
        model = _encoder(albert, num_steps)
        self._model = _core().compile_model(model, "CPU", settings)
        # A request holds the memory of a run, so that each thread needs its own.
        self._of_thread = threading.local()

    def fits(self, batch: Batch, num_steps: int) -> bool:
        """Return whether this graph is the faster way to apply so many steps."""
        return num_steps == self.num_steps and max(batch.lengths) <= self.longest

    def last(
        self, batch: Batch, queries: Int[Tensor, " queries"] | None = None
    ) -> Float[Tensor, "queries hidden"]:
        """Return the last states of all tokens, or of those at `queries`, in float32."""
        parts = _parts(batch.lengths)
        if len(parts) == 1 and queries is None:
            return self._run(batch, parts[0], parts[0].inputs)
        if queries is None:
            queries = torch.arange(len(batch.ids))
        states = []
        places = []
        for part in parts:
            place, rows = part.find(queries.numpy())
            if len(rows):
                states.append(self._run(batch, part, part.inputs_for(rows)))
                places.append(torch.from_numpy(place))
        joined = torch.cat(states)  # (queries, hidden), part by part
        return torch.empty_like(joined).index_copy_(0, torch.cat(places), joined)

    def _run(
        self, batch: Batch, part: "Part", layout: list[openvino.Tensor]
    ) -> Float[Tensor, "queries hidden"]:
        """Return the last states of the queries of a part."""
        if not hasattr(self._of_thread, "request"):
            self._of_thread.request = self._model.create_infer_request()
        request = self._of_thread.request
        ids = batch.ids.numpy()[part.tokens]
        positions = batch.positions.numpy()[part.tokens]
        segments = batch.segments.numpy()[part.tokens]
        tokens = [_shared(x) for x in (ids, positions, segments)]
        # `infer(inputs)` would make tensors of all inputs at every call
        request.set_input_tensors(dict(enumerate([*tokens, *layout])))
        request.infer()
        # a copy, because the next run writes to the same memory
        return torch.from_numpy(request.get_output_tensor(0).data[0].copy())


@cache
def _core() -> openvino.Core:
    """Return the one core of this process, which is never freed.

    A core gives its thread a stack for signal handlers, as AMX needs, and takes the
    memory back when it is freed. With several cores the thread could be left with a
    stack that is gone, and the next Ctrl-C would crash it.
    """
    return openvino.Core()


def _shared(x: np.ndarray) -> openvino.Tensor:
    """Return an input of a graph that reads the memory of an array."""
    return openvino.Tensor(x, shared_memory=True)


class Rectangle(NamedTuple):
    """Where the rows of texts are in a rectangle with one line for each text."""

    rows: Int32[np.ndarray, "texts width"]  # the row in each cell; 0 if there is none
    mask: Float[np.ndarray, "texts 1 1 width"]  # 0, or -inf if there is no row
    cells: Int32[np.ndarray, " rows"]  # the cell of each row, line by line


@lru_cache(maxsize=64)
def _rectangle(counts: tuple[int, ...], multiple_of: int) -> Rectangle:
    """Lay out rows that are sorted by text, so many of each text; the width is a
    multiple.
    """
    num_texts = len(counts)
    width = -(-max(counts) // multiple_of) * multiple_of
    sizes = np.array(counts)
    line = np.repeat(np.arange(num_texts), sizes)  # (rows,)
    numbers = np.arange(len(line))
    start = np.cumsum(sizes) - sizes  # (texts,), the first row of each text
    cells = line * width + numbers - start[line]
    rows = np.zeros(num_texts * width, np.int32)
    rows[cells] = numbers
    mask = np.full(num_texts * width, -np.inf, np.float32)
    mask[cells] = 0
    return Rectangle(
        rows=rows.reshape(num_texts, width),
        mask=mask.reshape(num_texts, 1, 1, width),
        cells=cells.astype(np.int32),
    )


class Part:
    """Texts of a batch that are computed together, because their lengths are similar."""

    def __init__(self, lengths: Sequence[int], texts: Sequence[int]) -> None:
        starts = np.cumsum([0, *lengths])
        spans = [np.arange(starts[text], starts[text + 1]) for text in texts]
        counts = tuple(lengths[text] for text in texts)
        # the token of the batch that each row of this part is, (rows,)
        self.tokens = np.concatenate(spans)
        self._rows = np.arange(len(self.tokens))
        # the row of each token of the batch, (tokens,); -1 if it is in another part
        self._row_of = np.full(starts[-1], -1)
        self._row_of[self.tokens] = self._rows
        self._text_of = np.repeat(np.arange(len(texts)), counts)  # (rows,)
        self._keys = _rectangle(counts, _VECTOR)
        # what a graph reads beside the tokens if all rows are queries
        self.inputs = self.inputs_for(self._rows)

    def find(
        self, tokens: Int64[np.ndarray, " queries"]
    ) -> tuple[Int64[np.ndarray, " found"], Int64[np.ndarray, " found"]]:
        """Return which of these tokens are in this part, and their rows, ascending."""
        rows = self._row_of[tokens]
        order = np.argsort(rows, kind="stable")
        present = order[np.searchsorted(rows[order], 0) :]
        return present, rows[present]

    def inputs_for(self, queries: Int64[np.ndarray, " queries"]) -> list[Node]:
        """Return what a graph reads beside the tokens: the rectangle of the keys, that
        of the queries, and the queries, which are ascending rows.
        """
        num_texts = len(self._keys.rows)
        counts = np.bincount(self._text_of[queries], minlength=num_texts)
        layout = _rectangle(tuple(counts.tolist()), 1)
        chosen = queries.astype(np.int32)
        arrays = [*self._keys, chosen[layout.rows], layout.cells, chosen]
        return [_shared(x) for x in arrays]


@lru_cache(maxsize=256)
def _parts(lengths: tuple[int, ...]) -> list[Part]:
    """Divide a batch into parts of about equal size, text by text in order of length."""
    num_tokens = sum(lengths)
    part_size = _PART_OF_ONE_LENGTH if len(set(lengths)) == 1 else _PART
    num_parts = -(-num_tokens // part_size)
    if num_parts == 1:
        return [Part(lengths, range(len(lengths)))]
    groups: list[list[int]] = [[] for _ in range(num_parts)]
    before = 0
    for text in sorted(range(len(lengths)), key=lengths.__getitem__):
        groups[before * num_parts // num_tokens].append(text)
        before += lengths[text]
    # a long text leaves the next part empty
    return [Part(lengths, texts) for texts in groups if texts]


# ---- whether a graph is faster ---------------------------------------------------------


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
    graph = Graph(albert, albert.depth)
    if not is_forced:
        graph.longest = _longest_faster(albert, graph, steps)
    return graph if graph.longest else None


def _longest_faster(albert: Albert, graph: Graph, steps: Sequence[Step]) -> int:
    """Return the longest text for which a graph is faster than the steps; 0 if none is.

    Only a short text is timed in full. For longer ones one step is enough: what a call
    costs in itself is nothing beside their products.
    """
    if not _is_faster(albert, graph, steps[: albert.depth], _SHORT):
        return 0
    room = graph.longest
    longest = min(_UP_TO, room)
    first_step = Graph(albert, 1)
    for length, stands_for in _LONGER:
        if length > room:
            break
        if not _is_faster(albert, first_step, steps[:1], length):
            break
        longest = min(stands_for, room)
    return longest


def _is_faster(
    albert: Albert, graph: Graph, steps: Sequence[Step], length: int
) -> bool:
    """Return whether a graph computes one text in less time than the steps."""
    batch = Batch.from_lists([[0] * length])

    def apply_to_embedded() -> list[Tensor]:
        embedded = albert.embedding(batch).to(albert.dtype)
        return list(apply_steps(steps, embedded, batch, None))

    by_graph, by_steps = time_each(
        lambda: graph.last(batch), apply_to_embedded, rounds=3
    )
    return by_graph < _NOISE * by_steps


# ---- the encoder -----------------------------------------------------------------------


def _encoder(albert: Albert, num_steps: int) -> Node:
    """Return a model of these inputs, in this order, with one output:

    ids, positions, segments   (tokens,) each
    rows, mask, cells          the rectangle of the keys, see `Rectangle`
    rows, cells                the rectangle of the queries of the last step
    queries                    (queries,): their rows among the tokens
    """
    ids = _input(openvino.Type.i64, -1)
    positions = _input(openvino.Type.i64, -1)
    segments = _input(openvino.Type.i64, -1)
    keys = _input(openvino.Type.i32, -1, -1)
    mask = _input(openvino.Type.f32, -1, 1, 1, -1)
    key_cells = _input(openvino.Type.i32, -1)
    queries = _input(openvino.Type.i32, -1, -1)
    query_cells = _input(openvino.Type.i32, -1)
    chosen = _input(openvino.Type.i32, -1)

    if is_int8(albert):
        layers_by_step = _int8_layers(albert, num_steps)
        mean = albert.get_buffer("shifts")[0, 0]  # (hidden,)
    else:
        layers_by_step = _float_layers(albert, num_steps)
        mean = torch.zeros(albert.config.hidden_size)
    x = _embed(albert, ids, positions, segments, mean)
    *inner, last = layers_by_step
    for layers in inner:
        mixed = _attend(layers, layers.project(x), keys, key_cells, keys, mask)
        x = _finish(layers, mixed, x)
    # The last step computes only what is read.
    mixed = _attend(last, last.project(x), queries, query_cells, keys, mask)
    x = _finish(last, mixed, ops.gather(x, chosen, 1))  # (1, queries, hidden)

    tokens = [ids, positions, segments]
    layout = [keys, mask, key_cells, queries, query_cells, chosen]
    return openvino.Model([x], [*tokens, *layout], "litebert")


def _input(dtype: Any, *shape: int) -> Node:
    """Return an input of a graph; -1 stands for any size."""
    return ops.parameter(openvino.PartialShape(list(shape)), dtype)


def _constant(x: Tensor) -> Node:
    return ops.constant(x.detach().contiguous().numpy(), shared_memory=True)


def _embed(
    albert: Albert, ids: Node, positions: Node, segments: Node, mean: Tensor
) -> Node:
    """Return what `Embedding` does, less a mean, (1, tokens, hidden)."""
    embedding = albert.embedding
    words = _look_up(embedding.word, ids)
    places = _look_up(embedding.position, positions)
    kinds = _look_up(embedding.segment, segments)
    total = ops.unsqueeze(ops.add(ops.add(words, places), kinds), [0])
    norm = embedding.norm
    layer = embedding.projection
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


def _by_head(x: Node, rows: Node, heads: tuple[int, int]) -> Node:
    """Return rows (1, tokens, hidden) as a rectangle, (texts, heads, width, head_size)."""
    gathered = ops.squeeze(ops.gather(x, rows, 1), [0])  # (texts, width, hidden)
    split = ops.reshape(gathered, [0, 0, *heads], special_zero=True)
    return ops.transpose(split, [0, 2, 1, 3])


def _attend(
    layers: Layers, projected: Node, queries: Node, cells: Node, keys: Node, mask: Node
) -> Node:
    """Return what attention mixed for the queries, (1, queries, hidden); `cells` says
    where each is in their rectangle.
    """
    parts = ops.split(projected, 2, 3).outputs()  # (1, tokens, hidden) each
    query = _by_head(parts[0], queries, layers.heads)
    key = _by_head(parts[1], keys, layers.heads)
    value = _by_head(parts[2], keys, layers.heads)
    # (texts, heads, queries, keys)
    scores = ops.add(ops.matmul(query, key, False, True), mask)
    mixed = ops.matmul(ops.softmax(scores, -1), value, False, False)
    heads, head_size = layers.heads
    by_token = ops.transpose(mixed, [0, 2, 1, 3])
    flat = ops.reshape(by_token, [1, -1, heads * head_size], False)
    return ops.gather(flat, cells, 1)


def _finish(layers: Layers, mixed: Node, x: Node) -> Node:
    """Return norm(x + attention), then norm(x + feed_forward(x))."""
    hidden = layers.middle_norm(ops.add(layers.mix(mixed), x))
    wide = layers.widen(hidden)
    return layers.norm(ops.add(layers.narrow(wide), hidden))


def _norm(norm: nn.LayerNorm, shift: Tensor) -> Layer:
    weight = _constant(norm.weight)
    bias = _constant(shift)

    def apply(x: Node) -> Node:
        normal = ops.mvn(x, [-1], True, norm.eps, "inside_sqrt")
        return ops.add(ops.multiply(normal, weight), bias)

    return apply


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
    use_bias = _constant(bias)
    activate = _ACTIVATE[activation]

    def apply(x: Node) -> Node:
        product = ops.matmul(x, weight, False, True)
        return activate(ops.add(product, use_bias))

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
    weight = _scale_queries(weight, block)
    bias = _scale_queries(bias, block)
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
    """Return the layers of each step, with the grids and biases of that step."""
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

    # States are shifted by the mean of the next step's inputs, as hidden states are
    # within a step. OpenVINO miscomputes an explicit difference after the embeddings.
    next_means = [*shifts[1:num_steps, 0], torch.zeros(size)]
    layers = []
    for number, (i, j) in enumerate(plan):
        project, mix = attention_weights[i]
        widen, narrow = wide_weights[j]
        attention = albert.attention[i]
        norm = albert.feed_forward[j].norm
        grids = [ByteGrid.over(low, high) for low, high in ranges[number].tolist()]
        of_input, of_mixed, of_middle, of_wide = grids
        mean, middle_mean = shifts[number]  # (hidden,) each
        parts = torch.split(biases[number], sizes)
        project_bias, mix_bias, wide_bias, narrow_bias = parts
        project_layer = _linear(project, _scale_queries(project_bias, attention))
        # the residual lacks the mean
        mix_layer = _linear(mix, mix_bias + mean)
        wide_layer = _linear(widen, wide_bias, activation)
        layers.append(
            Layers(
                project=_rounded(project_layer, of_input),
                mix=_rounded(mix_layer, of_mixed),
                middle_norm=_norm(attention.norm, attention.norm.bias - middle_mean),
                widen=_rounded(wide_layer, of_middle),
                narrow=_rounded(_linear(narrow, narrow_bias), of_wide),
                norm=_norm(norm, norm.bias - next_means[number]),
                heads=attention.heads,
            )
        )
    return layers


def _attention_bytes(block: AttentionBlock) -> tuple[Node, Node]:
    layers = [_int8_table(x) for x in (block.query, block.key, block.value)]
    quantized = torch.cat([layer.quantized for layer in layers])  # (3 H, H)
    scale = torch.cat([layer.scale for layer in layers])  # (3 H,)
    output = _int8_table(block.output)
    return (
        _bytes(quantized, _scale_queries(scale, block)),
        _bytes(output.quantized, output.scale),
    )


def _feed_forward_bytes(block: FeedForwardBlock) -> tuple[Node, Node]:
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
    low = np.float32(-grid.zero * grid.scale)
    high = np.float32((255 - grid.zero) * grid.scale)
    return lambda x: layer(ops.fake_quantize(x, low, high, low, high, 256))
