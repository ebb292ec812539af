"""Whether our rows are in the paper's order, pair by pair, as far as the noise allows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import fmean, variance

CLEAR = 2.0
"""A difference counts if it is at least this many standard errors."""


@dataclass(frozen=True)
class Ordering:
    """How many pairs of rows are in the paper's order, in the reverse order, or undecided."""

    same: int
    reversed: int
    unclear: int

    @property
    def verdict(self) -> str:
        """Say in a few words whether the paper's order is reproduced."""
        pairs = self.same + self.reversed + self.unclear
        if not pairs:
            return "nothing to compare"
        if self.same == pairs:
            return "reproduced"
        if self.reversed == pairs:
            return "reversed"
        if not self.same and not self.reversed:
            return "undecided"
        return "partly reproduced" if self.same > self.reversed else "not reproduced"

    def __str__(self) -> str:
        """Return the verdict with its counts."""
        pairs = self.same + self.reversed + self.unclear
        return (
            f"{self.verdict}: of {pairs} pairs of rows {self.same} in the paper's order, "
            f"{self.reversed} the other way, {self.unclear} undecided"
        )


def ordering(paper: Sequence[float | None], ours: Sequence[Sequence[float]]) -> Ordering:
    """Compare the order of two columns; `ours` has the values of all seeds for each row.

    The noise is the deviation between seeds, pooled over the rows. A row with one seed is not
    put above or below another. Rows without a figure, and equal figures, are not compared.

    >>> ordering([1.0, 2.0], [[0.10, 0.11], [0.30, 0.31]]).verdict
    'reproduced'
    >>> ordering([1.0, 2.0], [[0.10], [0.30]]).verdict
    'undecided'
    """
    noise = pooled_deviation(ours)
    counts = {"same": 0, "reversed": 0, "unclear": 0}
    for (their_first, first), (their_second, second) in combinations(zip(paper, ours, strict=True), 2):
        if their_first is None or their_second is None or their_first == their_second:
            continue
        if not first or not second:
            continue
        if (order := _difference(first, second, noise)) is None:
            counts["unclear"] += 1
        else:
            agrees = (order > 0) == (their_second > their_first)
            counts["same" if agrees else "reversed"] += 1
    return Ordering(**counts)


def differences(ours: Sequence[Sequence[float]]) -> list[str]:
    """Say of each row after the first whether it is above it, below it, or within the noise.

    >>> differences([[1.0, 1.1], [2.0, 2.1], [1.1, 1.2], []])
    ['above', 'within the noise', 'not measured']
    """
    return [_beside(ours[0], row, pooled_deviation(ours)) for row in ours[1:]]


def _beside(first: Sequence[float], row: Sequence[float], noise: float | None) -> str:
    if not first or not row:
        return "not measured"
    if (difference := _difference(first, row, noise)) is None:
        return "within the noise" if len(first) > 1 < len(row) else "undecided with one seed"
    return "above" if difference > 0 else "below"


def _difference(first: Sequence[float], second: Sequence[float], noise: float | None) -> float | None:
    """Return by how much the second mean is larger; None where the seeds cannot tell."""
    if noise is None or min(len(first), len(second)) < 2:
        return None
    difference = fmean(second) - fmean(first)
    error = noise * math.sqrt(1 / len(first) + 1 / len(second))
    return difference if abs(difference) > CLEAR * error else None


def pooled_deviation(rows: Sequence[Sequence[float]]) -> float | None:
    """Return the deviation between seeds over all rows; None where no row has two.

    >>> pooled_deviation([[1.0, 3.0], [5.0]])
    1.4142135623730951
    """
    repeated = [row for row in rows if len(row) > 1]
    if not repeated:
        return None
    degrees = sum(len(row) - 1 for row in repeated)
    return math.sqrt(sum(variance(row) * (len(row) - 1) for row in repeated) / degrees)
