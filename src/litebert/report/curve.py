"""A curve that stays small however long the run: neighbouring rows are averaged."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from litebert.runs import Row

MOST_POINTS = 120


@dataclass(frozen=True)
class Point:
    """The mean of some neighbouring rows at their last step, with the range they span."""

    step: int
    mean: float
    low: float
    high: float


def curve_of(
    rows: Sequence[Row], name: str, *, most_points: int = MOST_POINTS
) -> tuple[Point, ...]:
    """Return at most `most_points` points; no finite value is lost from the low-high range.

    >>> rows = [Row("train", step, {"loss": 4.0 / step}) for step in (1, 2, 4)]
    >>> curve_of(rows, "loss", most_points=2)
    (Point(step=2, mean=3.0, low=2.0, high=4.0), Point(step=4, mean=1.0, low=1.0, high=1.0))
    """
    values = [(row.step, row.values[name]) for row in rows if name in row.values]
    values = [(step, value) for step, value in values if math.isfinite(value)]
    size = max(1, math.ceil(len(values) / most_points))
    return tuple(_point(values[at : at + size]) for at in range(0, len(values), size))


def _point(values: Sequence[tuple[int, float]]) -> Point:
    numbers = [value for _, value in values]
    return Point(values[-1][0], fmean(numbers), min(numbers), max(numbers))
