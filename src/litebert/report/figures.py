"""Figures: what is drawn, with its caption and its words; the drawing with matplotlib, inline or as a file."""

from __future__ import annotations

import html
import io
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import TYPE_CHECKING, Any, Literal

from litebert.errors import LitebertError
from litebert.metrics import Calibration
from litebert.report.tables import word
from litebert.runs import LogRow, Run, finite

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
        from matplotlib.ticker import LogLocator, MaxNLocator, NullLocator

        if self.is_logarithmic:
            axes.set_yscale("log")
            axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
            axes.yaxis.set_minor_locator(NullLocator())
        for line in self.lines:
            steps, color = [point.step for point in line.points], PALETTE[line.color]
            lows, means, highs = zip(*((p.low, p.mean, p.high) for p in line.points), strict=True)
            if lows != highs:
                axes.fill_between(steps, lows, highs, color=color, alpha=0.16, linewidth=0)
            width, marker = 1.0 if line.has_markers else 1.6, "o" if line.has_markers or len(steps) == 1 else None
            sparse = max(1, len(steps) // 25)
            style: dict[str, Any] = {"linewidth": width, "marker": marker, "markersize": 3.0, "markevery": sparse}
            axes.plot(steps, means, color=color, label=line.label, **style)
        for rule in self.rules:
            label = f"{rule.label} ({self.written(rule.value)})"
            axes.axhline(rule.value, label=label, **DASHED)
        axes.set_xlabel("step")
        axes.grid(visible=False, axis="x")
        axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
        axes.xaxis.set_major_formatter("{x:,.0f}")
        axes.yaxis.set_major_formatter(_share_tick if self.is_share else "{x:,g}")
        if len(self.lines) + len(self.rules) > 1:
            axes.legend(ncols=3, **ABOVE)


def chart_of(
    run: Run,
    name: str,
    title: str,
    caption: str,
    written: Callable[[float], str],
    *,
    rules: tuple[Rule, ...] = (),
    is_share: bool = False,
    is_logarithmic: bool = False,
) -> Chart:
    """Return the figure of one number of a run, in training, held out, or both; its caption counts the gaps."""
    held_out = curve_of(run.evaluations, name, most_points=MOST_EVALUATIONS)
    lines = (
        Line("training", "train", curve_of(run.training, name)),
        Line("held out", "held-out", held_out, has_markers=True),
    )
    gaps = sum(not math.isfinite(row.values.get(name, 0.0)) for row in (*run.training, *run.evaluations))
    caption = f"{gaps:,} non-finite values are omitted. {caption}" if gaps else caption
    return Chart(title, caption, tuple(line for line in lines if line.points), written, rules, is_share, is_logarithmic)


def rate_charts(run: Run) -> list[Chart]:
    """Return the figures that any training has: learning rate, gradient norm, speed."""
    number = "{:.3g}".format
    norms, clip = finite((*run.training, *run.evaluations), "gradient_norm"), run.settings.get("optim.clip_norm")
    # A limit far above the norms would flatten their curve.
    is_near = isinstance(clip, int | float) and 0 < clip <= 3 * max(norms, default=0.0)
    rules = (Rule("clipped at", float(str(clip))),) if is_near else ()
    is_wide, before = (
        bool(norms) and 0 < 10 * min(norms) < max(norms),
        "Before clipping, of the last step of each log line.",
    )
    return [
        chart_of(run, "learning_rate", "Learning rate", "As scheduled.", number),
        chart_of(run, "gradient_norm", "Gradient norm", before, number, rules=rules, is_logarithmic=is_wide),
        chart_of(run, "tokens_per_second", "Tokens per second", "Padding is not counted.", "{:,.0f}".format),
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
        placed = list(zip(range(len(self.rows), 0, -1), self.rows, strict=True))
        axes.set_yticks([place for place, _ in placed], [row.label for row in self.rows])
        axes.set_xlabel("ours (below)" if any(row.values for row in self.rows) else "nothing measured")
        ours = [(place, row.values) for place, row in placed if row.values]
        means = [fmean(values) for _, values in ours]
        bars = [stdev(values) if len(values) > 1 else 0.0 for _, values in ours]
        style: dict[str, Any] = {"fmt": "o", "color": PALETTE["train"], "markersize": 4.0, "capsize": 2.0}
        axes.errorbar(means, [place for place, _ in ours], xerr=bars, **style)
        if paper := [(row.paper, place) for place, row in placed if row.paper]:
            above, color = axes.twiny(), PALETTE["held-out"]
            above.grid(visible=False)
            above.plot(*zip(*paper, strict=True), "D", color=color, markersize=4.0)
            above.tick_params(labelcolor=color)
            above.set_xlabel("paper", color=color)


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
        bins = self.calibration.bins
        lows, heights = [part.low for part in bins], [part.accuracy for part in bins]
        widths, colors = [part.high - part.low for part in bins], (PALETTE["train"], PALETTE["paper"])
        axes.bar(lows, heights, widths, align="edge", color=colors[0], edgecolor=colors[1], label="right")
        axes.plot((0, 1), (0, 1), label="should be", **DASHED)
        axes.set_xlim(0, 1)
        axes.set_ylim(0, 1)
        axes.set_xlabel("confidence")
        axes.grid(visible=False, axis="x")
        axes.xaxis.set_major_formatter(_share_tick)
        axes.yaxis.set_major_formatter(_share_tick)
        axes.legend(ncols=2, **ABOVE)


@dataclass(frozen=True)
class CountsFigure:
    """A bar for each count, by its place."""

    title: str
    description: str
    counts: Sequence[int]

    def fill(self, axes: Axes) -> None:
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
DASHED: dict[str, Any] = {"color": PALETTE["rule"], "linestyle": (0, (5, 3)), "linewidth": 1.1}
ABOVE: dict[str, Any] = {"loc": "lower left", "bbox_to_anchor": (0, 1), "borderaxespad": 0.2}
"""How values to compare with are drawn, and where a legend stands."""
SIZE = (5.4, 2.9)  # inches; the page scales them
SETTINGS: dict[str, Any] = {"svg.fonttype": "none", "font.family": "DejaVu Sans", "font.size": 9.0}
SETTINGS |= {"axes.grid": True, "axes.axisbelow": True, "ytick.major.size": 0.0, "legend.frameon": False}
SETTINGS |= {f"axes.spines.{side}": False for side in ("top", "right", "left")}
SETTINGS |= dict.fromkeys(("axes.edgecolor", "grid.color", "xtick.color", "ytick.color"), PALETTE["grid"])
SETTINGS |= dict.fromkeys(("axes.labelcolor", "xtick.labelcolor", "ytick.labelcolor"), PALETTE["quiet"])
SETTINGS |= {"legend.labelcolor": PALETTE["ink"]}


def picture(figure: Figure | CountsFigure, kind: Literal["svg", "png"], *, is_inline: bool = False) -> bytes:
    """Return a figure as a file of its own, in the light colours; the same figure gives the same bytes."""
    try:
        from matplotlib import style
        from matplotlib.figure import Figure as Canvas
    except ImportError as error:
        raise LitebertError(
            "LB-652", "figures need matplotlib", received=str(error), next="pip install 'litebert[report]'"
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
