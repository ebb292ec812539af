"""Figures: what is drawn, with its caption and its words; the drawing with matplotlib, inline or as a file."""

from __future__ import annotations

import html
import io
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import TYPE_CHECKING, Literal

from litebert.errors import LitebertError
from litebert.metrics import Calibration
from litebert.report.tables import word
from litebert.runs import LogRow, Run

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MOST_POINTS, MOST_EVALUATIONS = 120, 400
"""Points of a curve of training, and evaluations that are shown without averaging."""

# ---- curves ---------------------------------------------------------------------------------------------------------


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
    values = [(row.step, row.values[name]) for row in rows if math.isfinite(row.values.get(name, math.nan))]
    size = max(1, math.ceil(len(values) / most_points))
    parts = (values[at : at + size] for at in range(0, len(values), size))
    numbers = [(part[-1][0], [value for _, value in part]) for part in parts]
    return tuple(Point(step, fmean(some), min(some), max(some)) for step, some in numbers)


def curve_across(curves: Sequence[Sequence[Point]]) -> tuple[Point, ...]:
    """Return the mean and the range of several curves at each of their steps.

    >>> curve_across([[Point(5, 0.5, 0.5, 0.5)], [Point(5, 1.0, 1.0, 1.0)]])
    (Point(step=5, mean=0.75, low=0.5, high=1.0),)
    """
    points: dict[int, list[Point]] = {}
    for point in (point for curve in curves for point in curve):
        points.setdefault(point.step, []).append(point)
    return tuple(
        Point(step, fmean(p.mean for p in some), min(p.low for p in some), max(p.high for p in some))
        for step, some in sorted(points.items())
    )


@dataclass(frozen=True)
class Line:
    """One curve: of training, or of held-out evaluations; `color` is a name of the palette."""

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
            f"{line.label} from {self.written(line.points[0].mean)} at step {line.points[0].step:,} "
            f"to {self.written(line.points[-1].mean)} at step {line.points[-1].step:,}"
            for line in self.lines
        ]
        parts += [f"{rule.label} {self.written(rule.value)}" for rule in self.rules]
        return f"{self.title}: {'; '.join(parts)}."

    def fill(self, axes: Axes) -> None:
        """Draw lines and rules."""
        from matplotlib.ticker import LogLocator, MaxNLocator, NullLocator

        if self.is_logarithmic:
            axes.set_yscale("log")
            axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
            axes.yaxis.set_minor_locator(NullLocator())
        for line in self.lines:
            steps, color = [point.step for point in line.points], PALETTE[line.color]
            if any(point.low < point.high for point in line.points):
                lows, highs = [p.low for p in line.points], [p.high for p in line.points]
                axes.fill_between(steps, lows, highs, color=color, alpha=0.16, linewidth=0)
            axes.plot(
                steps,
                [point.mean for point in line.points],
                color=color,
                linewidth=1.0 if line.has_markers else 1.6,
                marker="o" if line.has_markers or len(steps) == 1 else None,
                markersize=3.0,
                markevery=max(1, len(steps) // 25),
                label=line.label,
            )
        for rule in self.rules:
            label = f"{rule.label} ({self.written(rule.value)})"
            axes.axhline(rule.value, color=PALETTE["rule"], linestyle=(0, (5, 3)), linewidth=1.1, label=label)
        axes.set_xlabel("step")
        axes.grid(visible=False, axis="x")
        axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
        axes.xaxis.set_major_formatter("{x:,.0f}")
        axes.yaxis.set_major_formatter(_share_tick if self.is_share else "{x:,g}")
        if len(self.lines) + len(self.rules) > 1:
            axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=3, borderaxespad=0.2)


def lines_of(run: Run, name: str) -> tuple[Line, ...]:
    """Return the curves of one number: in training, held out, or both."""
    held_out = curve_of(run.evaluations, name, most_points=MOST_EVALUATIONS)
    lines = (
        Line("training", "train", curve_of(run.training, name)),
        Line("held out", "held-out", held_out, has_markers=True),
    )
    return tuple(line for line in lines if line.points)


def left_out(run: Run, name: str) -> str:
    """Say how many values of a curve are not finite, so that its gaps do not go unnoticed."""
    count = sum(not math.isfinite(row.values.get(name, 0.0)) for row in (*run.training, *run.evaluations))
    return f"{count:,} non-finite values are omitted. " if count else ""


def rate_charts(run: Run) -> list[Chart]:
    """Return the figures that any training has: learning rate, gradient norm, speed."""
    norms = lines_of(run, "gradient_norm")
    lows = [point.low for line in norms for point in line.points]
    highs = [point.high for line in norms for point in line.points]
    clip = run.settings.get("optim.clip_norm")
    # A limit far above the norms would flatten their curve.
    is_near = isinstance(clip, int | float) and 0 < clip <= 3 * max(highs, default=0.0)
    number, speed = "{:.3g}".format, "tokens_per_second"
    return [
        Chart(
            "Learning rate", f"{left_out(run, 'learning_rate')}As scheduled.", lines_of(run, "learning_rate"), number
        ),
        Chart(
            "Gradient norm",
            f"{left_out(run, 'gradient_norm')}Before clipping, of the last step of each log line.",
            norms,
            number,
            rules=(Rule("clipped at", float(str(clip))),) if is_near else (),
            is_logarithmic=bool(lows) and 0 < 10 * min(lows) < max(highs),
        ),
        Chart(
            "Tokens per second",
            f"{left_out(run, speed)}Padding is not counted.",
            lines_of(run, speed),
            "{:,.0f}".format,
        ),
    ]


# ---- other figures --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class RowPoint:
    """A row of a table: our values over the seeds, and the paper's figure if it has one."""

    label: str
    values: tuple[float, ...]
    paper: float | None


@dataclass(frozen=True)
class RowsFigure:
    """The rows of a table as a figure: our values below and the paper's above, each on its own axis."""

    title: str
    caption: str
    rows: tuple[RowPoint, ...]

    @property
    def description(self) -> str:
        """The figure in words, row by row."""
        findings = [
            f"{row.label}: ours {word(fmean(row.values) if row.values else None)}, paper {word(row.paper, decimals=1)}"
            for row in self.rows
        ]
        return f"{self.title}: {'; '.join(findings)}."

    def fill(self, axes: Axes) -> None:
        """Draw a point with its spread for each row."""
        places = range(len(self.rows), 0, -1)
        ours = [(place, row) for place, row in zip(places, self.rows, strict=True) if row.values]
        axes.errorbar(
            [fmean(row.values) for _, row in ours],
            [place for place, _ in ours],
            xerr=[stdev(row.values) if len(row.values) > 1 else 0.0 for _, row in ours],
            fmt="o",
            color=PALETTE["train"],
            markersize=4.0,
            capsize=2.0,
            label="ours (below)",
        )
        axes.set_yticks(list(places), [row.label for row in self.rows])
        handles, labels = axes.get_legend_handles_labels()
        if paper := [(place, row.paper) for place, row in zip(places, self.rows, strict=True) if row.paper]:
            above = axes.twiny()
            above.grid(visible=False)
            color = PALETTE["held-out"]
            above.plot([x for _, x in paper], [y for y, _ in paper], "D", color=color, markersize=4.0)
            above.tick_params(labelcolor=color)
            above.set_xlabel("paper", color=color)
        axes.set_xlabel(labels[0] if handles else "nothing measured")


@dataclass(frozen=True)
class ReliabilityFigure:
    """How often answers are right by their confidence, beside how often they should be."""

    title: str
    caption: str
    calibration: Calibration

    @property
    def description(self) -> str:
        """The figure in words, bin by bin."""
        points = (f"{part.confidence:.0%} sure, {part.accuracy:.0%} right" for part in self.calibration.bins)
        return f"{self.title}: {'; '.join(points)}."

    def fill(self, axes: Axes) -> None:
        """Draw a bar for each bin, and the diagonal."""
        bins = self.calibration.bins
        axes.bar(
            [part.low for part in bins],
            [part.accuracy for part in bins],
            width=[part.high - part.low for part in bins],
            align="edge",
            color=PALETTE["train"],
            edgecolor=PALETTE["paper"],
            label="right",
        )
        ends, color = (0, 1), PALETTE["rule"]
        axes.plot(ends, ends, color=color, linestyle=(0, (5, 3)), linewidth=1.1, label="should be")
        axes.set_xlim(ends)
        axes.set_ylim(0, 1)
        axes.set_xlabel("confidence")
        axes.grid(visible=False, axis="x")
        axes.xaxis.set_major_formatter(_share_tick)
        axes.yaxis.set_major_formatter(_share_tick)
        axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=2, borderaxespad=0.2)


@dataclass(frozen=True)
class CountsFigure:
    """A bar for each count, by its place."""

    title: str
    description: str
    counts: Sequence[int]

    def fill(self, axes: Axes) -> None:
        """Draw the bars."""
        axes.bar(range(len(self.counts)), self.counts, width=1.0, color=PALETTE["ink"])
        axes.set_xlabel(self.title)


Figure = Chart | RowsFigure | ReliabilityFigure
"""What a page can show: it has a title, a caption, a description for those who do not see it, and `fill`."""


def _share_tick(value: float, _: float) -> str:
    return f"{100 * value:g}%"


# ---- drawing --------------------------------------------------------------------------------------------------------

PALETTE = {
    "paper": "#fcfbf8",
    "ink": "#24272c",
    "quiet": "#5b616b",
    "grid": "#e0ddd5",
    "train": "#2a69ac",
    "held-out": "#b04a12",
    "rule": "#6d6a63",
}
"""The light colours of page.css; an inline figure names the variables, which are others in the dark."""
SIZE = (5.4, 2.9)  # inches; the page scales them
SETTINGS = {
    "svg.fonttype": "none",
    "font.family": "DejaVu Sans",
    "font.size": 9.0,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.spines.left": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.edgecolor": PALETTE["grid"],
    "axes.labelcolor": PALETTE["quiet"],
    "grid.color": PALETTE["grid"],
    "xtick.color": PALETTE["grid"],
    "ytick.color": PALETTE["grid"],
    "xtick.labelcolor": PALETTE["quiet"],
    "ytick.labelcolor": PALETTE["quiet"],
    "ytick.major.size": 0.0,
    "legend.frameon": False,
    "legend.labelcolor": PALETTE["ink"],
}


def picture(figure: Figure | CountsFigure, kind: Literal["svg", "png"], *, is_inline: bool = False) -> bytes:
    """Return a figure as a file of its own, in the light colours; the same figure gives the same bytes."""
    try:
        from matplotlib import style
        from matplotlib.figure import Figure as Canvas
    except ImportError as error:
        raise LitebertError(
            "LB-652",
            "figures need matplotlib",
            received=str(error),
            expected="the package matplotlib, which comes with the extra [report]",
            next="pip install 'litebert[report]'",
        ) from error
    buffer = io.BytesIO()
    omitted = dict.fromkeys(("Creator", "Date", "Format", "Type") if kind == "svg" else ("Software",))
    with style.context({**SETTINGS, "svg.hashsalt": figure.title}, after_reset=True):
        canvas = Canvas(figsize=SIZE, layout="constrained")
        canvas.patch.set_visible(not is_inline)
        axes = canvas.add_subplot()
        axes.patch.set_visible(False)
        figure.fill(axes)
        canvas.savefig(buffer, format=kind, metadata=omitted, dpi=160)
    return buffer.getvalue()


def draw(figure: Figure | CountsFigure) -> str:
    """Return an SVG element for a page, in its light and dark colours, with a description for screen readers."""
    svg = picture(figure, "svg", is_inline=True).decode("utf-8")
    body = svg[svg.index("<svg ") :].replace("xlink:href", "href")
    body = re.sub(r"<defs>\s*<style.*?</style>\s*</defs>", "", body, flags=re.DOTALL)
    body = re.sub(r'<g id="[^"]*"(/?)>', r"<g\1>", body)
    # hundredths of a point are invisible
    body = re.sub(r'\b(?:d|x|y|transform)="[^"]*"', lambda found: re.sub(r"(\.\d\d)\d+", r"\1", found[0]), body)
    for name, light in PALETTE.items():
        body = body.replace(light, f"var(--{name})")
    opening, content = body.split(">", 1)
    box = re.search(r'viewBox="[^"]*"', opening)
    assert box
    # a file name may contain bytes that are not UTF-8
    label = html.escape(figure.description.encode("utf-8", "replace").decode("utf-8"))
    return f'<svg role="img" aria-label="{label}" {box[0]}>{content.strip()}'
