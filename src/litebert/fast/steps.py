"""A step of the engine: the block of `litebert.nn.model`, its products prepared once for all steps that share them.

Query, key and value are one product, rows are filled up to few counts, and the last step computes only the rows that
are read. What computes a product is chosen by who prepares it: for training, here; for inference on a CPU, here too,
packed in the layout of its matrix kernels; in eight bits, `litebert.fast.int8`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, NamedTuple, TypeAlias, TypeVar

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from litebert.config import Precision
from litebert.config.schema import Activation
from litebert.fast.attention import Attend, Layout, attend_of, fastest
from litebert.nn.batch import Batch, filled
from litebert.nn.model import ACTIVATIONS, Albert, AttentionBlock, FeedForwardBlock

DTYPES: dict[Precision, torch.dtype] = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
"""The dtype of activations for each precision."""

Linear: TypeAlias = Callable[[Tensor, Tensor | None], Tensor]
"""(x, residual) -> x W^T + b, perhaps activated, plus the residual if there is one: often one kernel."""
Norm: TypeAlias = Callable[[Tensor], Tensor]
Step: TypeAlias = Callable[[Tensor, Layout], Tensor]
"""(hidden, layout) -> hidden, of the layout's queries; both may have more rows, which belong to no sequence."""
BlockT = TypeVar("BlockT", AttentionBlock, FeedForwardBlock)


class Mixing(NamedTuple):
    """What computes an attention block; `project` gives query, key and value at once."""

    project: Linear
    attend: Attend
    output: Linear
    norm: Norm
    heads: tuple[int, int]
    dropout_prob: float = 0.0


class Widening(NamedTuple):
    """What computes a feed-forward block; `intermediate` includes the activation."""

    intermediate: Linear
    output: Linear
    norm: Norm


def block(
    mixing: Mixing, widening: Widening, x: Float[Tensor, "rows hidden"], layout: Layout
) -> Float[Tensor, "query_rows hidden"]:
    """Return norm(x + attention(x)), then norm(x + feed_forward(x)), for the queries of the layout."""
    num_tokens, x = len(layout.batch.ids), filled(x)
    projected = torch.unflatten(mixing.project(x, None), -1, (3, *mixing.heads))  # (rows, 3, heads, head_size)
    if len(x) > num_tokens:  # a slice costs a copy in the backward pass
        projected = projected[:num_tokens]
    query, key, value = projected.unbind(1)
    mixed = mixing.attend(layout.of_queries(query), key, value, layout, mixing.dropout_prob)
    x = x if layout.queries is None else filled(layout.of_queries(x))
    x = mixing.norm(mixing.output(filled(mixed).flatten(-2), x))
    return widening.norm(widening.output(widening.intermediate(x, None), x))


@dataclass(frozen=True)
class Run:
    """Compute the states of an encoder with steps, which `albert.engine` makes."""

    albert: Albert
    steps: Sequence[Step]

    def __call__(self, batch: Batch, queries: Tensor | None = None) -> Iterator[Tensor]:
        """Yield the projected embeddings, then the states after each step; in the last, compute `queries` alone."""
        num_tokens, order, layout = len(batch.ids), None, Layout(batch)
        yield (hidden := self.albert.embedding(batch).to(self.albert.dtype))
        for number, step in enumerate(self.steps, start=1):
            if number == len(self.steps) and queries is not None:
                ascending, order = queries.sort()
                layout = Layout(batch, ascending)
            hidden = step(hidden, layout)
            yield hidden[:num_tokens] if order is None else hidden[order.argsort()]


def blocks(network: nn.Module, kind: type[BlockT]) -> Iterator[BlockT]:
    """Iterate over the blocks of one kind, in the order that the plan numbers them."""
    return (module for module in network.modules() if isinstance(module, kind))


def projection(block: AttentionBlock) -> tuple[Tensor, Tensor]:
    """Return weight and bias of query, key and value, side by side."""
    layers = (block.query, block.key, block.value)
    return torch.cat([x.weight for x in layers]), torch.cat([x.bias for x in layers])


# For training: weights are joined and cast once for all steps.


def training_steps(albert: Albert) -> list[Step]:
    """Return all steps, with dropout in training and with gradients."""
    attend, dtype = attend_of(albert.config, for_training=True), albert.dtype

    def mixed(each: AttentionBlock) -> Mixing:
        weight, bias = (cast(part, dtype) for part in projection(each))
        out, out_bias = cast(each.output.weight, dtype), cast(each.output.bias, dtype)
        scale, shift, norm = cast(each.norm.weight, dtype), cast(each.norm.bias, dtype), each.norm
        prob = each.dropout.p * each.training
        return Mixing(
            project=lambda x, _: F.linear(x, weight(), bias()),
            attend=attend,
            output=lambda x, residual: residual + F.dropout(F.linear(x, out(), out_bias()), prob),  # type: ignore[operator]
            norm=lambda x: F.layer_norm(x, norm.normalized_shape, scale(), shift(), norm.eps),
            heads=each.heads,
            dropout_prob=each.attention_dropout_prob * each.training,
        )

    def widened(each: FeedForwardBlock) -> Widening:
        weight, bias = cast(each.intermediate.weight, dtype), cast(each.intermediate.bias, dtype)
        out, out_bias = cast(each.output.weight, dtype), cast(each.output.bias, dtype)
        scale, shift, norm = cast(each.norm.weight, dtype), cast(each.norm.bias, dtype), each.norm
        prob = each.dropout.p * each.training
        return Widening(
            intermediate=lambda x, _: each.activation(F.linear(x, weight(), bias())),
            output=lambda x, residual: residual + F.dropout(F.linear(x, out(), out_bias()), prob),  # type: ignore[operator]
            norm=lambda x: F.layer_norm(x, norm.normalized_shape, scale(), shift(), norm.eps),
        )

    mixing = [mixed(each) for each in blocks(albert, AttentionBlock)]
    widening = [widened(each) for each in blocks(albert, FeedForwardBlock)]
    return [partial(block, mixing[i], widening[j]) for i, j in albert.plan]


def cast(weight: Tensor, dtype: torch.dtype) -> Callable[[], Tensor]:
    """Return a function that gives the weight in `dtype`, cast once, for each of its uses.

    A shared block is used many times. The gradients of its uses are summed in float32: in bf16, a sum loses terms
    below 1/256 of it.

    >>> weight = torch.ones(1, requires_grad=True)
    >>> use = cast(weight, torch.bfloat16)
    >>> (256 * use() + use()).sum().backward()
    >>> weight.grad  # in bf16 it would be 256
    tensor([257.])
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


def exact_dtype(device: torch.device) -> torch.dtype:
    """Return the dtype for sums of many numbers; Apple's GPUs have no float64.

    >>> exact_dtype(torch.device("cpu")), exact_dtype(torch.device("mps"))
    (torch.float64, torch.float32)
    """
    return torch.float32 if device.type == "mps" else torch.float64


# For inference: weights packed once, without dropout and without gradients. torch has the kernels (MKL's and oneDNN's)
# but no public name for them. They are tried once per process, and replaced by public ones if they are missing, wrong
# or slower.

MakeLinear: TypeAlias = Callable[[Tensor, Tensor, torch.dtype, Activation], Linear]
"""(weight, bias, dtype, activation) -> a linear layer."""
Kernel: TypeAlias = Callable[[Tensor, Tensor, Activation], Linear]
"""(weight, bias, activation) -> a linear layer in the dtype of the weight."""

FUSED_ACTIVATIONS: dict[Activation, tuple[str, str]] = {
    "gelu_new": ("gelu", "tanh"),
    "gelu_pytorch_tanh": ("gelu", "tanh"),
    "gelu": ("gelu", "none"),
    "relu": ("relu", ""),
    "tanh": ("tanh", ""),
    "linear": ("none", ""),
}
"""The kernel's names for activations and their variants."""

_MKL_ROWS, _PIECE = 1_024, 384


def packed_steps(albert: Albert) -> list[Step]:
    """Return all steps on packed weights."""
    mixing = [packed_mixing(each, albert, albert.dtype) for each in blocks(albert, AttentionBlock)]
    widening = [packed_widening(each, albert.dtype) for each in blocks(albert, FeedForwardBlock)]
    return [partial(block, mixing[i], widening[j]) for i, j in albert.plan]


def packed_linear(weight: Tensor, bias: Tensor, dtype: torch.dtype, activation: Activation = "linear") -> Linear:
    """Return (x, y) -> activation(x W^T + b), or x W^T + b + y, on rows of `dtype`."""
    weight, bias = weight.detach().to(dtype), bias.detach().to(dtype)
    if weight.device.type != "cpu":
        return _plain(weight, bias, activation)
    if dtype == torch.float32 and activation == "linear":
        return _kernel_in_fp32()(weight, bias, activation)
    return (onednn if pays(onednn, dtype) else _plain)(weight, bias, activation)


def packed_mixing(
    block: AttentionBlock, albert: Albert, dtype: torch.dtype, make: MakeLinear = packed_linear
) -> Mixing:
    """Prepare an attention block."""
    return Mixing(
        project=make(*projection(block), dtype, "linear"),
        attend=attend_of(albert.config, for_training=False),
        output=make(block.output.weight, block.output.bias, dtype, "linear"),
        norm=cast_norm(block.norm, dtype),
        heads=block.heads,
    )


def packed_widening(block: FeedForwardBlock, dtype: torch.dtype, make: MakeLinear = packed_linear) -> Widening:
    """Prepare a feed-forward block."""
    inner, outer = block.intermediate, block.output
    return Widening(
        intermediate=make(inner.weight, inner.bias, dtype, block.hidden_act),
        output=make(outer.weight, outer.bias, dtype, "linear"),
        norm=cast_norm(block.norm, dtype),
    )


def cast_norm(norm: nn.LayerNorm, dtype: torch.dtype) -> Norm:
    """Return a layer norm on rows of `dtype`."""
    weight, bias = norm.weight.detach().to(dtype), norm.bias.detach().to(dtype)
    return lambda x: F.layer_norm(x, norm.normalized_shape, weight, bias, norm.eps)


@lru_cache
def pays(kernel: Kernel, dtype: torch.dtype) -> bool:
    """Tell whether a kind of packed product exists here, is right, and is not slower (10 ms)."""
    draws = torch.Generator().manual_seed(0)
    weight, bias = (torch.randn(*shape, generator=draws).to(dtype) for shape in ((768, 768), (768,)))
    rows = [torch.randn(number, 768, generator=draws).to(dtype) for number in (1, 100, 128)]
    plain = _plain(weight, bias, "linear")
    try:
        packed = kernel(weight, bias, "linear")
        tolerance = torch.finfo(dtype).eps * 768
        is_right = all(
            torch.allclose(packed(x, y).float(), plain(x, y).float(), rtol=0.01, atol=tolerance)
            for x in rows
            for y in (None, x)
        )
    except (RuntimeError, AttributeError, NotImplementedError):
        return False
    ours, theirs = fastest(lambda linear: linear(rows[-1], None), (packed, plain), rounds=5)
    return is_right and ours < 1.3 * theirs


@lru_cache
def _kernel_in_fp32() -> Kernel:
    """Return the fastest kind of product in float32 on this CPU (25 ms).

    On a Xeon with AVX-512, oneDNN's was 1.1 to 1.5 times faster than MKL's, above all for the few rows of one short
    text; elsewhere it may be slower.
    """
    found: list[Kernel] = [kernel for kernel in (onednn, mkl) if pays(kernel, torch.float32)]
    if not found:
        return _plain
    weight = torch.full((768, 768), 0.5)
    products = [kernel(weight, weight[0], "linear") for kernel in found]

    def least(rows: Tensor) -> list[float]:
        return fastest(lambda product: product(rows, None), products, rounds=5)

    few, many = least(weight[:16]), least(weight[:128])
    # Few rows and many rows count equally.
    costs = [a / min(few) + b / min(many) for a, b in zip(few, many, strict=True)]
    return found[costs.index(min(costs))]


def mkl(weight: Tensor, bias: Tensor, _: Activation) -> Linear:
    """Pack for any number of rows, which the operator takes as an argument."""
    blocked = torch.ops.mkl._mkl_reorder_linear_weight(weight.contiguous(), _MKL_ROWS)
    product = torch.ops.mkl._mkl_linear.default
    # Once the weight is packed, the operator only needs its shape.
    shape = weight.new_zeros(()).expand(weight.shape)
    return lambda x, y: _plus(product(x, blocked, shape, bias, len(x)), y)


def onednn(weight: Tensor, bias: Tensor, activation: Activation) -> Linear:
    blocked = torch.ops.mkldnn._reorder_linear_weight(weight.contiguous(), None)
    product = torch.ops.mkldnn._linear_pointwise
    name, variant = FUSED_ACTIVATIONS[activation]

    def apply(x: Tensor, y: Tensor | None) -> Tensor:
        assert y is None or activation == "linear"
        total: Tensor
        if y is None:
            total = product.default(x, blocked, bias, name, [], variant)
        elif len(x) > _PIECE and _likes_pieces(torch.get_num_threads(), x.dtype):
            pieces = zip(torch.split(x, _PIECE), torch.split(y, _PIECE), strict=True)
            total = torch.cat([apply(*piece) for piece in pieces])
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
    whole, pieces = fastest(
        lambda parts: [product(part, None) for part in parts], ((x,), torch.split(x, _PIECE)), rounds=5
    )
    return pieces < 0.8 * whole


def _plain(weight: Tensor, bias: Tensor, activation: Activation) -> Linear:
    activate = ACTIVATIONS[activation]
    return lambda x, y: _plus(activate(F.linear(x, weight, bias)), y)


def _plus(product: Tensor, y: Tensor | None) -> Tensor:
    return product if y is None else product.add_(y)
