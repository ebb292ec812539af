"""Which figures a run has: lines, reference lines, captions and words for who cannot see them."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from litebert.report.curve import Point, curve_of
from litebert.report.record import Record
from litebert.report.results import CHANCE, loss, sentence_task, share

MOST_EVALUATIONS = 400
"""Evaluations are shown as they are, not averaged, up to this many."""


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
class Chart:
    """A figure, complete but for the drawing; `written` is how its values are put in words."""

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
        said = [
            f"{line.label} from {self.written(line.points[0].mean)} at step "
            f"{line.points[0].step:,} to {self.written(line.points[-1].mean)} at step "
            f"{line.points[-1].step:,}"
            for line in self.lines
        ]
        said += [f"{rule.label} {self.written(rule.value)}" for rule in self.rules]
        return f"{self.title}: {'; '.join(said)}."


def charts_of(record: Record) -> list[Chart]:
    """Return the figures for which the run has values."""
    sentence_title = f"{sentence_task(record)} accuracy"
    drawn = (
        _chart(record, "masked_lm_loss", "Masked-LM loss", loss),
        _chart(record, "masked_lm_accuracy", "Masked-LM accuracy", share),
        _chart(record, "sentence_order_accuracy", sentence_title, share),
        _chart(record, "learning_rate", "Learning rate", "{:.3g}".format),
        _chart(record, "gradient_norm", "Gradient norm", "{:.3g}".format),
        _chart(record, "tokens_per_second", "Tokens per second", "{:,.0f}".format),
    )
    return [chart for chart in drawn if chart.lines]


_CAPTIONS = {
    "masked_lm_loss": "Lower is better.",
    "masked_lm_accuracy": "Share of the masked tokens that are named exactly.",
    "sentence_order_accuracy": "Share of the sentence pairs that are judged right.",
    "learning_rate": "As scheduled.",
    "gradient_norm": "Before clipping, of the last step of each log line.",
    "tokens_per_second": "Padding is not counted.",
}


def _chart(record: Record, name: str, title: str, written: Callable[[float], str]) -> Chart:
    lines = _lines(record, name)
    return Chart(
        title=title,
        caption=f"{_left_out(record, name)}{_CAPTIONS[name]}",
        lines=lines,
        written=written,
        rules=_rules(record, name, lines),
        is_share=written is share,
        is_logarithmic=name == "gradient_norm" and _spans_decades(lines),
    )


def _spans_decades(lines: tuple[Line, ...]) -> bool:
    lows = [point.low for line in lines for point in line.points]
    highs = [point.high for line in lines for point in line.points]
    return bool(lows) and 0 < 10 * min(lows) < max(highs)


def _lines(record: Record, name: str) -> tuple[Line, ...]:
    held_out = curve_of(record.evaluations, name, most_points=MOST_EVALUATIONS)
    lines = (
        Line("training", "train", curve_of(record.training, name)),
        Line("held out", "held-out", held_out, has_markers=True),
    )
    return tuple(line for line in lines if line.points)


def _rules(record: Record, name: str, lines: tuple[Line, ...]) -> tuple[Rule, ...]:
    clip = record.settings.get("optim.clip_norm")
    if name == "gradient_norm" and isinstance(clip, int | float):
        highest = max((point.high for line in lines for point in line.points), default=0.0)
        # A limit far above the norms would press them flat.
        return (Rule("clipped at", clip),) if 0 < clip <= 3 * highest else ()
    if name == "sentence_order_accuracy":
        return (Rule("chance", CHANCE),)
    if name == "masked_lm_accuracy":
        shares = [row.values.get("masked_lm_baseline", math.nan) for row in record.evaluations]
        return tuple(Rule("commonest token", each) for each in shares[-1:] if math.isfinite(each))
    return ()


def _left_out(record: Record, name: str) -> str:
    """Say that a curve has gaps; a silent one would look better than the run was."""
    rows = (*record.training, *record.evaluations)
    count = sum(not math.isfinite(row.values.get(name, 0.0)) for row in rows)
    return f"{count:,} values that were not finite are left out. " if count else ""
