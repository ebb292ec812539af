"""Everything about a figure except its drawing: averaged curves, reference lines, captions."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean

from litebert.runs import LogRow, Record

MOST_POINTS = 120


MOST_EVALUATIONS = 400
"""Up to this many evaluations are shown without averaging."""


@dataclass(frozen=True)
class Point:
    """The mean of some neighbouring rows at their last step, with the range they span."""

    step: int
    mean: float
    low: float
    high: float


def curve_of(rows: Sequence[LogRow], name: str, *, most_points: int = MOST_POINTS) -> tuple[Point, ...]:
    """Return at most `most_points` points; every finite value is within the range of its point.

    >>> rows = [LogRow("train", step, {"loss": 4.0 / step}) for step in (1, 2, 4)]
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


@dataclass(frozen=True)
class Line:
    """One curve: of training, or of held-out evaluations."""

    label: str
    color: str
    points: tuple[Point, ...]
    has_markers: bool = False


@dataclass(frozen=True)
class Rule:
    """A value to compare with, the same at every step."""

    label: str
    value: float


@dataclass(frozen=True)
class RowPoint:
    """A row of a table: our values over the seeds, and the paper's figure if it has one."""

    label: str
    values: tuple[float, ...]
    paper: float | None


@dataclass(frozen=True)
class Chart:
    """A figure by step; `written` turns its values into text."""

    title: str
    caption: str
    lines: tuple[Line, ...]
    written: Callable[[float], str]
    rules: tuple[Rule, ...] = ()
    is_share: bool = False
    is_logarithmic: bool = False

    @property
    def has_bands(self) -> bool:
        """Whether some points stand for several rows."""
        return any(point.low < point.high for line in self.lines for point in line.points)

    @property
    def description(self) -> str:
        """The figure in words: where each line starts and ends."""
        parts = [
            f"{line.label} from {self.written(line.points[0].mean)} at step "
            f"{line.points[0].step:,} to {self.written(line.points[-1].mean)} at step "
            f"{line.points[-1].step:,}"
            for line in self.lines
        ]
        parts += [f"{rule.label} {self.written(rule.value)}" for rule in self.rules]
        return f"{self.title}: {'; '.join(parts)}."


def lines_of(record: Record, name: str) -> tuple[Line, ...]:
    """Return the curves of one number: in training, held out, or both."""
    held_out = curve_of(record.evaluations, name, most_points=MOST_EVALUATIONS)
    lines = (
        Line("training", "train", curve_of(record.training, name)),
        Line("held out", "held-out", held_out, has_markers=True),
    )
    return tuple(line for line in lines if line.points)


def rate_charts(record: Record) -> list[Chart]:
    """Return the figures that any training has: learning rate, gradient norm, speed."""
    norms = lines_of(record, "gradient_norm")
    return [
        Chart(
            "Learning rate",
            f"{left_out(record, 'learning_rate')}As scheduled.",
            lines_of(record, "learning_rate"),
            "{:.3g}".format,
        ),
        Chart(
            "Gradient norm",
            f"{left_out(record, 'gradient_norm')}Before clipping, of the last step of each log line.",
            norms,
            "{:.3g}".format,
            rules=_clipped(record, norms),
            is_logarithmic=_spans_decades(norms),
        ),
        Chart(
            "Tokens per second",
            f"{left_out(record, 'tokens_per_second')}Padding is not counted.",
            lines_of(record, "tokens_per_second"),
            "{:,.0f}".format,
        ),
    ]


def left_out(record: Record, name: str) -> str:
    """Say how many values of a curve are not finite, so that its gaps do not go unnoticed."""
    rows = (*record.training, *record.evaluations)
    count = sum(not math.isfinite(row.values.get(name, 0.0)) for row in rows)
    return f"{count:,} non-finite values are omitted. " if count else ""


def _clipped(record: Record, lines: tuple[Line, ...]) -> tuple[Rule, ...]:
    clip = record.settings.get("optim.clip_norm")
    if not isinstance(clip, int | float):
        return ()
    highest = max((point.high for line in lines for point in line.points), default=0.0)
    # A limit far above the norms would flatten their curve.
    return (Rule("clipped at", clip),) if 0 < clip <= 3 * highest else ()


def _spans_decades(lines: tuple[Line, ...]) -> bool:
    lows = [point.low for line in lines for point in line.points]
    highs = [point.high for line in lines for point in line.points]
    return bool(lows) and 0 < 10 * min(lows) < max(highs)
