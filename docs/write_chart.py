"""Draw README's chart of speeds from benchmarks/RESULTS.md: `python docs/write_chart.py`.

It shows how many tokens a second each program reads, texts in the order of their files,
for ALBERT-base on one thread. There is a light and a dark picture.
"""

import io
import re
from pathlib import Path

from matplotlib import style
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from litebert.files import write_text
from litebert.report.figures import STYLE

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks/RESULTS.md"
SECTION = "## Speed on a Xeon with AMX"
PRECISIONS = ("fp32", "bf16", "int8")
PROGRAMS = ("transformers", "onnxruntime", "openvino", "litebert")
NAMES = {"openvino": "OpenVINO"}  # as their makers write them
THEMES = {
    "light": {"ink": "#24272c", "other": "#9aa3ad", "litebert": "#2a69ac"},
    "dark": {"ink": "#e3e5e9", "other": "#6b7480", "litebert": "#6aa9e9"},
}
GAP = 0.7  # between the groups of bars, in bars


def read_speeds() -> dict[str, dict[str, int]]:
    """Return the tokens a second of the streams by precision and program."""
    text = RESULTS.read_text("utf-8")
    section = text[text.index(SECTION) :]
    row = re.compile(r"\| stream \| (\w+) (\w+) \| [\d.,]+ \| ([\d,]+) \|")
    speeds: dict[str, dict[str, int]] = {precision: {} for precision in PRECISIONS}
    for program, precision, tokens in row.findall(section):
        if program in PROGRAMS:
            speeds[precision].setdefault(program, int(tokens.replace(",", "")))
    return speeds


def draw(theme: str) -> str:
    """Return the chart as SVG text."""
    # The page is behind the picture, so it has no ground of its own.
    changes = {"savefig.transparent": True, "svg.hashsalt": "speed"}
    with style.context({**STYLE, **changes}, after_reset=True):
        figure = Figure(figsize=(7.2, 3.4), layout="constrained")
        fill(figure.add_subplot(), THEMES[theme])
        buffer = io.StringIO()
        nothing = dict.fromkeys(("Creator", "Date", "Format", "Type"))
        figure.savefig(buffer, format="svg", metadata=nothing)
    return buffer.getvalue()


def fill(axes: Axes, colors: dict[str, str]) -> None:
    """Draw a group of bars per precision, from top to bottom."""
    heights = dict[float, str]()  # the label at each height
    height = 0.0
    for precision, speeds in read_speeds().items():
        for program in PROGRAMS:
            if program not in speeds:
                continue
            is_litebert = program == "litebert"
            speed = speeds[program]
            heights[height] = f"{NAMES.get(program, program)}, {precision}"
            color = colors["litebert"] if is_litebert else colors["other"]
            weight = "bold" if is_litebert else "normal"
            axes.barh(height, speed, color=color)
            axes.text(
                speed,
                height,
                f" {speed:,}",
                va="center",
                color=colors["ink"],
                weight=weight,
            )
            height -= 1
        height -= GAP
    axes.set_yticks(list(heights), list(heights.values()), color=colors["ink"])
    axes.set_xticks([])
    axes.grid(visible=False)
    axes.spines["bottom"].set_visible(False)
    axes.margins(x=0.1, y=0.01)


if __name__ == "__main__":
    for theme in THEMES:
        write_text(ROOT / f"docs/images/speed-{theme}.svg", draw(theme))
