"""Calibration: are 80 % of the answers with a confidence of 80 % right?"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from litebert.metrics.some import require_some

NUM_BINS = 15
"""The number of bins in Guo et al. 2017, "On Calibration of Modern Neural Networks", section 5."""


@dataclass(frozen=True)
class ReliabilityBin:
    """The answers whose confidence is above `low` and at most `high`."""

    low: float
    high: float
    count: int
    confidence: float
    accuracy: float


@dataclass(frozen=True)
class Calibration:
    """The expected calibration error (0 is perfect), and the bins that have answers."""

    error: float
    bins: tuple[ReliabilityBin, ...]


def calibration(labels: NDArray[np.int64], probabilities: NDArray[np.floating]) -> Calibration:
    """Compare the confidence of answers with how often they are right, in bins of equal width.

    `labels` has shape (n,), `probabilities` (n, labels). The error is the mean distance between
    confidence and accuracy, weighted by the number of answers in each bin.

    Raises:
        LitebertError: LB-430, there are no examples.

    >>> calibration(np.array([0, 1]), np.array([[0.9, 0.1], [0.9, 0.1]])).error
    0.4
    """
    require_some(len(labels))
    confidence = probabilities.max(axis=1).astype(np.float64)
    is_right = probabilities.argmax(axis=1) == labels
    edges = np.linspace(0, 1, NUM_BINS + 1)
    places = np.searchsorted(edges[1:-1], confidence)
    bins = []
    for place in np.unique(places):
        chosen = places == place
        bins.append(
            ReliabilityBin(
                low=float(edges[place]),
                high=float(edges[place + 1]),
                count=int(chosen.sum()),
                confidence=float(confidence[chosen].mean()),
                accuracy=float(is_right[chosen].mean()),
            )
        )
    error = sum(part.count * abs(part.confidence - part.accuracy) for part in bins)
    return Calibration(error / len(labels), tuple(bins))
