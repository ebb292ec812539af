"""The spread of a measure over several seeds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import mean, median, stdev


@dataclass(frozen=True)
class Spread:
    """Median, mean and sample standard deviation of `number` values."""

    median: float
    mean: float
    spread: float
    number: int

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        """Summarise values; the spread of a single one is 0.

        >>> Spread.of([1.0, 2.0, 6.0])
        Spread(median=2.0, mean=3.0, spread=2.64..., number=3)
        """
        spread = stdev(values) if len(values) > 1 else 0.0
        return cls(median(values), mean(values), spread, len(values))
