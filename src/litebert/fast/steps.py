"""The engine: what `albert.engine` computes a network with, in training or packed for inference.

    accelerate(network.albert)     # from now on the same numbers, sooner
    pack(network.eval().albert)    # and sooner still, until the weights change

A step is the block of `litebert.nn.model`, its products prepared once for all steps that share them. Query, key and
value are one product, rows are filled up to few counts, and the last step computes only the rows that are read. What
computes a product is chosen by who prepares it: for training, here; for inference on a CPU, here too, packed in the
layout of its matrix kernels; in eight bits, `litebert.fast.int8`.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache, partial
from importlib.util import find_spec
from math import isfinite
from typing import Any, NamedTuple, TypeAlias, get_args

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from litebert.config import Activation, Backend
from litebert.errors import DamagedError, no_such_name
from litebert.fast.attention import Attend, Kernel, Layout, attend_of, fastest
from litebert.nn import ACTIVATIONS, Albert, AttentionBlock, Batch, Network, filled

# The dtype of activations for each precision.
DTYPES: dict[str, torch.dtype] = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}

Linear: TypeAlias = Callable[[Tensor, Tensor | None], Tensor]
"""(x, residual) -> x W^T + b, perhaps activated, plus the residual if there is one: often in one kernel."""
MakeLinear: TypeAlias = Callable[[Tensor, Tensor, torch.dtype, Activation, float], Linear]
"""(weight, bias, dtype, activation, dropout_prob) -> a linear layer; dropout is on what is added to the residual."""
Norm: TypeAlias = Callable[[Tensor], Tensor]
Step: TypeAlias = Callable[[Tensor, Layout], Tensor]
"""(hidden, layout) -> hidden, of the layout's queries; both may have more rows, which belong to no sequence."""


# A step, and what prepares it


class Mixing(NamedTuple):
    """What computes an attention block."""

    project: Linear  # query, key and value at once
    attend: Attend
    output: Linear
    norm: Norm
    heads: tuple[int, int]
    dropout_prob: float = 0.0


class Widening(NamedTuple):
    """What computes a feed-forward block."""

    intermediate: Linear  # with the activation
    output: Linear
    norm: Norm


def block(
    mixing: Mixing, widening: Widening, x: Float[Tensor, "rows hidden"], layout: Layout
) -> Float[Tensor, "query_rows hidden"]:
    """Return norm(x + attention(x)), then norm(x + feed_forward(x)), for the queries of the layout."""
    num_tokens, x = layout.batch.ids.shape[0], filled(x)
    projected = torch.unflatten(mixing.project(x, None), -1, (3, *mixing.heads))  # (rows, 3, heads, head_size)
    if x.shape[0] > num_tokens:  # a slice costs a copy in the backward pass
        projected = projected[:num_tokens]
    query, key, value = projected.unbind(1)
    mixed = mixing.attend(query[layout.queries], key, value, layout, mixing.dropout_prob)
    # After attention, not beside its query: the order in which gradients of x are added up decides their last bits.
    x = filled(x[layout.queries])
    x = mixing.norm(mixing.output(filled(mixed).flatten(-2), x))
    return widening.norm(widening.output(widening.intermediate(x, None), x))


def make_steps(
    albert: Albert,
    linear: MakeLinear,
    *,
    for_training: bool = False,
    plan: Sequence[tuple[int, int]] | None = None,
    others: tuple[Kernel, ...] = (),
) -> list[Step]:
    """Prepare each block of a plan once, and return the plan's steps; by default all of the encoder's."""
    plan, dtype = albert.plan if plan is None else plan, albert.dtype
    is_on_cpu = albert.embedding.norm.weight.device.type == "cpu"
    attend = attend_of(albert.config, in_rectangles=is_on_cpu and not for_training, others=others)

    mixing, widening = {}, {}
    for i in {i for i, _ in plan}:
        mix = albert.attention[i]
        project = linear(*projection(mix), dtype, "linear", 0.0)
        output = linear(mix.output.weight, mix.output.bias, dtype, "linear", mix.dropout.p * mix.training)
        dropout_prob = mix.attention_dropout_prob * mix.training
        mixing[i] = Mixing(project, attend, output, norm_of(mix.norm, dtype), mix.heads, dropout_prob)
    for j in {j for _, j in plan}:
        wide = albert.feed_forward[j]
        intermediate = linear(wide.intermediate.weight, wide.intermediate.bias, dtype, wide.hidden_act, 0.0)
        output = linear(wide.output.weight, wide.output.bias, dtype, "linear", wide.dropout.p * wide.training)
        widening[j] = Widening(intermediate, output, norm_of(wide.norm, dtype))
    return [partial(block, mixing[i], widening[j]) for i, j in plan]


def projection(block: AttentionBlock) -> tuple[Tensor, Tensor]:
    """Return weight (3 H, H) and bias of query, key and value, side by side."""
    layers = (block.query, block.key, block.value)
    return torch.cat([x.weight for x in layers]), torch.cat([x.bias for x in layers])


# The engine of a network, in `albert.engine`


class Engine:
    """Computes the states of an encoder with steps that suit the moment: packed ones, or those for training.

    It keeps how it was set up, not what it has packed, when a network is copied or pickled: the copy packs its own
    weights when it is first used.
    """

    def __init__(self) -> None:
        self.is_checkpointed = False
        self.backend: str | None = None  # what computes packed weights; None: they are not packed
        self.packed: Sequence[Step] | None = None
        self.stamps: list[tuple[int, int]] = []  # of each weight that was packed: its address, and the writes to it

    def __call__(
        self, albert: Albert, batch: Batch, queries: Tensor | None = None, steps: Sequence[Step] | None = None
    ) -> Iterator[Tensor]:
        """Yield the states as `Albert.states` does, at its depth; the last step computes `queries` alone."""
        steps = self.steps(albert) if steps is None else steps
        num_tokens, order, layout = len(batch.ids), None, Layout(batch)
        yield (hidden := albert.embedding(batch).to(albert.dtype))
        for number, step in enumerate(steps, start=1):
            if number == len(steps) and queries is not None:
                ascending, order = queries.sort()
                layout = Layout(batch, ascending)
            hidden = step(hidden, layout)
            yield hidden[:num_tokens] if order is None else hidden[order.argsort()]

    def steps(self, albert: Albert) -> Sequence[Step]:
        """Return the steps at the depth of the encoder; packed weights are forgotten if they have changed."""
        if albert.training:
            self.backend = self.packed = None
        if self.backend is None or torch.is_grad_enabled():
            steps = make_steps(albert, plain_linear, for_training=True)[: albert.depth]
            return [partial(checkpoint, s, use_reentrant=False) for s in steps] if self.is_checkpointed else steps

        # Each call asks whether a weight was replaced or written to: in 20 us, a third of what `parameters()` takes.
        modules: list[nn.Module] = [albert]
        for module in modules:  # the list grows by the children of each
            modules += [child for child in module._modules.values() if child is not None]
        weights = [weight for module in modules for weight in module._parameters.values() if weight is not None]
        stamps = [(w.data_ptr(), 0 if w.is_inference() else w._version) for w in weights]
        if self.packed is not None and stamps != self.stamps:
            self.backend = self.packed = None
            return self.steps(albert)
        if self.packed is None:
            from litebert.fast.int8 import int8_steps, is_int8, kernels_work

            self.stamps, others = stamps, tuple[Kernel, ...]()
            if self.backend != "torch":
                from litebert.fast.graphs import attention_graph, with_graphs

                others = (attention_graph(torch.get_num_threads()),)
            has_int8 = is_int8(albert) and kernels_work()  # without these kernels, rounded weights compute in float32
            make = int8_steps if has_int8 else partial(make_steps, linear=packed_linear)
            self.packed = make(albert, others=others)
            if self.backend != "torch":
                self.packed = with_graphs(albert, self.packed, is_forced=self.backend == "onnxruntime")
        return self.packed[: albert.depth]

    def __getstate__(self) -> dict[str, Any]:
        """Leave packed weights out of copies and pickles: they are addresses, layouts and kernels of this process."""
        return self.__dict__ | {"packed": None}


def accelerate(albert: Albert) -> Engine:
    """Let an encoder use the engine from now on, and return it; the results are the same, but faster."""
    if not isinstance(albert.engine, Engine):
        albert.engine = Engine()
    return albert.engine


def checkpoint_gradients(albert: Albert) -> None:
    """Keep only each step's input for the backward pass, and recompute the rest there."""
    accelerate(albert).is_checkpointed = True


@torch.no_grad()
def pack(albert: Albert, backend: str = "torch") -> None:
    """Pack the current weights for inference, in eight bits if they are stored so.

    Training and gradients use the weights themselves; if these change, packed ones are dropped. With "onnxruntime", it
    attends wherever it is faster, and a network in fp32 whose operators it has gets a graph per distinct step, which
    computes single short texts; with "auto", if it is installed, and these too only if they are faster.
    """
    if backend not in get_args(Backend):
        raise no_such_name("LB-975", "there is no such backend", str(backend), get_args(Backend), next='backend="auto"')
    is_absent = backend == "auto" and not all(find_spec(package) for package in ("onnx", "onnxruntime"))
    engine = accelerate(albert)
    engine.backend, engine.packed = "torch" if is_absent else backend, None
    engine.steps(albert)


@torch.no_grad()
def is_packed(albert: Albert) -> bool:
    """Tell whether the weights, as they are now, are packed, or those of a copy are about to be."""
    engine = albert.engine
    if not isinstance(engine, Engine) or engine.backend is None:
        return False
    engine.steps(albert)  # forgets what has changed
    return engine.backend is not None


def refuse_non_finite(network: Network) -> None:
    """Let a network raise LB-472 from now on instead of returning outputs that are not finite."""
    for child in network.children():
        for module in child if isinstance(child, nn.ModuleList) else [child]:  # the heads after each step
            module.register_forward_hook(_check_outputs)


def _check_outputs(module: nn.Module, _inputs: object, outputs: Tensor | tuple[Tensor, ...]) -> None:
    tensors = (outputs,) if isinstance(outputs, Tensor) else outputs
    # A finite sum means finite numbers; but a sum of finite numbers may overflow.
    if all(isfinite(x.detach().sum()) or bool(x.isfinite().all()) for x in tensors):
        return
    held = {name: x for name, x in module.state_dict().items() if x.numel() and not x.is_meta}
    weights = {name: x.float().abs().max().item() for name, x in held.items()}
    name = max(weights, key=lambda name: (weights[name] != weights[name], weights[name]))  # NaN above all
    what, received = "the network returns NaN or infinity", f"the largest weight is {weights[name]:.3g}, in {name}"
    expected, advice = "finite weights, usually below 100", "make or fetch the model again; in bf16, try fp32 first"
    raise DamagedError("LB-472", what, received=received, expected=expected, next=advice)


# By torch's public functions: weights are joined and cast once for all steps, with dropout and with gradients


def plain_linear(
    weight: Tensor, bias: Tensor, dtype: torch.dtype, activation: Activation, dropout_prob: float = 0.0
) -> Linear:
    """Return (x, y) -> activation(x W^T + b), or y + dropout(x W^T + b)."""
    use_weight, use_bias, activate = cast(weight, dtype), cast(bias, dtype), ACTIVATIONS[activation]

    def apply(x: Tensor, y: Tensor | None) -> Tensor:
        product = F.linear(x, use_weight(), use_bias())
        product = product if activation == "linear" else activate(product)
        return product if y is None else y + F.dropout(product, dropout_prob)

    return apply


def norm_of(norm: nn.LayerNorm, dtype: torch.dtype) -> Norm:
    """Return a layer norm on rows of `dtype`."""
    scale, shift = cast(norm.weight, dtype), cast(norm.bias, dtype)
    return lambda x: F.layer_norm(x, norm.normalized_shape, scale(), shift(), norm.eps)


def cast(weight: Tensor, dtype: torch.dtype) -> Callable[[], Tensor]:
    """Return a function that gives the weight in `dtype`, cast once, for each of its uses.

    A shared block is used many times. The gradients of its uses are summed in float32: in bf16, a sum loses terms
    below 1/256 of it.
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
    """The copy; its gradient goes to the weight, in the weight's precision."""

    @staticmethod
    def forward(ctx: Any, weight: Tensor, copied: Tensor) -> Tensor:
        ctx.dtype = weight.dtype
        return copied.view_as(copied)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return gradients[0].to(ctx.dtype), None


def sum_dtype(device: torch.device) -> torch.dtype:
    """Return the dtype for sums of many numbers: float64, which Apple's GPUs lack."""
    return torch.float32 if device.type == "mps" else torch.float64


# For inference on a CPU: weights packed once, without dropout and gradients. torch has the kernels (oneDNN's) but no
# public name for them. They are tried once per process, and replaced by public ones if missing, wrong or slower.

_PIECE = 384
FUSED_ACTIVATIONS: dict[Activation, tuple[str, str]] = {  # the kernel's names, and their variants
    "gelu_new": ("gelu", "tanh"),
    "gelu_pytorch_tanh": ("gelu", "tanh"),
    "gelu": ("gelu", "none"),
    "relu": ("relu", ""),
    "tanh": ("tanh", ""),
    "linear": ("none", ""),
}


def packed_linear(
    weight: Tensor, bias: Tensor, dtype: torch.dtype, activation: Activation, _dropout_prob: float = 0.0
) -> Linear:
    """Return (x, y) -> activation(x W^T + b), or y + x W^T + b, on rows of `dtype`."""
    if weight.device.type != "cpu" or not pays(dtype):
        return plain_linear(weight, bias, dtype, activation)
    return onednn(weight.detach().to(dtype), bias.detach().to(dtype), activation)


@lru_cache
def pays(dtype: torch.dtype) -> bool:
    """Tell whether packed products exist here, are right, and are not slower (10 ms)."""
    draws = torch.Generator().manual_seed(0)
    weight, bias = (torch.randn(*shape, generator=draws).to(dtype) for shape in ((768, 768), (768,)))
    rows = [torch.randn(number, 768, generator=draws).to(dtype) for number in (1, 100, 128)]
    theirs, tolerance = plain_linear(weight, bias, dtype, "linear"), torch.finfo(dtype).eps * 768
    try:
        ours = onednn(weight, bias, "linear")
        pairs = [(ours(x, y).float(), theirs(x, y).float()) for x in rows for y in (None, x)]
    except (AttributeError, RuntimeError):  # torch has no kernel of this name, or none in this dtype for this CPU
        return False
    packed, unpacked = fastest(*(partial(linear, rows[-1], None) for linear in (ours, theirs)), rounds=5)
    return packed < 1.3 * unpacked and all(torch.allclose(*pair, rtol=0.01, atol=tolerance) for pair in pairs)


def onednn(weight: Tensor, bias: Tensor, activation: Activation) -> Linear:
    """Return the layer with its weight in the layout of oneDNN's kernels, which also add and activate."""
    blocked = torch.ops.mkldnn._reorder_linear_weight(weight.contiguous(), None)
    product = torch.ops.mkldnn._linear_pointwise
    name, variant = FUSED_ACTIVATIONS[activation]

    def apply(x: Tensor, y: Tensor | None) -> Tensor:
        total: Tensor
        if y is None:
            total = product.default(x, blocked, bias, name, [], variant)
        elif x.shape[0] > _PIECE and _likes_pieces(torch.get_num_threads(), x.dtype):
            pieces = zip(torch.split(x, _PIECE), torch.split(y, _PIECE), strict=True)
            total = torch.cat([product.binary(*piece, blocked, bias, "add") for piece in pieces])
        else:
            total = product.binary(x, y, blocked, bias, "add")
        return total

    return apply


@lru_cache
def _likes_pieces(num_threads: int, dtype: torch.dtype) -> bool:
    """Tell whether many rows are multiplied faster in pieces: in one piece, threads may idle.

    With AMX and two threads, they do for 450 to 1,900 rows and 768 channels, but not for 2,304.
    """
    if num_threads == 1:
        return False
    weight, x = (torch.full((rows, 768), 0.5, dtype=dtype) for rows in (768, 2 * _PIECE))
    product = onednn(weight, weight[0].clone(), "linear")
    parts = torch.split(x, _PIECE)
    whole, pieces = fastest(lambda: product(x, None), lambda: [product(part, None) for part in parts], rounds=5)
    return pieces < 0.8 * whole
