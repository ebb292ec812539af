"""Pages: sections of text, figures and tables, rendered with one template and one style
sheet.

Figures are curves by step, rows of a table, and reliability diagrams; matplotlib draws
them, inline or as files.
"""

import html
import io
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from statistics import fmean, stdev
from typing import TYPE_CHECKING, Any, NamedTuple

import jinja2

import litebert
from litebert.errors import missing_package
from litebert.report.tables import Table, format_cell, format_share
from litebert.runs import LogRow, Run

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# points of a curve; up to the second number, each also gets a marker
MOST_POINTS = 120
MOST_MARKED = 50
PALETTE = {
    "paper": "#fcfbf8",
    "panel": "#f4f2ed",
    "ink": "#24272c",
    "quiet": "#5b616b",
    "grid": "#e0ddd5",
}
PALETTE |= {"train": "#2a69ac", "held-out": "#b04a12", "rule": "#6d6a63"}
"""The light colours; inline figures use the page's variables instead, which page.css
redefines for dark mode.
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
SETTINGS: dict[str, Any] = {
    "svg.fonttype": "none",
    "font.family": "DejaVu Sans",
    "font.size": 9.0,
}
SETTINGS |= {
    "axes.grid": True,
    "axes.axisbelow": True,
    "ytick.major.size": 0.0,
    "legend.frameon": False,
}
SETTINGS |= {f"axes.spines.{side}": False for side in ("top", "right", "left")}
SETTINGS |= dict.fromkeys(
    ("axes.edgecolor", "grid.color", "xtick.color", "ytick.color"), PALETTE["grid"]
)
SETTINGS |= dict.fromkeys(
    ("axes.labelcolor", "xtick.labelcolor", "ytick.labelcolor"), PALETTE["quiet"]
)
SETTINGS |= {"legend.labelcolor": PALETTE["ink"]}


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


def curve_of(
    rows: Sequence[LogRow], name: str, *, most_points: int = MOST_POINTS
) -> list[Point]:
    """Return at most `most_points` points; every finite value is within the range of
    its point.

    >>> rows = [LogRow.model_validate({"kind": "train", "step": n, "loss": 4.0 / n}) for n in (1, 2, 4)]
    >>> curve_of(rows, "loss", most_points=2)
    [Point(step=2, mean=3.0, low=2.0, high=4.0), Point(step=4, mean=1.0, low=1.0, high=1.0)]
    """  # noqa: E501
    # by step; with several seeds, one value from each
    values: dict[int, list[float]] = {}
    for row in rows:
        if name in row.values:
            values.setdefault(row.step, []).append(row.values[name])
    steps = sorted(values)
    points = []
    # this many neighbouring steps become one point
    size = max(1, math.ceil(len(steps) / most_points))
    for at in range(0, len(steps), size):
        merged = steps[at : at + size]
        some = [value for step in merged for value in values[step]]
        points.append(Point(merged[-1], fmean(some), min(some), max(some)))
    return points


def chart(
    title: str,
    caption: str,
    lines: Sequence[Line],
    write: Callable[[float], str],
    *,
    rule: tuple[str, float] | None = None,
    is_logarithmic: bool = False,
) -> list[Figure]:
    """Return curves as a figure, or none if no line has a point; `write` turns values
    into text.

    `rule` is the name and the value of a constant to compare with.
    """
    lines = [line for line in lines if line.points]
    if not lines:
        return []
    said = []
    for line in lines:
        first, last = (
            f"{write(point.mean)} at step {point.step:,}"
            for point in (line.points[0], line.points[-1])
        )
        said.append(f"{line.label} from {first} to {last}")
    said += [f"{rule[0]} {write(rule[1])}"] if rule else []

    def fill(axes: "Axes") -> None:
        from matplotlib.ticker import LogLocator, MaxNLocator, NullLocator

        if is_logarithmic:
            axes.set_yscale("log")
            axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
            axes.yaxis.set_minor_locator(NullLocator())
        for line in lines:
            color = PALETTE[line.color]
            steps, means, lows, highs = zip(*line.points, strict=True)
            if lows != highs:
                axes.fill_between(
                    steps, lows, highs, color=color, alpha=0.16, linewidth=0
                )
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
        if rule:
            axes.axhline(rule[1], label=f"{rule[0]} ({write(rule[1])})", **DASHED)
        axes.set_xlabel("step")
        axes.grid(visible=False, axis="x")
        axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
        axes.xaxis.set_major_formatter("{x:,.0f}")
        axes.yaxis.set_major_formatter(
            (lambda x, _: f"{100 * x:g}%") if write is format_share else "{x:,g}"
        )
        if rule or len(lines) > 1:
            axes.legend(**LEGEND)

    return [Figure(title, caption, f"{title}: {'; '.join(said)}.", fill)]


def chart_of(
    run: Run,
    name: str,
    title: str,
    caption: str,
    write: Callable[[float], str],
    **how: Any,
) -> list[Figure]:
    """Return the figure of one value of a run, or of its mean over seeds."""
    runs = run.seeds or (run,)
    training = [row for each in runs for row in each.training]
    held_out = [row for each in runs for row in each.evaluations]
    curves = curve_of(training, name), curve_of(held_out, name)
    lines = [
        Line("training", "train", curves[0]),
        Line("held out", "held-out", curves[1]),
    ]
    return chart(title, caption, lines, write, **how)


def rate_charts(run: Run) -> list[Figure]:
    """Return the figures of any training: learning rate, gradient norm, speed."""
    norms = [
        row.values["gradient_norm"]
        for row in run.training
        if "gradient_norm" in row.values
    ]
    clip = run.settings.get("optim.clip_norm")
    # A limit far above the norms would flatten their curve.
    is_near = isinstance(clip, int | float) and 0 < clip <= 3 * max(norms, default=0.0)
    rule = ("clipped at", float(str(clip))) if is_near else None
    is_wide = bool(norms) and 0 < 10 * min(norms) < max(norms)
    norm_caption = "Before clipping, of the last step of each log line."
    three = "{:.3g}".format
    return [
        *chart_of(run, "learning_rate", "Learning rate", "As scheduled.", three),
        *chart_of(
            run,
            "gradient_norm",
            "Gradient norm",
            norm_caption,
            three,
            rule=rule,
            is_logarithmic=is_wide,
        ),
        *chart_of(
            run,
            "tokens_per_second",
            "Tokens per second",
            "Padding is not counted.",
            "{:,.0f}".format,
        ),
    ]


# ---- other figures -------------------------------------------------------------------


def rows_figure(
    title: str, caption: str, rows: Mapping[str, Sequence[float]]
) -> Figure:
    """Return a figure of rows from top to bottom, each with the mean and deviation of
    its values.
    """

    def fill(axes: "Axes") -> None:
        places = range(len(rows), 0, -1)
        axes.set_yticks(places, list(rows))
        dots: dict[str, Any] = {
            "fmt": "o",
            "color": PALETTE["train"],
            "markersize": 4.0,
            "capsize": 2.0,
        }
        for place, values in zip(places, rows.values(), strict=True):
            if values:
                axes.errorbar(
                    fmean(values),
                    place,
                    xerr=stdev(values) if len(values) > 1 else 0.0,
                    **dots,
                )

    said = (
        f"{label}: {format_cell(fmean(values) if values else None)}"
        for label, values in rows.items()
    )
    return Figure(title, caption, f"{title}: {'; '.join(said)}.", fill)


def reliability_figure(title: str, bins: Sequence[tuple[float, float, int]]) -> Figure:
    """Return a figure of accuracy by confidence; each bin is its mean confidence,
    accuracy and count.
    """
    said = (
        f"{sure:.0%} sure, {right:.0%} right ({count:,})" for sure, right, count in bins
    )

    def fill(axes: "Axes") -> None:
        axes.plot(
            [sure for sure, _, _ in bins],
            [right for _, right, _ in bins],
            "o-",
            color=PALETTE["train"],
        )
        axes.plot((0, 1), (0, 1), label="ideal", **DASHED)
        axes.set(xlim=(0, 1), ylim=(0, 1), xlabel="confidence", ylabel="right")
        axes.xaxis.set_major_formatter("{x:.0%}")
        axes.yaxis.set_major_formatter("{x:.0%}")
        axes.legend(**LEGEND)

    return Figure(
        title,
        "Below the line: more confident than right.",
        f"{title}: {'; '.join(said)}.",
        fill,
    )


# ---- drawing -------------------------------------------------------------------------


def picture(figure: Figure, *, is_inline: bool = False) -> str:
    """Return a figure as SVG text, in the light colours; the same figure always gives
    the same bytes.
    """
    try:
        from matplotlib import style
        from matplotlib.figure import Figure as Canvas
    except ImportError as error:
        raise missing_package(
            "matplotlib", extra="report", needed_for="figures"
        ) from error
    buffer = io.StringIO()
    with style.context({**SETTINGS, "svg.hashsalt": figure.title}, after_reset=True):
        canvas = Canvas(figsize=SIZE, layout="constrained")
        canvas.patch.set_visible(not is_inline)
        axes = canvas.add_subplot()
        axes.patch.set_visible(False)
        figure.fill(axes)
        canvas.savefig(
            buffer,
            format="svg",
            metadata=dict.fromkeys(("Creator", "Date", "Format", "Type")),
        )
    return buffer.getvalue()


def draw(figure: Figure) -> str:
    """Return an SVG element for a page, with light and dark colours and a description
    for screen readers.
    """
    svg = picture(figure, is_inline=True).replace("xlink:href", "href")
    for name, light in PALETTE.items():
        svg = svg.replace(light, f"var(--{name})")
    # it would apply to the whole page
    svg = re.sub(r"<defs>\s*<style.*?</style>\s*</defs>", "", svg, flags=re.DOTALL)
    svg = re.sub(r'<g id="[^"]*"(/?)>', r"<g\1>", svg)  # every figure has the same ids
    opening = f'<svg role="img" aria-label="{html.escape(figure.description)}"'
    # of any size
    found = re.search(r'<svg [^>]*(viewBox="[^"]*")[^>]*>(.*)', svg, re.DOTALL)
    assert found
    return f"{opening} {found[1]}>{found[2].strip()}"


# ---- the page ------------------------------------------------------------------------


@dataclass(frozen=True)
class Section:
    """A part of a page, with its content in this order; a section without content is
    left out.
    """

    title: str
    words: Sequence[str] = ()
    figures: Sequence[Figure] = ()  # side by side if there is room
    tables: Sequence[Table] = ()
    folded: Sequence[Table] = ()  # collapsed until the reader opens them
    # lines to copy, by their purpose
    commands: Mapping[str, Sequence[str]] = field(default_factory=dict)


@dataclass(frozen=True)
class Page:
    """A page: title, overview, sections, and the files that it was made from."""

    name: str
    kind: str
    sections: Sequence[Section]
    sources: str
    status: str = ""
    facts: Mapping[str, str] = field(default_factory=dict)  # empty ones are not shown

    def html(self) -> str:
        folder = files("litebert.report")
        style = (folder / "page.css").read_text("utf-8").partition("*/\n")[2]
        environment = jinja2.Environment(
            autoescape=True,
            undefined=jinja2.StrictUndefined,
            keep_trailing_newline=True,
        )
        template = environment.from_string((folder / "page.html").read_text("utf-8"))
        given = {
            "palette": PALETTE,
            "style": style,
            "draw": draw,
            "zip": zip,
            "version": litebert.__version__,
        }
        page = template.render(page=self, **given)
        # a file name may contain bytes that are not UTF-8
        return page.encode("utf-8", "replace").decode("utf-8")
