"""Blocks for inference on a CPU: weights packed once, in the layout of its matrix kernels.

torch has the kernels (MKL's and oneDNN's) but no public name for them; only this file names them. They are tried once
per process, and replaced by public ones if they are missing, wrong or slower.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import TypeAlias

import torch
from torch import Tensor
from torch.nn import functional as F

from litebert.config.schema import Activation
from litebert.fast.attention import attend_of, fastest
from litebert.fast.steps import Linear, Mixing, Step, Widening, blocks, cast_norm, in_order, projection
from litebert.nn.model import ACTIVATIONS, Albert, AttentionBlock, FeedForwardBlock

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
    """Return all steps on packed weights, without dropout and without gradients."""
    return in_order(
        albert,
        [packed_mixing(each, albert, albert.dtype) for each in blocks(albert, AttentionBlock)],
        [packed_widening(each, albert.dtype) for each in blocks(albert, FeedForwardBlock)],
    )


def packed_linear(weight: Tensor, bias: Tensor, dtype: torch.dtype, activation: Activation = "linear") -> Linear:
    """Return (x, y) -> activation(x W^T + b), or x W^T + b + y, on rows of `dtype`."""
    weight, bias = weight.detach().to(dtype), bias.detach().to(dtype)
    if weight.device.type != "cpu":
        return _plain(weight, bias, activation)
    if dtype == torch.float32 and activation == "linear":
        return _kernel_in_fp32()(weight, bias, activation)
    return (_onednn if pays(_onednn, dtype) else _plain)(weight, bias, activation)


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


def bf16_pays() -> bool:
    """Tell whether packed products in bf16 work and are not slower on this CPU."""
    return pays(_onednn, torch.bfloat16)


@lru_cache
def _kernel_in_fp32() -> Kernel:
    """Return the fastest kind of product in float32 on this CPU (25 ms).

    On a Xeon with AVX-512, oneDNN's was 1.1 to 1.5 times faster than MKL's, above all for the few rows of one short
    text; elsewhere it may be slower.
    """
    found: list[Kernel] = [kernel for kernel in (_onednn, _mkl) if pays(kernel, torch.float32)]
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


def _mkl(weight: Tensor, bias: Tensor, _: Activation) -> Linear:
    """Pack for any number of rows, which the operator takes as an argument."""
    blocked = torch.ops.mkl._mkl_reorder_linear_weight(weight.contiguous(), _MKL_ROWS)
    product = torch.ops.mkl._mkl_linear.default
    # Once the weight is packed, the operator only needs its shape.
    shape = weight.new_zeros(()).expand(weight.shape)
    return lambda x, y: _plus(product(x, blocked, shape, bias, len(x)), y)


def _onednn(weight: Tensor, bias: Tensor, activation: Activation) -> Linear:
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
    product = _onednn(weight, weight[0].clone(), "linear")
    whole, pieces = fastest(
        lambda parts: [product(part, None) for part in parts], ((x,), torch.split(x, _PIECE)), rounds=5
    )
    return pieces < 0.8 * whole


def _plain(weight: Tensor, bias: Tensor, activation: Activation) -> Linear:
    activate = ACTIVATIONS[activation]
    return lambda x, y: _plus(activate(F.linear(x, weight, bias)), y)


def _plus(product: Tensor, y: Tensor | None) -> Tensor:
    return product if y is None else product.add_(y)
