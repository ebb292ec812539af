"""Eight-bit weights and activations, for inference on a CPU.

Weights are symmetric with one scale a row. Activations are unsigned with a fixed scale and zero
point for each of the four products of each step, found by calibration: shared weights see other
numbers at every depth. A few channels of a trained network's layer norms stand far from zero in
all tokens; so hidden states are rounded less their mean, whose product goes into the bias.
torch's (oneDNN's) kernels have no public name; they are named here alone.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple, TypeAlias

import torch
from jaxtyping import Float, UInt8
from torch import Tensor, nn
from torch.nn import functional as F

from litebert.config.schema import Activation
from litebert.fast.int8_layers import Int8Linear
from litebert.fast.packed import FUSED_ACTIVATIONS, bf16_pays
from litebert.nn.attention import attend
from litebert.nn.block import (
    ACTIVATIONS,
    AskingHidden,
    AttentionBlock,
    FeedForwardBlock,
    Hidden,
    Prepared,
    asking,
    cast_norm,
    per_token,
)
from litebert.nn.layout import Layout
from litebert.nn.model import Albert
from litebert.nn.rows import filled

_OPS = torch.ops.onednn.qlinear_pointwise
_ADDED = ("add", 1.0, "none", list[float](), "")
SITES = ("attention input", "attention result", "feed-forward input", "intermediate")
"""The products of a step, by what they multiply; calibration gives each a range a step."""

NUM_SHIFTED = 2
"""Of these, the two inputs of blocks are shifted."""
AtStep: TypeAlias = Callable[[int], Prepared]


class Calibration(NamedTuple):
    """What each product of each step is given and adds.

    `shifts` are the means of the inputs of blocks. `biases` lie end to end, a product after the
    other. They have in them what a mean contributes: all of it where it is taken off the input,
    else what rounding the weights changes of it; and the mean that the residual lacks.
    """

    ranges: Float[Tensor, "steps sites 2"]
    shifts: Float[Tensor, "steps shifted hidden"]
    biases: Float[Tensor, "steps outputs"]

    def grids(self, step: int) -> list[Grid]:
        """Return the grids of a step's products."""
        return [Grid.over(*ends) for ends in self.ranges[step].tolist()]

    def bias_of(self, step: int) -> tuple[Tensor, ...]:
        """Return the biases of a step's products."""
        hidden, bias = self.shifts.shape[-1], self.biases[step]
        return torch.split(bias, [3 * hidden, hidden, len(bias) - 5 * hidden, hidden])


def calibration_of(albert: Albert) -> Calibration | None:
    """Return the calibration of an eight-bit network; None in float."""
    buffers = dict(albert.named_buffers(recurse=False))
    if not buffers:
        return None
    return Calibration(*(buffers[name] for name in Calibration._fields))


def is_int8(albert: Albert) -> bool:
    """Tell whether a network is stored in eight bits."""
    return calibration_of(albert) is not None


class Grid(NamedTuple):
    """The 256 numbers that an activation is rounded to: scale * (byte - zero)."""

    scale: float
    zero: int

    @classmethod
    def over(cls, low: float, high: float) -> Grid:
        """Cover a range, and zero.

        >>> Grid.over(-1.0, 1.55)
        Grid(scale=0.01, zero=100)
        """
        low, high = min(low, 0.0), max(high, 0.0)
        scale = max((high - low) / 255, 1e-12)
        return cls(round(scale, 12), round(-low / scale))


def int8_attention(block: AttentionBlock, calibration: Calibration) -> AtStep:
    """Return what makes a step's function of the block; its result is less the step's second mean.

    For the feed-forward block of the same step alone.
    """
    fused, output = side_by_side(block.query, block.key, block.value), side_by_side(block.output)
    inner = torch.bfloat16 if bf16_pays() else torch.float32

    def at(step: int) -> Prepared:
        given, result, _, _ = calibration.grids(step)
        fused_bias, output_bias, _, _ = calibration.bias_of(step)
        mean, mean_after = calibration.shifts[step]
        norm = cast_norm(block.norm, torch.float32, less=mean_after)

        def apply(hidden: Hidden, layout: Layout) -> AskingHidden:
            projected = fused(quantize(hidden - mean, given), given, fused_bias, dtype=inner)
            query, key, value = per_token(projected, layout, block.heads)
            mixed = quantize(
                filled(attend(query, key, value, layout, 0.0).flatten(1).float()), result
            )
            return norm(output(mixed, result, output_bias, add=asking(hidden, layout)))

        return apply

    return at


def int8_feed_forward(block: FeedForwardBlock, calibration: Calibration) -> AtStep:
    """Return what makes a step's function of the block, of states less the step's second mean."""
    intermediate, output = side_by_side(block.intermediate), side_by_side(block.output)
    norm = cast_norm(block.norm, torch.float32)

    def at(step: int) -> Prepared:
        _, _, given, wide = calibration.grids(step)
        _, _, bias, output_bias = calibration.bias_of(step)

        def apply(hidden: Hidden, _: Layout) -> Hidden:
            rounded = quantize(hidden, given)
            activated = intermediate(rounded, given, bias, activation=block.hidden_act, onto=wide)
            return norm(output(activated, wide, output_bias, add=hidden))

        return apply

    return at


def quantize(x: Float[Tensor, "rows columns"], grid: Grid) -> UInt8[Tensor, "rows columns"]:
    """Round to a grid, as bytes."""
    if not _rounds_at_once():
        return torch.add(grid.zero + 0.5, x, alpha=1 / grid.scale).clamp_(0, 255).to(torch.uint8)
    quantized = torch.quantize_per_tensor(x, grid.scale, grid.zero, torch.quint8)
    # Its bytes as they lie: int_repr() would copy them.
    return torch.empty(0, dtype=torch.uint8).set_(
        quantized.untyped_storage(), 0, quantized.shape, quantized.stride()
    )


class Product:
    """x W^T + b of bytes and eight-bit weights, with what follows in the same kernel."""

    def __init__(self, quantized: Tensor, scale: Tensor) -> None:
        self._scale = scale
        self._zeros = torch.zeros(len(scale), dtype=torch.int32)
        self._blocked = torch.ops.onednn.qlinear_prepack(quantized, None)

    def __call__(
        self,
        x: Tensor,
        grid: Grid,
        bias: Tensor,
        *,
        activation: Activation = "linear",
        add: Tensor | None = None,
        onto: Grid | None = None,
        dtype: torch.dtype = torch.float32,
    ) -> Tensor:
        """Return the product, activated or added to, in `dtype` or as bytes `onto` a grid."""
        given = (x, grid.scale, grid.zero, self._blocked, self._scale, self._zeros)
        result, kind = (onto, torch.uint8) if onto is not None else (Grid(1.0, 0), dtype)
        total: Tensor
        if add is None:
            total = _OPS.default(*given, bias, *result, kind, *_after(activation))
        else:
            total = _OPS.binary(*given, add, bias, *result, kind, 1.0, 0, *_ADDED)
        return total


class PlainProduct:
    """The same from public operators, in float32 (slow)."""

    def __init__(self, quantized: Tensor, scale: Tensor) -> None:
        self._quantized, self._scale = quantized, scale

    def __call__(
        self,
        x: Tensor,
        grid: Grid,
        bias: Tensor,
        *,
        activation: Activation = "linear",
        add: Tensor | None = None,
        onto: Grid | None = None,
        dtype: torch.dtype = torch.float32,
    ) -> Tensor:
        """Return the product, activated or added to, in `dtype` or as bytes `onto` a grid."""
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
    """Return GELU's exact form for its tanh form, which takes the kernel longer.

    They differ by less than 5e-4, a small part of a step of any grid that the result goes onto.
    """
    return "gelu" if activation in ("gelu_new", "gelu_pytorch_tanh") else activation


def _after(activation: Activation) -> tuple[str, list[float], str]:
    name, variant = FUSED_ACTIVATIONS[_cheaper(activation)]
    return name, [], variant


@lru_cache
def _rounds_at_once() -> bool:
    """Tell whether torch still has its quantized tensors, which warn once that they will go."""
    with warnings.catch_warnings(action="ignore"):
        try:
            torch.quantize_per_tensor(torch.zeros(1), 1.0, 0, torch.quint8)
        except (RuntimeError, AttributeError):
            return False
    return True


@lru_cache
def kernels_work() -> bool:
    """Tell whether this CPU's eight-bit products are there and right, at the ends of the range.

    Old ones saturate on sums of two products.
    """
    draws = torch.Generator().manual_seed(0)
    x = (torch.rand(32, 256, generator=draws) < 0.5).to(torch.uint8) * 255
    weight = torch.where(torch.rand(64, 256, generator=draws) < 0.5, 127, -127).to(torch.int8)
    grid, scale, bias = Grid(0.01, 128), torch.full((64,), 0.01), torch.zeros(64)
    try:
        product, plain = Product(weight, scale), PlainProduct(weight, scale)
        return torch.allclose(product(x, grid, bias), plain(x, grid, bias), rtol=1e-3, atol=1e-2)
    except (RuntimeError, AttributeError, NotImplementedError):
        return False
