"""Figures of a page: curves by step, and reliability diagrams.

matplotlib draws them as SVG, inline or as files; the same figure always gives the same
bytes. matplotlib is imported when a figure is drawn.
"""

import io
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from statistics import fmean
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias
from xml.etree import ElementTree

from litebert.report.tables import format_share
from litebert.runs import LogRow, RunFolder

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MOST_POINTS = 120  # of a curve
MOST_MARKED = 50  # points that each get a marker
PALETTE = {
    "paper": "#fcfbf8",
    "panel": "#f4f2ed",
    "ink": "#24272c",
    "quiet": "#5b616b",
    "grid": "#e0ddd5",
    "train": "#2a69ac",
    "held-out": "#b04a12",
    "rule": "#6d6a63",
}
"""The light colors by name. Inline figures use the page's variables of these names
instead, which page.css defines anew for dark mode.
"""
DASHED: dict[str, Any] = {
    "color": PALETTE["rule"],
    "linestyle": (0, (5, 3)),
    "linewidth": 1.1,
}
LEGEND: dict[str, Any] = {
    "loc": "lower left",
    "bbox_to_anchor": (0, 1),
    "borderaxespad": 0.2,
    "ncols": 3,
}
SIZE = (5.4, 2.9)  # inches; the page scales them
STYLE: dict[str, Any] = {
    "svg.fonttype": "none",
    "font.family": "DejaVu Sans",
    "font.size": 9.0,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.edgecolor": PALETTE["grid"],
    "axes.labelcolor": PALETTE["quiet"],
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.spines.left": False,
    "grid.color": PALETTE["grid"],
    "xtick.color": PALETTE["grid"],
    "xtick.labelcolor": PALETTE["quiet"],
    "ytick.color": PALETTE["grid"],
    "ytick.labelcolor": PALETTE["quiet"],
    "ytick.major.size": 0.0,
    "legend.frameon": False,
    "legend.labelcolor": PALETTE["ink"],
}
SVG = "http://www.w3.org/2000/svg"
XLINK = "http://www.w3.org/1999/xlink"

Write: TypeAlias = Callable[[float], str]
"""Turns a value of a figure into text."""


@dataclass(frozen=True)
class Figure:
    """A figure of a page: `description` is its content as text, `fill` draws it."""

    title: str
    caption: str
    description: str
    fill: "Callable[[Axes], None]"


# ---- curves by step ------------------------------------------------------------------


class Point(NamedTuple):
    """The mean of some values at the last of their steps, with the range they span."""

    step: int
    mean: float
    low: float
    high: float


class Line(NamedTuple):
    """One curve; `color` is a name in the palette."""

    label: str
    color: str
    points: Sequence[Point]


class Rule(NamedTuple):
    """A constant to compare a curve with: a dashed line."""

    label: str
    level: float


def curve_of(
    rows: Sequence[LogRow], name: str, *, most_points: int = MOST_POINTS
) -> list[Point]:
    """Return at most `most_points` points; every finite value is within the range of
    its point.

    >>> losses = {1: 4.0, 2: 2.0, 4: 1.0}
    >>> rows = [
    ...     LogRow.model_validate({"kind": "train", "step": step, "loss": loss})
    ...     for step, loss in losses.items()
    ... ]
    >>> for point in curve_of(rows, "loss", most_points=2):
    ...     print(point)
    Point(step=2, mean=3.0, low=2.0, high=4.0)
    Point(step=4, mean=1.0, low=1.0, high=1.0)
    """
    by_step: dict[int, list[float]] = {}  # with several seeds, one value from each
    for row in rows:
        if name in row.values:
            by_step.setdefault(row.step, []).append(row.values[name])
    steps = sorted(by_step)
    steps_per_point = max(1, math.ceil(len(steps) / most_points))
    points = list[Point]()
    for start in range(0, len(steps), steps_per_point):
        merged = steps[start : start + steps_per_point]
        values = list(chain.from_iterable(by_step[step] for step in merged))
        points.append(Point(merged[-1], fmean(values), min(values), max(values)))
    return points


def chart(
    title: str,
    caption: str,
    lines: Sequence[Line],
    write: Write,
    *,
    rule: Rule | None = None,
    is_logarithmic: bool = False,
) -> list[Figure]:
    """Return curves as a figure, or none if no line has a point."""
    drawn = [line for line in lines if line.points]
    if not drawn:
        return []
    parts = [_describe_line(line, write) for line in drawn]
    if rule:
        parts.append(f"{rule.label} {write(rule.level)}")
    fill = partial(
        _fill_chart, lines=drawn, write=write, rule=rule, is_logarithmic=is_logarithmic
    )
    return [Figure(title, caption, f"{title}: {'; '.join(parts)}.", fill)]


def _describe_line(line: Line, write: Write) -> str:
    first = line.points[0]
    last = line.points[-1]
    return (
        f"{line.label} from {write(first.mean)} at step {first.step:,}"
        f" to {write(last.mean)} at step {last.step:,}"
    )


def _fill_chart(
    axes: "Axes",
    *,
    lines: Sequence[Line],
    write: Write,
    rule: Rule | None,
    is_logarithmic: bool,
) -> None:
    """Draw lines of values by step, the rule, the axes and the legend."""
    from matplotlib.ticker import LogLocator, MaxNLocator, NullLocator

    if is_logarithmic:
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        axes.yaxis.set_minor_locator(NullLocator())
    for line in lines:
        _draw_line(axes, line)
    if rule:
        label = f"{rule.label} ({write(rule.level)})"
        axes.axhline(rule.level, label=label, **DASHED)
    axes.set_xlabel("step")
    axes.grid(visible=False, axis="x")
    axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    axes.xaxis.set_major_formatter("{x:,.0f}")
    if write is format_share:
        axes.yaxis.set_major_formatter(lambda share, _: f"{100 * share:g}%")
    else:
        axes.yaxis.set_major_formatter("{x:,g}")
    if rule or len(lines) > 1:
        axes.legend(**LEGEND)


def _draw_line(axes: "Axes", line: Line) -> None:
    """Draw a line of means, in a band from the lowest to the highest value of the
    seeds.
    """
    color = PALETTE[line.color]
    steps, means, lows, highs = zip(*line.points, strict=True)
    if lows != highs:
        axes.fill_between(steps, lows, highs, color=color, alpha=0.16, linewidth=0)
    marker = "o" if len(steps) <= MOST_MARKED else None
    axes.plot(
        steps,
        means,
        color=color,
        label=line.label,
        linewidth=1.4,
        marker=marker,
        markersize=3.0,
    )


def chart_of(
    run: RunFolder,
    name: str,
    title: str,
    caption: str,
    write: Write,
    *,
    rule: Rule | None = None,
    is_logarithmic: bool = False,
) -> list[Figure]:
    """Return the figure of one value of a run, or of its mean over seeds."""
    training = list(chain.from_iterable(part.training for part in run.parts))
    held_out = list(chain.from_iterable(part.evaluations for part in run.parts))
    lines = [
        Line("training", "train", curve_of(training, name)),
        Line("held out", "held-out", curve_of(held_out, name)),
    ]
    return chart(title, caption, lines, write, rule=rule, is_logarithmic=is_logarithmic)


def rate_charts(run: RunFolder) -> list[Figure]:
    """Return the figures of any training: learning rate, gradient norm, speed."""
    figures = chart_of(
        run, "learning_rate", "Learning rate", "As scheduled.", "{:.3g}".format
    )
    logged = [row.values for row in run.training]
    norms = [row["gradient_norm"] for row in logged if "gradient_norm" in row]
    lowest = min(norms, default=0.0)
    figures += chart_of(
        run,
        "gradient_norm",
        "Gradient norm",
        "Before clipping, of the last step of each log line.",
        "{:.3g}".format,
        rule=_clipping_rule(run, norms),
        is_logarithmic=0 < 10 * lowest < max(norms, default=0.0),
    )
    figures += chart_of(
        run,
        "tokens_per_second",
        "Tokens per second",
        "Padding is not counted.",
        "{:,.0f}".format,
    )
    return figures


def _clipping_rule(run: RunFolder, norms: Sequence[float]) -> Rule | None:
    limit = run.settings.get("optim.clip_norm")
    if not isinstance(limit, int | float) or not norms:
        return None
    # A limit far above the norms would flatten their curve.
    is_near = 0 < limit <= 3 * max(norms)
    return Rule("clipped at", float(limit)) if is_near else None


# ---- other figures -------------------------------------------------------------------


class Bin(NamedTuple):
    """Answers of similar confidence: their mean confidence, accuracy and number."""

    confidence: float
    accuracy: float
    size: int


def reliability_figure(title: str, bins: Sequence[Bin]) -> Figure:
    """Return a figure of accuracy by confidence (Guo et al. 2017)."""
    parts = list[str]()
    for bin_ in bins:
        parts.append(
            f"{bin_.confidence:.0%} sure, {bin_.accuracy:.0%} right ({bin_.size:,})"
        )
    description = f"{title}: {'; '.join(parts)}."
    caption = "Below the line: more confident than right."
    return Figure(title, caption, description, partial(_fill_reliability, bins=bins))


def _fill_reliability(axes: "Axes", *, bins: Sequence[Bin]) -> None:
    confidences = [bin_.confidence for bin_ in bins]
    accuracies = [bin_.accuracy for bin_ in bins]
    axes.plot(confidences, accuracies, "o-", color=PALETTE["train"])
    axes.plot((0, 1), (0, 1), label="ideal", **DASHED)
    axes.set(xlim=(0, 1), ylim=(0, 1), xlabel="confidence", ylabel="right")
    axes.xaxis.set_major_formatter("{x:.0%}")
    axes.yaxis.set_major_formatter("{x:.0%}")
    axes.legend(**LEGEND)


# ---- drawing -------------------------------------------------------------------------


def picture(figure: Figure, *, is_inline: bool = False) -> str:
    """Return a figure as SVG text, in the light colors."""
    from matplotlib import style
    from matplotlib.figure import Figure as Canvas

    buffer = io.StringIO()
    # Neither ids nor metadata may differ between two drawings.
    with style.context({**STYLE, "svg.hashsalt": figure.title}, after_reset=True):
        canvas = Canvas(figsize=SIZE, layout="constrained")
        canvas.patch.set_visible(not is_inline)
        axes = canvas.add_subplot()
        axes.patch.set_visible(False)
        figure.fill(axes)
        nothing = dict.fromkeys(("Creator", "Date", "Format", "Type"))
        canvas.savefig(buffer, format="svg", metadata=nothing)
    return buffer.getvalue()


def inline_picture(figure: Figure) -> str:
    """Return an SVG element for a page, with light and dark colors and a description
    for screen readers.

    All figures of a page share its styles and its ids, so what would apply to the whole
    page, or stand there twice, is taken out of matplotlib's drawing.
    """
    drawing = ElementTree.fromstring(picture(figure, is_inline=True))  # noqa: S314
    view_box = drawing.attrib["viewBox"]
    drawing.attrib.clear()  # its size: the page scales it
    drawing.set("role", "img")
    drawing.set("aria-label", figure.description)
    drawing.set("viewBox", view_box)
    for parent in drawing.iter():
        for child in list(parent):
            if child.tag == f"{{{SVG}}}style" or child.tag.endswith("metadata"):
                parent.remove(child)
    for element in drawing.iter():
        element.tag = element.tag.removeprefix(f"{{{SVG}}}")
        if element.tag == "g":
            element.attrib.pop("id", None)  # every figure has the same ones
        reference = element.attrib.pop(f"{{{XLINK}}}href", None)
        if reference is not None:
            element.set("href", reference)
    svg = ElementTree.tostring(drawing, encoding="unicode")
    for name, color in PALETTE.items():
        svg = svg.replace(color, f"var(--{name})")
    return svg
