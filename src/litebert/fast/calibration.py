"""Calibration of eight-bit networks: find the ranges, means and biases of each step's
products, on texts like those that the model will read.

The network computes these texts in float, with an observer of the inputs of each
product. Only what the observers saw is kept.
"""

from collections.abc import Iterable

import torch
from jaxtyping import Float
from torch import Tensor, nn

from litebert.config import Activation
from litebert.fast import steps
from litebert.fast.attention import Layout
from litebert.fast.int8 import (
    NUM_PRODUCTS,
    ByteGrid,
    Int8Calibration,
    Int8Linear,
    PerProduct,
)
from litebert.fast.linear import Linear, packed_linear
from litebert.nn import Albert, AttentionBlock, Batch, FeedForwardBlock

_NUM_DRAWN = 4_096  # sampled numbers per batch, for each product of each step
# The shares of the range that are tried: 1, 0.95, ... 0.4.
_SHRINKS = [1.0 - 0.05 * number for number in range(13)]


@torch.no_grad()
def calibrate(albert: Albert, batches: Iterable[Batch]) -> Int8Calibration:
    """Return the ranges, shifts and biases of each step's products, observed on
    batches.
    """
    observers_by_step = _observe(albert, batches)
    ranges = list[list[tuple[float, float]]]()
    shifts = list[Tensor]()
    biases = list[Tensor]()
    for blocks, observers in zip(albert.plan, observers_by_step, strict=True):
        attention = albert.attention[blocks.attention]
        feed_forward = albert.feed_forward[blocks.feed_forward]
        # the mean of each channel, over all tokens
        means = PerProduct(*(observer.mean() for observer in observers))
        # Only the inputs of the two blocks are shifted: in trained networks, they have a
        # few channels that are far from zero.
        centers: PerProduct[Tensor | float]
        centers = PerProduct(means.project, 0.0, means.widen, 0.0)
        pairs = zip(observers, centers, strict=True)
        ranges.append([observer.range(center) for observer, center in pairs])
        shifts.append(torch.stack([means.project, means.widen]))  # (2, hidden)
        biases.append(_biases(attention, feed_forward, means))
    return Int8Calibration(
        torch.tensor(ranges), torch.stack(shifts), torch.stack(biases)
    )


def _biases(
    attention: AttentionBlock, feed_forward: FeedForwardBlock, means: PerProduct[Tensor]
) -> Float[Tensor, " outputs"]:
    """Return the biases of a step's products, end to end, (5 hidden + intermediate,).

    An input that is shifted by its mean m gives W (x - m), so that its bias becomes
    W m + b, computed with the exact weights.
    """
    # Measured with the centering, on one sentence and the trunk of PL-BERT: the last
    # states differ by 7.3 % from float32, and by 12.1 % without both
    # (benchmarks/RESULTS.md).
    narrow = _correct_bias(feed_forward.output, means.narrow)
    parts = [
        attention.query(means.project),
        attention.key(means.project),
        attention.value(means.project),
        _correct_bias(attention.output, means.mix),
        feed_forward.intermediate(means.widen),
        # The residual of the feed-forward block is shifted, and lacks this mean.
        narrow + means.widen,
    ]
    return torch.cat(parts)


def _correct_bias(linear: nn.Linear, mean: Tensor) -> Tensor:
    """Return the bias, corrected for the effect of rounding the weights on the mean
    product.
    """
    lost: Tensor = linear(mean) - Int8Linear(linear)(mean)
    return linear.bias + lost


# ---- what the products read ----------------------------------------------------------


def _observe(albert: Albert, batches: Iterable[Batch]) -> list[PerProduct["Observer"]]:
    """Return the observers of each step after all batches; the network itself is never
    modified.
    """
    recorder = Recorder()
    observed_steps = list[steps.Step]()
    # A shared block is made for each step anew, so that every step has its observers.
    for blocks in albert.plan:
        observed_steps += steps.make_steps(albert, recorder.make, plan=[blocks])
    for batch in batches:
        recorder.num_tokens = len(batch.ids)
        layout = Layout(batch)
        hidden = albert.embedding(batch).to(albert.dtype)
        for step in observed_steps:
            hidden = step(hidden, layout)
    observers_by_step = list[PerProduct[Observer]]()
    for start in range(0, len(recorder.observers), NUM_PRODUCTS):
        observers = recorder.observers[start : start + NUM_PRODUCTS]
        observers_by_step.append(PerProduct(*observers))
    return observers_by_step


class Recorder:
    """Makes linear layers, each with an observer of its inputs."""

    def __init__(self) -> None:
        # A step makes its products in the order of `PerProduct`.
        self.observers = list[Observer]()
        self.num_tokens = 0  # of the batch that is computed

    def make(
        self,
        weight: Tensor,
        bias: Tensor,
        dtype: torch.dtype,
        activation: Activation,
        _dropout_prob: float,
    ) -> Linear:
        """Return the layer of `packed_linear`, observed."""
        observer = Observer()
        self.observers.append(observer)
        linear = packed_linear(weight, bias, dtype, activation)

        def apply(x: Tensor, residual: Tensor | None) -> Tensor:
            observer.see(x[: self.num_tokens])  # the rows after these are padding
            return linear(x, residual)

        return apply


class Observer:
    """Observes the inputs of a product: extremes and sum of each channel, the number of
    rows, and a sample of them.
    """

    def __init__(self) -> None:
        # (channels,) after the first input
        self._low = torch.tensor(torch.inf)
        self._high = torch.tensor(-torch.inf)
        self._total = torch.zeros(())
        self._num_rows = 0
        self._samples = list[Tensor]()  # (sampled rows, channels) of each input
        self._draws = torch.Generator().manual_seed(0)

    def see(self, x: Float[Tensor, "rows channels"]) -> None:
        """Observe an input."""
        self._low = self._low.minimum(x.amin(0))
        self._high = self._high.maximum(x.amax(0))
        self._total = self._total + x.sum(0)
        self._num_rows += len(x)
        # As many numbers of a wide input as of a narrow one. Rows may be drawn twice.
        num_drawn = max(1, _NUM_DRAWN // x.shape[1])
        rows = torch.randint(len(x), (num_drawn,), generator=self._draws)
        self._samples.append(x[rows])

    def mean(self) -> Float[Tensor, " channels"]:
        """Return the mean of each channel."""
        return self._total / self._num_rows

    def range(self, shift: Tensor | float) -> tuple[float, float]:
        """Return the range with the least rounding error, among shrunken versions of
        the range between the extremes.

        Clipping a rare extreme costs less than a coarser grid for everything else.
        """
        # Zero is in every range, because a grid has a byte for it.
        low = min(float((self._low - shift).min()), 0.0)
        high = max(float((self._high - shift).max()), 0.0)
        sample = torch.cat(self._samples) - shift  # (sampled rows, channels)
        errors = [_rounding_error(sample, low * s, high * s) for s in _SHRINKS]
        best = _SHRINKS[errors.index(min(errors))]
        return low * best, high * best


def _rounding_error(x: Tensor, low: float, high: float) -> float:
    """Return the mean square of what rounding to the grid of a range changes."""
    grid = ByteGrid.over(low, high)
    rounded = torch.fake_quantize_per_tensor_affine(x, grid.scale, grid.zero, 0, 255)
    return float((rounded - x).square().mean())
