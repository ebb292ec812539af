"""Figures: curves by step, rows beside the paper's, reliability; drawn with matplotlib, inline or as a file."""

from __future__ import annotations

import html
import io
import math
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from litebert.errors import missing_package
from litebert.metrics import Calibration
from litebert.report.tables import word
from litebert.runs import LogRow, Run, finite

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MOST_POINTS, MOST_EVALUATIONS = 120, 400  # of a curve of training; of evaluations, which are not averaged below that
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
LEGEND: dict[str, Any] = {"loc": "lower left", "bbox_to_anchor": (0, 1), "borderaxespad": 0.2, "ncols": 3}
SIZE = (5.4, 2.9)  # inches; the page scales them
SETTINGS: dict[str, Any] = {"svg.fonttype": "none", "font.family": "DejaVu Sans", "font.size": 9.0}
SETTINGS |= {"axes.grid": True, "axes.axisbelow": True, "ytick.major.size": 0.0, "legend.frameon": False}
SETTINGS |= {f"axes.spines.{side}": False for side in ("top", "right", "left")}
SETTINGS |= dict.fromkeys(("axes.edgecolor", "grid.color", "xtick.color", "ytick.color"), PALETTE["grid"])
SETTINGS |= dict.fromkeys(("axes.labelcolor", "xtick.labelcolor", "ytick.labelcolor"), PALETTE["quiet"])
SETTINGS |= {"legend.labelcolor": PALETTE["ink"]}


@dataclass(frozen=True)
class Figure:
    """What a page can show: `description` is the figure in words, `fill` draws it."""

    title: str
    caption: str
    description: str
    fill: Callable[[Axes], None]


# ---- curves by step -------------------------------------------------------------------------------------------------


class Point(NamedTuple):
    """The mean of some neighbouring rows at their last step, with the range they span."""

    step: int
    mean: float
    low: float
    high: float


class Line(NamedTuple):
    """One curve: of training, or of held-out evaluations; `color` is a name of the palette."""

    label: str
    color: str
    points: Sequence[Point]
    has_markers: bool = False


class Rule(NamedTuple):
    """A value to compare with, the same at every step."""

    label: str
    value: float


def curve_of(rows: Sequence[LogRow], name: str, *, most_points: int = MOST_POINTS) -> list[Point]:
    """Return at most `most_points` points; every finite value is within the range of its point.

    >>> rows = [LogRow("train", step, {"loss": 4.0 / step}) for step in (1, 2, 4)]
    >>> curve_of(rows, "loss", most_points=2)
    [Point(step=2, mean=3.0, low=2.0, high=4.0), Point(step=4, mean=1.0, low=1.0, high=1.0)]
    """
    values = [(row.step, row.values[name]) for row in rows if math.isfinite(row.values.get(name, math.nan))]
    size, points = max(1, math.ceil(len(values) / most_points)), []  # so many neighbours become one point
    for at in range(0, len(values), size):
        steps, some = zip(*values[at : at + size], strict=True)
        points.append(Point(steps[-1], fmean(some), min(some), max(some)))
    return points


def curve_across(curves: Iterable[Sequence[Point]]) -> list[Point]:
    """Return the mean and the range of several curves at each of their steps.

    >>> curve_across([[Point(5, 0.5, 0.5, 0.5)], [Point(5, 1.0, 1.0, 1.0)]])
    [Point(step=5, mean=0.75, low=0.5, high=1.0)]
    """
    points: dict[int, list[Point]] = {}
    for point in (point for curve in curves for point in curve):
        points.setdefault(point.step, []).append(point)
    return [
        Point(step, fmean(p.mean for p in some), min(p.low for p in some), max(p.high for p in some))
        for step, some in sorted(points.items())
    ]


def chart(
    title: str,
    caption: str,
    lines: Sequence[Line],
    write: Callable[[float], str],
    *,
    rule: Rule | None = None,
    is_share: bool = False,
    is_logarithmic: bool = False,
) -> list[Figure]:
    """Return curves as a figure, or none if no line has a point; `write` turns values into text."""
    lines = [line for line in lines if line.points]
    if not lines:
        return []
    said = []
    for line in lines:
        first, last = line.points[0], line.points[-1]
        said.append(f"{line.label} from {write(first.mean)} at step {first.step:,} ")
        said[-1] += f"to {write(last.mean)} at step {last.step:,}"
    said += [f"{rule.label} {write(rule.value)}"] if rule else []

    def fill(axes: Axes) -> None:
        from matplotlib.ticker import LogLocator, MaxNLocator, NullLocator

        if is_logarithmic:
            axes.set_yscale("log")
            axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
            axes.yaxis.set_minor_locator(NullLocator())
        for line in lines:
            color, is_marked = PALETTE[line.color], line.has_markers
            steps, means, lows, highs = zip(*line.points, strict=True)
            if lows != highs:
                axes.fill_between(steps, lows, highs, color=color, alpha=0.16, linewidth=0)
            style: dict[str, Any] = {"linewidth": 1.0 if is_marked else 1.6, "markersize": 3.0}
            style |= {"marker": "o" if is_marked or len(steps) == 1 else None, "markevery": max(1, len(steps) // 25)}
            axes.plot(steps, means, color=color, label=line.label, **style)
        if rule:
            axes.axhline(rule.value, label=f"{rule.label} ({write(rule.value)})", **DASHED)
        axes.set_xlabel("step")
        axes.grid(visible=False, axis="x")
        axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
        axes.xaxis.set_major_formatter("{x:,.0f}")
        axes.yaxis.set_major_formatter(_share_tick if is_share else "{x:,g}")
        if rule or len(lines) > 1:
            axes.legend(**LEGEND)

    return [Figure(title, caption, f"{title}: {'; '.join(said)}.", fill)]


def chart_of(
    run: Run, name: str, title: str, caption: str, write: Callable[[float], str], **style: Any
) -> list[Figure]:
    """Return the figure of one number of a run (over seeds, their mean); its caption counts the gaps."""
    runs = run.seeds or (run,)
    training = curve_across(curve_of(each.training, name) for each in runs)
    held_out = curve_across(curve_of(each.evaluations, name, most_points=MOST_EVALUATIONS) for each in runs)
    lines = [Line("training", "train", training), Line("held out", "held-out", held_out, has_markers=True)]
    rows = (row for each in runs for row in (*each.training, *each.evaluations))
    gaps = sum(not math.isfinite(row.values.get(name, 0.0)) for row in rows)
    caption = f"{gaps:,} non-finite values are omitted. {caption}" if gaps else caption
    return chart(title, caption, lines, write, **style)


def rate_charts(run: Run) -> list[Figure]:
    """Return the figures that any training has: learning rate, gradient norm, speed."""
    number = "{:.3g}".format
    norms, clip = finite((*run.training, *run.evaluations), "gradient_norm"), run.settings.get("optim.clip_norm")
    # A limit far above the norms would flatten their curve.
    is_near = isinstance(clip, int | float) and 0 < clip <= 3 * max(norms, default=0.0)
    rule = Rule("clipped at", float(str(clip))) if is_near else None
    is_wide = bool(norms) and 0 < 10 * min(norms) < max(norms)
    said = "Before clipping, of the last step of each log line."
    return [
        *chart_of(run, "learning_rate", "Learning rate", "As scheduled.", number),
        *chart_of(run, "gradient_norm", "Gradient norm", said, number, rule=rule, is_logarithmic=is_wide),
        *chart_of(run, "tokens_per_second", "Tokens per second", "Padding is not counted.", "{:,.0f}".format),
    ]


# ---- other figures --------------------------------------------------------------------------------------------------


def rows_figure(title: str, caption: str, rows: Sequence[tuple[str, Sequence[float], float | None]]) -> Figure:
    """Return rows of a table: our values over the seeds below, and the paper's figure above, each on its own axis."""
    said = (
        f"{label}: ours {word(fmean(values) if values else None)}, paper {word(paper, decimals=1)}"
        for label, values, paper in rows
    )

    def fill(axes: Axes) -> None:
        placed = list(zip(range(len(rows), 0, -1), rows, strict=True))  # the first row is at the top
        axes.set_yticks([place for place, _ in placed], [label for _, (label, _, _) in placed])
        ours = [(place, values) for place, (_, values, _) in placed if values]
        axes.set_xlabel("ours (below)" if ours else "nothing measured")
        means = [fmean(values) for _, values in ours]
        bars = [stdev(values) if len(values) > 1 else 0.0 for _, values in ours]
        style: dict[str, Any] = {"fmt": "o", "color": PALETTE["train"], "markersize": 4.0, "capsize": 2.0}
        axes.errorbar(means, [place for place, _ in ours], xerr=bars, **style)
        if papers := [(paper, place) for place, (_, _, paper) in placed if paper]:
            above, color = axes.twiny(), PALETTE["held-out"]
            above.grid(visible=False)
            above.plot(*zip(*papers, strict=True), "D", color=color, markersize=4.0)
            above.tick_params(labelcolor=color)
            above.set_xlabel("paper", color=color)

    return Figure(title, caption, f"{title}: {'; '.join(said)}.", fill)


def reliability_figure(title: str, caption: str, measured: Calibration) -> Figure:
    """Return how often answers are right by their confidence, beside how often they should be."""
    bins = measured.bins
    said = (f"{part.confidence:.0%} sure, {part.accuracy:.0%} right ({part.count:,})" for part in bins)

    def fill(axes: Axes) -> None:
        lows, widths = [part.low for part in bins], [part.high - part.low for part in bins]
        colors: dict[str, Any] = {"color": PALETTE["train"], "edgecolor": PALETTE["paper"]}
        axes.bar(lows, [part.accuracy for part in bins], widths, align="edge", label="right", **colors)
        axes.plot((0, 1), (0, 1), label="should be", **DASHED)
        axes.set_xlim(0, 1)
        axes.set_ylim(0, 1)
        axes.set_xlabel("confidence")
        axes.grid(visible=False, axis="x")
        axes.xaxis.set_major_formatter(_share_tick)
        axes.yaxis.set_major_formatter(_share_tick)
        axes.legend(**LEGEND)

    return Figure(title, caption, f"{title}: {'; '.join(said)}.", fill)


def counts_figure(title: str, description: str, counts: Sequence[int]) -> Figure:
    def fill(axes: Axes) -> None:
        axes.bar(range(len(counts)), counts, width=1.0, color=PALETTE["ink"])
        axes.set_xlabel(title)

    return Figure(title, "", description, fill)


def _share_tick(value: float, _: float) -> str:
    return f"{100 * value:g}%"


# ---- drawing --------------------------------------------------------------------------------------------------------


def picture(figure: Figure, kind: Literal["svg", "png"], *, is_inline: bool = False) -> bytes:
    """Return a figure as a file of its own, in the light colours; the same figure gives the same bytes."""
    try:
        from matplotlib import style
        from matplotlib.figure import Figure as Canvas
    except ImportError as error:
        raise missing_package("matplotlib", extra="report", needed_for="figures") from error
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


def draw(figure: Figure) -> str:
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
