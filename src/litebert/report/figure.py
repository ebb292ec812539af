"""Drawing: a chart becomes inline SVG; the only module that imports matplotlib."""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from litebert.errors import LitebertError
from litebert.metrics import Calibration
from litebert.report.chart import Chart, Line
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
    """Draw a chart; the same chart gives the same text, in the page's colours by day and night."""
    return _drawn(chart.title, chart.description, partial(_fill, chart=chart))


def draw_reliability(title: str, description: str, calibration: Calibration) -> Html:
    """Draw how often answers are right by their confidence, beside how often they should be."""
    return _drawn(title, description, partial(_fill_bins, calibration=calibration))


def _drawn(title: str, description: str, fill: Callable[[Axes], None]) -> Html:
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
    buffer = io.StringIO()
    unsaid = dict.fromkeys(("Creator", "Date", "Format", "Type"))
    own_ids = {"svg.hashsalt": title}
    with style.context({**_SETTINGS, **own_ids}, after_reset=True):
        figure = Figure(figsize=(_WIDTH, _HEIGHT), layout="constrained")
        figure.patch.set_visible(False)
        axes = figure.add_subplot()
        axes.patch.set_visible(False)
        fill(axes)
        figure.savefig(buffer, format="svg", metadata=unsaid)
    return _inline(buffer.getvalue(), description)


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
    """Cut a file of its own down to a part of a page, described for who cannot see it."""
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
    """Keep hundredths of a point, which nobody sees."""
    return re.sub(r"(\.\d\d)\d+", r"\1", attribute[0])
