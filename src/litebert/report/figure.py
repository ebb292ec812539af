"""Drawing: a chart becomes inline SVG; the only module that imports matplotlib."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Sequence
from functools import partial
from statistics import fmean, stdev
from typing import TYPE_CHECKING, Literal

from litebert.errors import LitebertError
from litebert.metrics import Calibration
from litebert.report.chart import Chart, Line, RowPoint
from litebert.report.markup import Html, escaped
from litebert.report.theme import PALETTE, variable

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_WIDTH, _HEIGHT = 5.4, 2.9  # inches; the page scales them
_SETTINGS = {
    "svg.fonttype": "none",
    "font.family": "DejaVu Sans",
    "font.size": 9.0,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.spines.left": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.edgecolor": PALETTE["grid"][0],
    "axes.labelcolor": PALETTE["quiet"][0],
    "grid.color": PALETTE["grid"][0],
    "xtick.color": PALETTE["grid"][0],
    "ytick.color": PALETTE["grid"][0],
    "xtick.labelcolor": PALETTE["quiet"][0],
    "ytick.labelcolor": PALETTE["quiet"][0],
    "ytick.major.size": 0.0,
    "legend.frameon": False,
    "legend.labelcolor": PALETTE["ink"][0],
}


def draw(chart: Chart) -> Html:
    """Draw a chart; the same chart gives the same text, in the page's light and dark colours."""
    return _drawn(chart.title, chart.description, partial(_fill, chart=chart))


def draw_reliability(title: str, description: str, calibration: Calibration) -> Html:
    """Draw how often answers are right by their confidence, beside how often they should be."""
    return _drawn(title, description, partial(_fill_bins, calibration=calibration))


def draw_rows(title: str, description: str, rows: Sequence[RowPoint]) -> Html:
    """Draw the rows of a table: our values below and the paper's above, each on its own axis."""
    return _drawn(title, description, partial(_fill_rows, rows=rows))


def chart_file(chart: Chart, kind: Literal["svg", "png"]) -> bytes:
    """Return a chart as a file of its own, in the light colours."""
    return _saved(chart.title, partial(_fill, chart=chart), kind)


def rows_file(title: str, rows: Sequence[RowPoint], kind: Literal["svg", "png"]) -> bytes:
    """Return the rows of a table as a file of its own."""
    return _saved(title, partial(_fill_rows, rows=rows), kind)


def draw_counts(title: str, description: str, counts: Sequence[int]) -> str:
    """Draw a bar for each count, by its place."""

    def fill(axes: Axes) -> None:
        axes.bar(range(len(counts)), counts, width=1.0, color=PALETTE["ink"][0])
        axes.set_xlabel(title)

    return str(_drawn(title, description, fill))


def _drawn(title: str, description: str, fill: Callable[[Axes], None]) -> Html:
    return _inline(_saved(title, fill, "svg", is_inline=True).decode("utf-8"), description)


def _saved(title: str, fill: Callable[[Axes], None], kind: Literal["svg", "png"], *, is_inline: bool = False) -> bytes:
    try:
        from matplotlib import style
        from matplotlib.figure import Figure
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
    own_ids = {"svg.hashsalt": title}
    with style.context({**_SETTINGS, **own_ids}, after_reset=True):
        figure = Figure(figsize=(_WIDTH, _HEIGHT), layout="constrained")
        figure.patch.set_visible(not is_inline)
        axes = figure.add_subplot()
        axes.patch.set_visible(False)
        fill(axes)
        figure.savefig(buffer, format=kind, metadata=omitted, dpi=160)
    return buffer.getvalue()


def _fill(axes: Axes, chart: Chart) -> None:
    from matplotlib.ticker import LogLocator, MaxNLocator, NullLocator

    if chart.is_logarithmic:
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        axes.yaxis.set_minor_locator(NullLocator())
    for line in chart.lines:
        _draw_line(axes, line)
    for rule in chart.rules:
        color = PALETTE["rule"][0]
        label = f"{rule.label} ({chart.written(rule.value)})"
        axes.axhline(rule.value, color=color, linestyle=(0, (5, 3)), linewidth=1.1, label=label)
    axes.set_xlabel("step")
    axes.grid(visible=False, axis="x")
    axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    axes.xaxis.set_major_formatter("{x:,.0f}")
    axes.yaxis.set_major_formatter(_share_tick if chart.is_share else "{x:,g}")
    if len(chart.lines) + len(chart.rules) > 1:
        axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=3, borderaxespad=0.2)


def _fill_bins(axes: Axes, calibration: Calibration) -> None:
    bins = calibration.bins
    axes.bar(
        [part.low for part in bins],
        [part.accuracy for part in bins],
        width=[part.high - part.low for part in bins],
        align="edge",
        color=PALETTE["train"][0],
        edgecolor=PALETTE["paper"][0],
        label="right",
    )
    ends = (0, 1)
    color = PALETTE["rule"][0]
    axes.plot(ends, ends, color=color, linestyle=(0, (5, 3)), linewidth=1.1, label="should be")
    axes.set_xlim(ends)
    axes.set_ylim(0, 1)
    axes.set_xlabel("confidence")
    axes.grid(visible=False, axis="x")
    axes.xaxis.set_major_formatter(_share_tick)
    axes.yaxis.set_major_formatter(_share_tick)
    axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=2, borderaxespad=0.2)


def _fill_rows(axes: Axes, rows: Sequence[RowPoint]) -> None:
    places = range(len(rows), 0, -1)
    ours = [(place, row) for place, row in zip(places, rows, strict=True) if row.values]
    axes.errorbar(
        [fmean(row.values) for _, row in ours],
        [place for place, _ in ours],
        xerr=[stdev(row.values) if len(row.values) > 1 else 0.0 for _, row in ours],
        fmt="o",
        color=PALETTE["train"][0],
        markersize=4.0,
        capsize=2.0,
        label="ours (below)",
    )
    axes.set_yticks(list(places), [row.label for row in rows])
    handles, labels = axes.get_legend_handles_labels()
    paper = [(place, row.paper) for place, row in zip(places, rows, strict=True) if row.paper]
    if paper:
        above = axes.twiny()
        above.grid(visible=False)
        color = PALETTE["held-out"][0]
        above.plot([x for _, x in paper], [y for y, _ in paper], "D", color=color, markersize=4.0)
        above.tick_params(labelcolor=color)
        above.set_xlabel("paper", color=color)
    axes.set_xlabel(labels[0] if handles else "nothing measured")


def _share_tick(value: float, _: float) -> str:
    return f"{100 * value:g}%"


def _draw_line(axes: Axes, line: Line) -> None:
    steps = [point.step for point in line.points]
    color = PALETTE[line.color][0]
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


def _inline(svg: str, description: str) -> Html:
    """Turn an SVG file into an element of a page, with a description for screen readers."""
    label = escaped(description)
    body = svg[svg.index("<svg ") :].replace("xlink:href", "href")
    body = re.sub(r"<defs>\s*<style.*?</style>\s*</defs>", "", body, flags=re.DOTALL)
    body = re.sub(r'<g id="[^"]*"(/?)>', r"<g\1>", body)
    body = re.sub(r'\b(?:d|x|y|transform)="[^"]*"', _rounded, body)
    for name, (light, _) in PALETTE.items():
        body = body.replace(light, variable(name))
    opening, content = body.split(">", 1)
    box = re.search(r'viewBox="[^"]*"', opening)
    assert box
    return Html(f'<svg role="img" aria-label="{label}" {box[0]}>{content.strip()}')


def _rounded(attribute: re.Match[str]) -> str:
    """Round to hundredths of a point, which is invisible."""
    return re.sub(r"(\.\d\d)\d+", r"\1", attribute[0])
