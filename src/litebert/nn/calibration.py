"""Ranges of activations, found on texts like those that the model will read."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn

from litebert.config.schema import Activation
from litebert.nn.batch import Batch
from litebert.nn.block import AttentionBlock, FeedForwardBlock
from litebert.nn.int8 import SITES, Grid, Ranges
from litebert.nn.int8_layers import Int8Embedding, Int8Linear
from litebert.nn.model import Albert
from litebert.nn.packed import (
    Linear,
    MakeLinear,
    packed_attention,
    packed_feed_forward,
    packed_linear,
)

_NUM_DRAWN = 4_096
"""Numbers kept of each batch for each product of each step."""
_SHRINKS = [1.0 - 0.05 * number for number in range(13)]
_SMALLEST = 16_384
"""Weights from which a layer outside the blocks is worth eight bits."""
_BLOCKS = (AttentionBlock, FeedForwardBlock)


class Watch:
    """What a product was given: its extremes, and a sample of the rest."""

    def __init__(self) -> None:
        self.low, self.high, self._parts = 0.0, 0.0, list[Tensor]()
        self._draws = torch.Generator().manual_seed(0)

    def see(self, x: Tensor) -> None:
        """Take note of an input."""
        self.low, self.high = min(self.low, float(x.min())), max(self.high, float(x.max()))
        values = x.float().flatten()
        drawn = torch.randint(len(values), (_NUM_DRAWN,), generator=self._draws)
        self._parts.append(values[drawn])

    def range(self) -> tuple[float, float]:
        """Return the range, of those between zero and the extremes, that rounds with least error.

        Cutting a rare extreme off costs less than a coarser grid for everything else.
        """
        sample = torch.cat(self._parts)
        ranges = [(self.low * s, self.high * s) for s in _SHRINKS]
        errors = [_error(sample, Grid.over(*each)) for each in ranges]
        return ranges[errors.index(min(errors))]


def calibrated_ranges(albert: Albert, batches: Iterable[Batch]) -> Ranges:
    """Return the range of what each product of each step multiplies, (steps, sites, 2)."""
    watches = [[Watch() for _ in SITES] for _ in albert.plan]
    attention = list(albert.blocks(AttentionBlock))
    feed_forward = list(albert.blocks(FeedForwardBlock))
    albert.use(
        [
            (
                packed_attention(attention[step.attention], torch.float32, _watched(seen[:2])),
                packed_feed_forward(
                    feed_forward[step.feed_forward], torch.float32, _watched(seen[2:])
                ),
            )
            for step, seen in zip(albert.plan, watches, strict=True)
        ]
    )
    with torch.no_grad():
        for batch in batches:
            albert(batch)
    albert.use(None)
    return torch.tensor([[watch.range() for watch in seen] for seen in watches])


def _watched(watches: list[Watch]) -> MakeLinear:
    """Return what makes linear layers whose inputs are watched, one watch a layer."""
    remaining = iter(watches)

    def make(weight: Tensor, bias: Tensor, dtype: torch.dtype, activation: Activation) -> Linear:
        watch, linear = next(remaining), packed_linear(weight, bias, dtype, activation)

        def seen(x: Tensor) -> Tensor:
            watch.see(x)
            return linear(x)

        return seen

    return make


def _error(sample: Tensor, grid: Grid) -> float:
    rounded = torch.fake_quantize_per_tensor_affine(sample, grid.scale, grid.zero, 0, 255)
    return float((rounded - sample).square().mean())


def to_int8(network: nn.Module, ranges: Ranges) -> None:
    """Store the word table, the blocks and other large layers in eight bits, in place."""
    for module in list(network.modules()):
        for name, child in list(module.named_children()):
            if not isinstance(child, nn.Linear):
                continue
            if isinstance(module, _BLOCKS) or child.weight.numel() >= _SMALLEST:
                setattr(module, name, Int8Linear(child))
        if isinstance(module, Albert):
            words = module.embedding.word
            assert isinstance(words, nn.Embedding), "this network is in eight bits already"
            module.embedding.word = Int8Embedding(words)
            module.ranges = ranges
