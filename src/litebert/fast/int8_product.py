"""Eight-bit products on a CPU, fused with the operation that follows.

torch's (oneDNN's) kernels have no public name; only this file names them. They are tried once per
process, and replaced by public operators where they are missing or wrong.
"""

from __future__ import annotations

import warnings
from functools import lru_cache
from typing import NamedTuple

import torch
from jaxtyping import Float, UInt8
from torch import Tensor, nn
from torch.nn import functional as F

from litebert.config.schema import Activation
from litebert.fast.int8_layers import Int8Linear
from litebert.fast.packed import FUSED_ACTIVATIONS
from litebert.nn.block import ACTIVATIONS

_OPS = torch.ops.onednn.qlinear_pointwise
_ADDED = ("add", 1.0, "none", list[float](), "")


class ByteGrid(NamedTuple):
    """The 256 numbers that an activation is rounded to: scale * (byte - zero)."""

    scale: float
    zero: int

    @classmethod
    def over(cls, low: float, high: float) -> ByteGrid:
        """Return the grid that covers a range and zero.

        >>> ByteGrid.over(-1.0, 1.55)
        ByteGrid(scale=0.01, zero=100)
        """
        low, high = min(low, 0.0), max(high, 0.0)
        scale = max((high - low) / 255, 1e-12)
        return cls(round(scale, 12), round(-low / scale))


def quantize(x: Float[Tensor, "rows columns"], grid: ByteGrid) -> UInt8[Tensor, "rows columns"]:
    """Round to a grid; return bytes."""
    if not _rounds_at_once():
        return torch.add(grid.zero + 0.5, x, alpha=1 / grid.scale).clamp_(0, 255).to(torch.uint8)
    quantized = torch.quantize_per_tensor(x, grid.scale, grid.zero, torch.quint8)
    # A view of its bytes: int_repr() would copy them.
    return torch.empty(0, dtype=torch.uint8).set_(quantized.untyped_storage(), 0, quantized.shape, quantized.stride())


class Product:
    """x W^T + b of bytes and eight-bit weights, fused with the operation that follows."""

    def __init__(self, quantized: Tensor, scale: Tensor) -> None:
        self._scale = scale
        self._zeros = torch.zeros(len(scale), dtype=torch.int32)
        self._blocked = torch.ops.onednn.qlinear_prepack(quantized, None)

    def __call__(
        self,
        x: Tensor,
        grid: ByteGrid,
        bias: Tensor,
        *,
        activation: Activation = "linear",
        add: Tensor | None = None,
        onto: ByteGrid | None = None,
        dtype: torch.dtype = torch.float32,
    ) -> Tensor:
        """Return the product, activated or added to, in `dtype` or, with `onto`, as bytes."""
        given = (x, grid.scale, grid.zero, self._blocked, self._scale, self._zeros)
        result, kind = (onto, torch.uint8) if onto is not None else (ByteGrid(1.0, 0), dtype)
        total: Tensor
        if add is None:
            total = _OPS.default(*given, bias, *result, kind, *_after(activation))
        else:
            total = _OPS.binary(*given, add, bias, *result, kind, 1.0, 0, *_ADDED)
        return total


class PlainProduct:
    """The same with public operators, in float32 (slow)."""

    def __init__(self, quantized: Tensor, scale: Tensor) -> None:
        self._quantized, self._scale = quantized, scale

    def __call__(
        self,
        x: Tensor,
        grid: ByteGrid,
        bias: Tensor,
        *,
        activation: Activation = "linear",
        add: Tensor | None = None,
        onto: ByteGrid | None = None,
        dtype: torch.dtype = torch.float32,
    ) -> Tensor:
        """Return the product, activated or added to, in `dtype` or, with `onto`, as bytes."""
        weight = self._quantized * self._scale[:, None]
        wide = F.linear((x.float() - grid.zero) * grid.scale, weight, bias)
        wide = ACTIVATIONS[_cheaper(activation)](wide)
        total = wide if add is None else wide + add
        return quantize(total, onto) if onto is not None else total.to(dtype)


def side_by_side(*linears: nn.Module) -> Product | PlainProduct:
    """Join the outputs of several eight-bit layers in one product."""
    layers = [linear for linear in linears if isinstance(linear, Int8Linear)]
    quantized = torch.cat([layer.quantized for layer in layers])
    scale = torch.cat([layer.scale for layer in layers]).float()
    return (Product if kernels_work() else PlainProduct)(quantized, scale)


def _cheaper(activation: Activation) -> Activation:
    """Replace GELU's tanh form by the exact one, which the kernel computes faster.

    They differ by less than 5e-4, a fraction of a step of any grid for the result.
    """
    return "gelu" if activation in ("gelu_new", "gelu_pytorch_tanh") else activation


def _after(activation: Activation) -> tuple[str, list[float], str]:
    name, variant = FUSED_ACTIVATIONS[_cheaper(activation)]
    return name, [], variant


@lru_cache
def _rounds_at_once() -> bool:
    """Tell whether torch still has quantized tensors, which are deprecated with a warning."""
    with warnings.catch_warnings(action="ignore"):
        try:
            torch.quantize_per_tensor(torch.zeros(1), 1.0, 0, torch.quint8)
        except (RuntimeError, AttributeError):
            return False
    return True


@lru_cache
def kernels_work() -> bool:
    """Tell whether this CPU's eight-bit products exist and are right at the ends of the range.

    Products on old CPUs saturate on sums of two.
    """
    draws = torch.Generator().manual_seed(0)
    x = (torch.rand(32, 256, generator=draws) < 0.5).to(torch.uint8) * 255
    weight = torch.where(torch.rand(64, 256, generator=draws) < 0.5, 127, -127).to(torch.int8)
    grid, scale, bias = ByteGrid(0.01, 128), torch.full((64,), 0.01), torch.zeros(64)
    try:
        product, plain = Product(weight, scale), PlainProduct(weight, scale)
        return torch.allclose(product(x, grid, bias), plain(x, grid, bias), rtol=1e-3, atol=1e-2)
    except (RuntimeError, AttributeError, NotImplementedError):
        return False
