"""Calibrate the ranges of activations on texts like those that the model will read."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn

from litebert.config import AlbertConfig
from litebert.config.schema import Activation
from litebert.fast.int8 import NUM_SHIFTED, SITES, Int8Calibration
from litebert.fast.int8_layers import Int8Embedding, Int8Linear
from litebert.fast.int8_product import ByteGrid
from litebert.fast.packed import MakeLinear, packed_attention, packed_feed_forward, packed_linear
from litebert.fast.steps import blocks
from litebert.nn.batch import Batch
from litebert.nn.block import AttentionBlock, FeedForwardBlock, Linear
from litebert.nn.model import Albert

_NUM_DRAWN = 4_096
"""Sampled numbers per batch, for each product of each step."""
_SHRINKS = [1.0 - 0.05 * number for number in range(13)]
_SMALLEST = 16_384
"""A layer outside the blocks is stored in eight bits from this many weights on."""
_BLOCKS = (AttentionBlock, FeedForwardBlock)


class Observer:
    """Observes the inputs of a product: extremes and mean of each channel, and some rows."""

    def __init__(self) -> None:
        self._low, self._high = torch.tensor(torch.inf), torch.tensor(-torch.inf)
        self._sum, self._num_rows, self._rows = torch.zeros(()), 0, list[Tensor]()
        self._draws = torch.Generator().manual_seed(0)

    def see(self, x: Tensor) -> None:
        """Observe an input (rows, channels)."""
        x = x.float()
        self._low, self._high = self._low.minimum(x.amin(0)), self._high.maximum(x.amax(0))
        self._sum, self._num_rows = self._sum + x.sum(0), self._num_rows + len(x)
        size = (max(1, _NUM_DRAWN // x.shape[1]),)
        self._rows.append(x[torch.randint(len(x), size, generator=self._draws)])

    def mean(self) -> Tensor:
        """Return the mean of each channel."""
        return self._sum / self._num_rows

    def range(self, shift: Tensor | float) -> tuple[float, float]:
        """Return the range with the least rounding error, among shrunken ranges of the extremes.

        Clipping a rare extreme costs less than a coarser grid for everything else.
        """
        low, high = float((self._low - shift).min()), float((self._high - shift).max())
        sample = torch.cat(self._rows) - shift
        ranges = [(min(low, 0.0) * s, max(high, 0.0) * s) for s in _SHRINKS]
        errors = [_error(sample, ByteGrid.over(*each)) for each in ranges]
        return ranges[errors.index(min(errors))]


def calibrate(albert: Albert, batches: Iterable[Batch]) -> Int8Calibration:
    """Return the ranges, shifts and biases of each step's products, observed on batches."""
    observers = [[Observer() for _ in SITES] for _ in albert.plan]
    attention = list(blocks(albert, AttentionBlock))
    feed_forward = list(blocks(albert, FeedForwardBlock))
    steps = [
        (
            packed_attention(attention[step.attention], torch.float32, _observed(seen[:2])),
            packed_feed_forward(feed_forward[step.feed_forward], torch.float32, _observed(seen[2:])),
        )
        for step, seen in zip(albert.plan, observers, strict=True)
    ]
    before, albert.make_steps = albert.make_steps, lambda _: steps
    with torch.no_grad():
        for batch in batches:
            albert(batch)
    albert.make_steps = before
    means = [[observer.mean() for observer in seen] for seen in observers]
    ranges = [
        [seen[0].range(first), seen[1].range(0.0), seen[2].range(second), seen[3].range(0.0)]
        for seen, (first, _, second, _) in zip(observers, means, strict=True)
    ]
    return Int8Calibration(
        ranges=torch.tensor(ranges),
        shifts=torch.stack([torch.stack([first, second]) for first, _, second, _ in means]),
        biases=torch.stack(
            [
                _biases(attention[step.attention], feed_forward[step.feed_forward], *found)
                for step, found in zip(albert.plan, means, strict=True)
            ]
        ),
    )


@torch.no_grad()
def _biases(
    attention: AttentionBlock,
    feed_forward: FeedForwardBlock,
    first: Tensor,
    mixed: Tensor,
    second: Tensor,
    wide: Tensor,
) -> Tensor:
    """Return the biases of a step's products, end to end, given the means of their inputs."""
    projections = (attention.query, attention.key, attention.value)
    return torch.cat(
        [
            *(projection(first) for projection in projections),
            _corrected(attention.output, mixed),
            feed_forward.intermediate(second),
            _corrected(feed_forward.output, wide) + second,
        ]
    )


def _corrected(linear: nn.Linear, mean: Tensor) -> Tensor:
    """Return the bias, corrected for the effect of rounding the weights on the mean product."""
    lost: Tensor = linear(mean) - Int8Linear(linear)(mean)
    return linear.bias + lost


def _observed(observers: list[Observer]) -> MakeLinear:
    """Return a factory of linear layers whose inputs are observed, one observer per layer."""
    remaining = iter(observers)

    def make(weight: Tensor, bias: Tensor, dtype: torch.dtype, activation: Activation) -> Linear:
        observer, linear = next(remaining), packed_linear(weight, bias, dtype, activation)

        def seen(x: Tensor, y: Tensor | None) -> Tensor:
            observer.see(x)
            return linear(x, y)

        return seen

    return make


def _error(sample: Tensor, grid: ByteGrid) -> float:
    rounded = torch.fake_quantize_per_tensor_affine(sample, grid.scale, grid.zero, 0, 255)
    return float((rounded - sample).square().mean())


def to_int8(network: nn.Module, calibration: Int8Calibration) -> None:
    """Store the word table, the blocks and other large layers in eight bits, in place."""
    for module in list(network.modules()):
        for name, child in list(module.named_children()):
            if not isinstance(child, nn.Linear):
                continue
            if isinstance(module, _BLOCKS) or child.weight.numel() >= _SMALLEST:
                setattr(module, name, Int8Linear(child))
        if isinstance(module, Albert):
            tables: nn.Module = module.embedding
            assert isinstance(tables.word, nn.Embedding), "this network is in eight bits already"
            tables.word = Int8Embedding(tables.word)
            for field, tensor in calibration._asdict().items():
                module.register_buffer(field, tensor)


def without_calibration(config: AlbertConfig) -> Int8Calibration:
    """Return a calibration with shapes but without numbers, to be filled from a file."""
    steps, size = config.num_steps, config.hidden_size
    with torch.device("meta"):
        return Int8Calibration(
            ranges=torch.empty(steps, len(SITES), 2),
            shifts=torch.empty(steps, NUM_SHIFTED, size),
            biases=torch.empty(steps, 5 * size + config.intermediate_size),
        )
