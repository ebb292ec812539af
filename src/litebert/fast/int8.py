"""Eight-bit weights and activations, for inference on a CPU.

Weights are symmetric with one scale per row. Activations are unsigned, with a fixed scale and zero
point for each of the four products of each step, found by calibration: at each depth, shared
weights get inputs of another range. In a trained network, a few channels after a layer norm are far
from zero for all tokens; so hidden states are centred before rounding, and the product of their
mean is added to the bias.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from litebert.fast.int8_product import ByteGrid, quantize, side_by_side
from litebert.fast.packed import attend_of, bf16_pays
from litebert.fast.precision import cast_norm
from litebert.fast.rows import on_batch
from litebert.nn import Albert
from litebert.nn.block import AttentionBlock, AttentionPieces, FeedForwardBlock, Half, feed_forward_block

SITES = ("attention input", "attention result", "feed-forward input", "intermediate")
"""The inputs of the four products of a step; calibration finds a range for each, in each step."""

NUM_SHIFTED = 2
"""The inputs that are shifted by their mean: those of the two blocks."""
AtStep: TypeAlias = Callable[[int], Half]


class Int8Calibration(NamedTuple):
    """The input ranges, shifts and biases of each step's products.

    `shifts` are the means of the inputs of both blocks. `biases` are those of all products, end to
    end. They include the product of the mean if the input is shifted by it, otherwise a correction
    for rounding the weights; and the mean that the residual lacks.
    """

    ranges: Float[Tensor, "steps sites 2"]
    shifts: Float[Tensor, "steps shifted hidden"]
    biases: Float[Tensor, "steps outputs"]

    def grids(self, step: int) -> list[ByteGrid]:
        """Return the grids of a step's products."""
        return [ByteGrid.over(*ends) for ends in self.ranges[step].tolist()]

    def bias_of(self, step: int) -> tuple[Tensor, ...]:
        """Return the biases of a step's products."""
        hidden, bias = self.shifts.shape[-1], self.biases[step]
        return torch.split(bias, [3 * hidden, hidden, len(bias) - 5 * hidden, hidden])


def calibration_of(albert: Albert) -> Int8Calibration | None:
    """Return the calibration of an eight-bit network; None in float."""
    buffers = dict(albert.named_buffers(recurse=False))
    if not buffers:
        return None
    return Int8Calibration(*(buffers[name] for name in Int8Calibration._fields))


def is_int8(albert: Albert) -> bool:
    """Tell whether a network is stored in eight bits."""
    return calibration_of(albert) is not None


def int8_attention(block: AttentionBlock, calibration: Int8Calibration) -> AtStep:
    """Return a function that gives the block for a step.

    Its output is shifted by the step's second mean, as `int8_feed_forward` expects it.
    """
    fused, output = side_by_side(block.query, block.key, block.value), side_by_side(block.output)
    inner = torch.bfloat16 if bf16_pays() else torch.float32
    attend, norm = attend_of(block), block.norm

    def at(step: int) -> Half:
        inputs, result, _, _ = calibration.grids(step)
        fused_bias, output_bias, _, _ = calibration.bias_of(step)
        mean, mean_after = calibration.shifts[step]
        bias = norm.bias - mean_after
        pieces = AttentionPieces(
            project=lambda x, _: fused(quantize(x - mean, inputs), inputs, fused_bias, dtype=inner),
            output=lambda x, y: output(quantize(x.float(), result), result, output_bias, add=y),
            norm=lambda x: F.layer_norm(x, norm.normalized_shape, norm.weight, bias, norm.eps),
            heads=block.heads,
        )
        return on_batch(pieces, attend)

    return at


def int8_feed_forward(block: FeedForwardBlock, calibration: Int8Calibration) -> AtStep:
    """Return a function that gives the block for a step, on the output of `int8_attention`."""
    intermediate, output = side_by_side(block.intermediate), side_by_side(block.output)
    norm, act = cast_norm(block.norm, torch.float32), block.hidden_act

    def at(step: int) -> Half:
        _, _, inputs, wide = calibration.grids(step)
        _, _, bias, output_bias = calibration.bias_of(step)

        def widened(x: Tensor, _: Tensor | None) -> Tensor:
            return intermediate(quantize(x, inputs), inputs, bias, activation=act, onto=wide)

        def added(x: Tensor, residual: Tensor | None) -> Tensor:
            return output(x, wide, output_bias, add=residual)

        return lambda x, _: feed_forward_block(x, widened, added, norm)

    return at
