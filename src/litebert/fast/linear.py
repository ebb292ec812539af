"""The linear layers and norms of a step, prepared once for all steps that share them:
for training, and for inference on a CPU with packed weights.

Eight-bit layers are prepared in `litebert.fast.int8`.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple, TypeAlias

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from litebert.config import Activation
from litebert.device import device_at
from litebert.fast.attention import time_each
from litebert.nn import ACTIVATIONS

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


# ---- with torch's public functions ---------------------------------------------------
#
# Weights are joined and cast once for all steps; dropout and gradients are supported.


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
        product = F.linear(x, use_weight(), use_bias())  # (rows, outputs)
        if activation != "linear":  # a call of an identity takes time, too
            product = activate(product)
        if y is None:
            return product
        return y + F.dropout(product, dropout_prob)

    return apply


def norm_of(norm: nn.LayerNorm, dtype: torch.dtype) -> Norm:
    """Return a layer norm on rows of `dtype`."""
    weight_dtype = dtype
    if dtype == torch.float16 and device_at(norm.weight.device).is_cpu:
        # With fp16 weights, torch keeps 1 / sqrt(variance + eps) in fp16. For padding,
        # whose variance is 0, that is infinite, and the gradient NaN.
        weight_dtype = norm.weight.dtype
    scale = cast(norm.weight, weight_dtype)  # (hidden,)
    shift = cast(norm.bias, weight_dtype)  # (hidden,)
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


# ---- packed, for inference on a CPU --------------------------------------------------
#
# Weights are packed once, without dropout or gradients. torch has the kernels (oneDNN's)
# but no public name for them. They are tried once per process, and replaced by public
# ones if missing, wrong or slower.

# Rows that are multiplied at once where many are faster in pieces.
_PIECE = 384
# The names that the kernels have for activations, and their variants.
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
    # 768 is the width of base. Kernels may differ between a single row, a number of rows
    # that is a power of two, and another one.
    draws = torch.Generator().manual_seed(0)
    weight = torch.randn(768, 768, generator=draws).to(dtype)
    bias = torch.randn(768, generator=draws).to(dtype)
    rows = list[Tensor]()
    for number in (1, 100, 128):
        rows.append(torch.randn(number, 768, generator=draws).to(dtype))
    return _Trial(
        packed=onednn_linear(weight, bias, "linear"),
        plain=plain_linear(weight, bias, dtype, "linear"),
        rows=rows,
    )


@lru_cache
def packing_works(dtype: torch.dtype) -> bool:
    """Return whether packed products exist here, and are right."""
    # a rounding error for each of the 768 terms of a sum
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
            return total
        if x.shape[0] <= _PIECE or not _likes_pieces(torch.get_num_threads(), x.dtype):
            total = product.binary(x, y, blocked, bias, "add")
            return total
        pieces = list[Tensor]()
        for first in range(0, x.shape[0], _PIECE):
            rows = slice(first, first + _PIECE)
            pieces.append(product.binary(x[rows], y[rows], blocked, bias, "add"))
        return torch.cat(pieces)

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
    weight = torch.full((768, 768), 0.5, dtype=dtype)
    x = torch.full((2 * _PIECE, 768), 0.5, dtype=dtype)
    product = onednn_linear(weight, weight[0].clone(), "linear")
    parts = torch.split(x, _PIECE)
    whole, pieces = time_each(
        lambda: product(x, None),
        lambda: [product(part, None) for part in parts],
        rounds=5,
    )
    return pieces < 0.8 * whole
