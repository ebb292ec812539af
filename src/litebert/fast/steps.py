"""The engine, set as `albert.engine`: it computes a network in training or, with packed
weights, in inference.

    accelerate(network.albert)     # from now on, the same numbers faster
    pack(network.eval().albert)    # and faster still, until the weights change

A step applies two blocks of `litebert.nn.model`, whose products are prepared once for
all steps that share them. Query, key and value are one product, the number of rows is
rounded up to one of a few, and the last step computes only the rows that are needed.
Products for training are prepared here; so are those for inference on a CPU, with
weights packed in the layout of its matrix kernels. Eight-bit products are prepared in
`litebert.fast.int8`.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache, partial
from importlib.util import find_spec
from itertools import chain
from math import isfinite, isnan
from operator import attrgetter, is_, methodcaller
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, get_args

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from litebert.config import Activation, Backend
from litebert.device import device_at, device_of
from litebert.errors import DamagedError, no_such_name
from litebert.fast.attention import Attend, Layout, attend_of, time_each
from litebert.nn import (
    ACTIVATIONS,
    Albert,
    AttentionBlock,
    Batch,
    FeedForwardBlock,
    Network,
    pad_rows,
)

if TYPE_CHECKING:
    from litebert.fast.graphs import Graph

Linear: TypeAlias = Callable[[Tensor, Tensor | None], Tensor]
"""(x, residual) -> x W^T + b, possibly activated, plus the residual if there is one;
often a single kernel.
"""
MakeLinear: TypeAlias = Callable[
    [Tensor, Tensor, torch.dtype, Activation, float], Linear
]
"""(weight, bias, dtype, activation, dropout_prob) -> a linear layer; dropout applies
before the residual is added.
"""
Norm: TypeAlias = Callable[[Tensor], Tensor]
Step: TypeAlias = Callable[[Tensor, Layout], Tensor]
"""(hidden, layout) -> hidden, of the layout's queries; both may end with rows that
belong to no sequence.
"""


# Steps, and their preparation


class AttentionLayers(NamedTuple):
    """The prepared layers of an attention block."""

    project: Linear  # query, key and value at once
    attend: Attend
    output: Linear
    norm: Norm
    heads: tuple[int, int]  # their number and size
    dropout_prob: float = 0.0  # of the shares of attention


class FeedForwardLayers(NamedTuple):
    """The prepared layers of a feed-forward block."""

    intermediate: Linear  # with the activation
    output: Linear
    norm: Norm


def block(
    attention: AttentionLayers,
    feed_forward: FeedForwardLayers,
    x: Float[Tensor, "rows hidden"],
    layout: Layout,
    *,
    finish: "Finish",
) -> Float[Tensor, "query_rows hidden"]:
    """Return norm(x + attention(x)), then norm(x + feed_forward(x)), for the queries of
    the layout; `finish` is `finish_step`, possibly compiled.
    """
    num_tokens = layout.batch.ids.shape[0]
    x = pad_rows(x)
    # (rows, 3, heads, head_size)
    projected = torch.unflatten(attention.project(x, None), -1, (3, *attention.heads))
    if x.shape[0] > num_tokens:  # a slice costs a copy in the backward pass
        projected = projected[:num_tokens]
    query, key, value = projected.unbind(1)
    mixed = attention.attend(
        query[layout.queries], key, value, layout, attention.dropout_prob
    )
    # Selected here, not with the query above: the order in which gradients of x are
    # summed affects their last bits.
    x = pad_rows(x[layout.queries])
    return finish(attention, feed_forward, pad_rows(mixed), x)


def finish_step(
    attention: AttentionLayers,
    feed_forward: FeedForwardLayers,
    mixed: Float[Tensor, "query_rows heads head_size"],
    x: Float[Tensor, "query_rows hidden"],
) -> Float[Tensor, "query_rows hidden"]:
    """Return the states after a step from what attention mixed: all that a step does
    row by row.
    """
    x = attention.norm(attention.output(mixed.flatten(-2), x))
    wide = feed_forward.intermediate(x, None)  # (query_rows, intermediate)
    return feed_forward.norm(feed_forward.output(wide, x))


Finish: TypeAlias = Callable[
    [AttentionLayers, FeedForwardLayers, Tensor, Tensor], Tensor
]


@lru_cache(maxsize=1)
def compiled_finish() -> Finish:
    """Return `finish_step` as one compiled graph for any number of rows, the same for
    all steps.

    Attention is left out: its kernels are compiled already, and a batch has new lengths
    in every step, for which it would be compiled anew.
    """
    return torch.compile(finish_step, fullgraph=True, dynamic=True)


def make_steps(
    albert: Albert,
    linear: MakeLinear,
    *,
    for_training: bool = False,
    is_compiled: bool = False,
    is_repeatable: bool = False,
    plan: Sequence[tuple[int, int]] | None = None,
) -> list[Step]:
    """Prepare each block of a plan (by default, the encoder's) once, and return the
    steps of the plan.
    """
    plan = albert.plan if plan is None else plan
    attend = attend_of(
        albert.config,
        in_rectangles=device_of(albert).is_cpu and not for_training,
        is_repeatable=is_repeatable,
    )
    finish = compiled_finish() if is_compiled else finish_step

    # the layers of each block by its number: steps that share it share them
    attention = dict[int, AttentionLayers]()
    feed_forward = dict[int, FeedForwardLayers]()
    for number in {blocks[0] for blocks in plan}:
        attention[number] = _attention_layers(
            albert.attention[number], linear, attend, albert.dtype
        )
    for number in {blocks[1] for blocks in plan}:
        feed_forward[number] = _feed_forward_layers(
            albert.feed_forward[number], linear, albert.dtype
        )
    steps = list[Step]()
    for first, second in plan:
        steps.append(
            partial(block, attention[first], feed_forward[second], finish=finish)
        )
    return steps


def _attention_layers(
    plain: AttentionBlock, linear: MakeLinear, attend: Attend, dtype: torch.dtype
) -> AttentionLayers:
    weight, bias = projection(plain)
    is_training = plain.training
    return AttentionLayers(
        project=linear(weight, bias, dtype, "linear", 0.0),
        attend=attend,
        output=linear(
            plain.output.weight,
            plain.output.bias,
            dtype,
            "linear",
            plain.dropout.p if is_training else 0.0,
        ),
        norm=norm_of(plain.norm, dtype),
        heads=plain.heads,
        dropout_prob=plain.attention_dropout_prob if is_training else 0.0,
    )


def _feed_forward_layers(
    plain: FeedForwardBlock, linear: MakeLinear, dtype: torch.dtype
) -> FeedForwardLayers:
    return FeedForwardLayers(
        intermediate=linear(
            plain.intermediate.weight,
            plain.intermediate.bias,
            dtype,
            plain.hidden_act,
            0.0,
        ),
        output=linear(
            plain.output.weight,
            plain.output.bias,
            dtype,
            "linear",
            plain.dropout.p if plain.training else 0.0,
        ),
        norm=norm_of(plain.norm, dtype),
    )


def projection(block: AttentionBlock) -> tuple[Tensor, Tensor]:
    """Return the concatenated weights (3 H, H) and biases of query, key and value."""
    layers = (block.query, block.key, block.value)
    return torch.cat([x.weight for x in layers]), torch.cat([x.bias for x in layers])


# The engine of a network, in `albert.engine`


class Packed(NamedTuple):
    """What computes with packed weights."""

    watch: "Watch"  # of the weights, from when they were packed
    steps: Sequence[Step]
    project: Linear | None  # the projection of the embeddings, if there is one
    graph: "Graph | None"  # for the last states, if that is faster


class Engine:
    """Computes the states of an encoder, with packed weights if they are packed,
    otherwise with training steps.
    """

    def __init__(self) -> None:
        self.is_checkpointed = False
        self.is_compiled = False
        # what is to compute with packed weights; None: they are not to be packed
        self.backend: str | None = None
        self.is_repeatable = False  # see `pack`
        self.packed: Packed | None = None

    def last(
        self, albert: Albert, batch: Batch, queries: Tensor | None = None
    ) -> Tensor:
        """Return the last states, as `Albert.forward` does."""
        packed = self.packed_weights(albert)
        graph = None if packed is None else packed.graph
        if graph is not None and graph.fits(batch, albert.depth):
            return graph.last(batch, queries).to(albert.dtype)
        for state in self._states(albert, packed, batch, queries):
            last = state  # only one is kept in memory
        return last

    def states(
        self, albert: Albert, batch: Batch, queries: Tensor | None = None
    ) -> Iterator[Tensor]:
        """Yield the states as `Albert.states` does, up to its depth; the last step
        computes only `queries`.
        """
        yield from self._states(albert, self.packed_weights(albert), batch, queries)

    def _states(
        self,
        albert: Albert,
        packed: Packed | None,
        batch: Batch,
        queries: Tensor | None,
    ) -> Iterator[Tensor]:
        hidden = self.embed(albert, batch, packed).to(albert.dtype)
        yield hidden
        yield from apply_steps(self.steps(albert, packed), hidden, batch, queries)

    def steps(self, albert: Albert, packed: Packed | None) -> Sequence[Step]:
        """Return the steps up to the depth of the encoder."""
        steps = self._training_steps(albert) if packed is None else packed.steps
        return steps[: albert.depth]

    def embed(
        self, albert: Albert, batch: Batch, packed: Packed | None
    ) -> Float[Tensor, "tokens hidden"]:
        """Return the projected embeddings, with the packed projection if there is
        one.
        """
        if packed is None or packed.project is None:
            embedded: Tensor = albert.embedding(batch)
            return embedded
        rows = pad_rows(albert.embedding.look_up(batch))
        return packed.project(rows, None)[: len(batch.ids)]

    def packed_weights(self, albert: Albert) -> Packed | None:
        """Return what computes with packed weights, packing them if they are to be
        packed; None in training, when gradients are needed, and from the time when the
        originals have changed.
        """
        if albert.training:
            self._unpack()
        if self.backend is None or torch.is_grad_enabled():
            return None
        if self.packed is None:
            self.packed = self._pack(albert)
        elif not self.packed.watch.is_unchanged():
            self._unpack()
        return self.packed

    def _unpack(self) -> None:
        self.backend = None
        self.packed = None

    def _training_steps(self, albert: Albert) -> Sequence[Step]:
        """Return steps that gradients may pass through; their weights are cast anew,
        since each training step changes them.
        """
        steps = make_steps(
            albert, plain_linear, for_training=True, is_compiled=self.is_compiled
        )
        if not self.is_checkpointed:
            return steps
        return [partial(checkpoint, step, use_reentrant=False) for step in steps]

    def _pack(self, albert: Albert) -> Packed:
        """Pack the weights in the layout of the fastest kernels here."""
        from litebert.fast.int8 import int8_steps, is_int8, kernels_work

        is_on_cpu = device_of(albert).is_cpu
        # OpenVINO is used on the CPU alone
        uses_graphs = is_on_cpu and self.backend != "torch"
        steps: Sequence[Step]
        # Without these kernels, which only CPUs have, rounded weights are used in the
        # network's own precision.
        if is_int8(albert) and is_on_cpu and kernels_work():
            steps = int8_steps(albert)
        elif self.is_repeatable:
            steps = make_steps(albert, repeatable_linear, is_repeatable=True)
        else:
            steps = make_steps(albert, packed_linear)
        graph = None
        if uses_graphs:
            from litebert.fast.graphs import graph_of

            is_forced = self.backend == "openvino"
            graph = graph_of(albert, steps, is_forced=is_forced)
        return Packed(Watch(albert), steps, _packed_projection(albert), graph)

    def __getstate__(self) -> dict[str, Any]:
        """Leave out packed weights, whose addresses and layouts belong to this process:
        a copy packs its own.
        """
        return self.__dict__ | {"packed": None}


def apply_steps(
    steps: Sequence[Step], hidden: Tensor, batch: Batch, queries: Tensor | None
) -> Iterator[Tensor]:
    """Yield the states after each step; the last step computes only `queries`."""
    num_tokens = len(batch.ids)
    order = None
    layout = Layout(batch)
    for number, step in enumerate(steps, start=1):
        if number == len(steps) and queries is not None:
            ascending, order = queries.sort()
            layout = Layout(batch, ascending)
        hidden = step(hidden, layout)
        yield hidden[:num_tokens] if order is None else hidden[order.argsort()]


def _packed_projection(albert: Albert) -> Linear | None:
    """Return the packed projection of the embeddings; None if there is none."""
    layer = albert.embedding.projection
    if not isinstance(layer, nn.Linear):
        return None
    return packed_linear(layer.weight, layer.bias, layer.weight.dtype, "linear")


class Watch:
    """Notices when the weights of an encoder change.

    Every call of a packed network looks, so that the walk over its modules is made
    only once.
    """

    def __init__(self, albert: Albert) -> None:
        self._owners = list[dict[str, Any]]()
        for module in albert.modules():
            owned: tuple[dict[str, Any], ...] = (module._modules, module._parameters)
            self._owners += filter(None, owned)
        self._objects = self._find_objects()
        self._weights = [x for x in self._objects if isinstance(x, Tensor)]
        # tensors that were made in inference mode do not count how often they change
        self._counting = [x for x in self._weights if not x.is_inference()]
        self.stamps = self._find_stamps()

    def is_unchanged(self) -> bool:
        """Return whether the weights are the same objects, at the same addresses, and
        were not written to.
        """
        objects = self._find_objects()
        if len(objects) != len(self._objects):
            return False
        are_same = all(map(is_, objects, self._objects))
        return are_same and self._find_stamps() == self.stamps

    def _find_objects(self) -> list[Any]:
        return list(chain.from_iterable(map(dict.values, self._owners)))

    def _find_stamps(self) -> list[int]:
        return [*map(_ADDRESS, self._weights), *map(_NUM_WRITES, self._counting)]


_ADDRESS = methodcaller("data_ptr")
_NUM_WRITES = attrgetter("_version")


def accelerate(albert: Albert) -> Engine:
    """Attach the engine to an encoder, and return the engine; results are the same, but
    computed faster.
    """
    if not isinstance(albert.engine, Engine):
        albert.engine = Engine()
    return albert.engine


def checkpoint_gradients(albert: Albert) -> None:
    """Turn on gradient checkpointing: keep only the input of each step, and recompute
    the rest in the backward pass.
    """
    accelerate(albert).is_checkpointed = True


def compile_steps(albert: Albert) -> None:
    """Compile the steps of training with torch.compile, which takes a minute once."""
    accelerate(albert).is_compiled = True


@torch.no_grad()
def pack(
    albert: Albert, backend: str = "torch", *, is_repeatable: bool = False
) -> None:
    """Pack the current weights for inference, in eight bits if they are stored that
    way.

    The fastest kernels are found by timing them, once in a process, and in bf16 they
    round differently. Packing that is repeatable chooses by rule instead, so that
    another process gets the same bits: training needs that when it is resumed.

    Training and gradients use the original weights; if those change, the packed ones
    are dropped. "openvino" computes the last states as one graph, where it has the
    operators. "auto" does so if OpenVINO is installed, and only where it is faster.
    """
    if backend not in get_args(Backend):
        raise no_such_name(
            "LB-975",
            "there is no such backend",
            str(backend),
            get_args(Backend),
            next='backend="auto"',
        )
    is_absent = backend == "auto" and find_spec("openvino") is None
    engine = accelerate(albert)
    engine.backend = "torch" if is_absent else backend
    engine.is_repeatable = is_repeatable
    engine.packed = None
    engine.packed_weights(albert)


@torch.no_grad()
def is_packed(albert: Albert) -> bool:
    """Return whether the current weights are packed; in a copy of a packed network,
    pack them first.
    """
    engine = albert.engine
    if not isinstance(engine, Engine) or engine.backend is None:
        return False
    engine.packed_weights(albert)  # drops them if the originals have changed
    return engine.backend is not None


def refuse_non_finite(network: Network) -> None:
    """Make a network raise LB-472 instead of returning outputs that are not finite."""
    for child in network.children():
        # the heads after each step
        for module in child if isinstance(child, nn.ModuleList) else [child]:
            module.register_forward_hook(_check_outputs)


def _is_finite(x: Tensor) -> bool:
    """Return whether all numbers are finite; a GPU is waited for, as for the result."""
    total: Any = x.sum().tolist()
    # a finite sum implies finite numbers, but a sum of finite numbers may overflow
    return isfinite(total) or bool(x.isfinite().all())


def _check_outputs(
    module: nn.Module, _inputs: object, outputs: Tensor | tuple[Tensor, ...]
) -> None:
    tensors = (outputs,) if isinstance(outputs, Tensor) else outputs
    if all(_is_finite(x.detach()) for x in tensors):
        return
    largest = dict[str, float]()  # of each tensor of weights
    for name, x in module.state_dict().items():
        if x.numel() and not x.is_meta:
            largest[name] = x.float().abs().max().item()
    # NaN ranks highest
    name = max(largest, key=lambda name: (isnan(largest[name]), largest[name]))
    raise DamagedError(
        "LB-472",
        "the network returns NaN or infinity",
        received=f"the largest weight is {largest[name]:.3g}, in {name}",
        expected="finite weights, usually below 100",
        next="make or fetch the model again; in bf16, try fp32 first",
    )


# With torch's public functions: weights are joined and cast once for all steps; dropout
# and gradients are supported


def plain_linear(
    weight: Tensor,
    bias: Tensor,
    dtype: torch.dtype,
    activation: Activation,
    dropout_prob: float = 0.0,
) -> Linear:
    """Return (x, y) -> activation(x W^T + b), or y + dropout(x W^T + b)."""
    use_weight = cast(weight, dtype)
    use_bias = cast(bias, dtype)
    activate = ACTIVATIONS[activation]

    def apply(x: Tensor, y: Tensor | None) -> Tensor:
        product = F.linear(x, use_weight(), use_bias())
        product = product if activation == "linear" else activate(product)
        return product if y is None else y + F.dropout(product, dropout_prob)

    return apply


def norm_of(norm: nn.LayerNorm, dtype: torch.dtype) -> Norm:
    """Return a layer norm on rows of `dtype`."""
    if dtype == torch.float16 and device_at(norm.weight.device).is_cpu:
        # with fp16 weights, it keeps 1 / sqrt(variance + eps) in fp16: infinite for
        # padding
        dtype = norm.weight.dtype
    scale = cast(norm.weight, dtype)
    shift = cast(norm.bias, dtype)
    return lambda x: F.layer_norm(x, norm.normalized_shape, scale(), shift(), norm.eps)


def cast(weight: Tensor, dtype: torch.dtype) -> Callable[[], Tensor]:
    """Return a function to call at each use of a weight: it returns the weight in
    `dtype`, which was cast once.

    The gradients of a shared block's uses are summed in float32: in bf16, a sum loses
    terms below 1/256 of itself.
    """
    if weight.dtype == dtype:
        return lambda: weight
    copied = weight.detach().to(dtype)

    def use() -> Tensor:
        if not (torch.is_grad_enabled() and weight.requires_grad):
            return copied
        used: Tensor = _Use.apply(weight, copied)  # type: ignore[no-untyped-call]
        return used

    return use


class _Use(torch.autograd.Function):
    """Returns the copy; in the backward pass, gives its gradient to the weight, in the
    weight's precision.
    """

    @staticmethod
    def forward(ctx: Any, weight: Tensor, copied: Tensor) -> Tensor:
        ctx.dtype = weight.dtype
        return copied.view_as(copied)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return gradients[0].to(ctx.dtype), None


# For inference on a CPU: weights packed once, without dropout or gradients. torch has
# the kernels (oneDNN's) but no public name for them. They are tried once per process,
# and replaced by public ones if missing, wrong or slower.

_PIECE = 384
# the kernel's names for them, and their variants
FUSED_ACTIVATIONS: dict[Activation, tuple[str, str]] = {
    "gelu_new": ("gelu", "tanh"),
    "gelu_pytorch_tanh": ("gelu", "tanh"),
    "gelu": ("gelu", "none"),
    "relu": ("relu", ""),
    "tanh": ("tanh", ""),
    "linear": ("none", ""),
}


def packed_linear(
    weight: Tensor,
    bias: Tensor,
    dtype: torch.dtype,
    activation: Activation,
    _dropout_prob: float = 0.0,
) -> Linear:
    """Return (x, y) -> activation(x W^T + b), or y + x W^T + b, on rows of `dtype`;
    packed where that is faster on this machine.
    """
    if device_at(weight.device).is_cpu and packing_pays(dtype):
        return repeatable_linear(weight, bias, dtype, activation)
    return plain_linear(weight, bias, dtype, activation)


def repeatable_linear(
    weight: Tensor,
    bias: Tensor,
    dtype: torch.dtype,
    activation: Activation,
    _dropout_prob: float = 0.0,
) -> Linear:
    """Return the layer of `packed_linear`, packed wherever it can be."""
    if not (device_at(weight.device).is_cpu and packing_works(dtype)):
        return plain_linear(weight, bias, dtype, activation)
    return onednn_linear(weight.detach().to(dtype), bias.detach().to(dtype), activation)


class _Trial(NamedTuple):
    """A layer with and without packing, and numbers of rows to compare them on."""

    packed: Linear
    plain: Linear
    rows: list[Tensor]


def _trial(dtype: torch.dtype) -> _Trial:
    """Return a layer of 768 channels, with random weights."""
    draws = torch.Generator().manual_seed(0)
    weight = torch.randn(768, 768, generator=draws).to(dtype)
    bias = torch.randn(768, generator=draws).to(dtype)
    rows = [
        torch.randn(number, 768, generator=draws).to(dtype) for number in (1, 100, 128)
    ]
    return _Trial(
        packed=onednn_linear(weight, bias, "linear"),
        plain=plain_linear(weight, bias, dtype, "linear"),
        rows=rows,
    )


@lru_cache
def packing_works(dtype: torch.dtype) -> bool:
    """Return whether packed products exist here, and are right."""
    tolerance = torch.finfo(dtype).eps * 768
    try:
        trial = _trial(dtype)
        for x in trial.rows:
            for y in (None, x):
                packed = trial.packed(x, y).float()
                plain = trial.plain(x, y).float()
                if not torch.allclose(packed, plain, rtol=0.01, atol=tolerance):
                    return False
    except (AttributeError, RuntimeError):
        # torch has no kernel of this name, or none in this dtype for this CPU
        return False
    return True


@lru_cache
def packing_pays(dtype: torch.dtype) -> bool:
    """Return whether packed products work here and are not slower (a check of
    10 ms).
    """
    if not packing_works(dtype):
        return False
    trial = _trial(dtype)
    x = trial.rows[-1]
    packed, plain = time_each(
        lambda: trial.packed(x, None), lambda: trial.plain(x, None), rounds=5
    )
    return packed < 1.3 * plain


def onednn_linear(weight: Tensor, bias: Tensor, activation: Activation) -> Linear:
    """Return the layer with its weight in the layout of oneDNN's kernels, which also
    fuse the sum or the activation.
    """
    blocked = torch.ops.mkldnn._reorder_linear_weight(weight.contiguous(), None)
    product = torch.ops.mkldnn._linear_pointwise
    name, variant = FUSED_ACTIVATIONS[activation]

    def apply(x: Tensor, y: Tensor | None) -> Tensor:
        total: Tensor
        if y is None:
            total = product.default(x, blocked, bias, name, [], variant)
        elif x.shape[0] > _PIECE and _likes_pieces(torch.get_num_threads(), x.dtype):
            pieces = zip(torch.split(x, _PIECE), torch.split(y, _PIECE), strict=True)
            total = torch.cat(
                [product.binary(*piece, blocked, bias, "add") for piece in pieces]
            )
        else:
            total = product.binary(x, y, blocked, bias, "add")
        return total

    return apply


@lru_cache
def _likes_pieces(num_threads: int, dtype: torch.dtype) -> bool:
    """Return whether many rows are multiplied faster in pieces: in one piece, threads
    may idle.

    With AMX and two threads, they idle for 450 to 1,900 rows and 768 output channels,
    but not for 2,304 channels.
    """
    if num_threads == 1:
        return False
    weight, x = (
        torch.full((rows, 768), 0.5, dtype=dtype) for rows in (768, 2 * _PIECE)
    )
    product = onednn_linear(weight, weight[0].clone(), "linear")
    parts = torch.split(x, _PIECE)
    whole, pieces = time_each(
        lambda: product(x, None),
        lambda: [product(part, None) for part in parts],
        rounds=5,
    )
    return pieces < 0.8 * whole
