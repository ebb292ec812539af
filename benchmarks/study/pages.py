"""Make the tables of the studies from the metrics files next to this script: python -m
benchmarks.study.pages.

A table is between `<!-- NAME -->` and `<!-- end -->`, where NAME.json is its metrics
file; what is between them is replaced. tests/docs/test_pages.py compares them.
"""

import json
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from benchmarks.measure import table as markdown
from benchmarks.study.grids import ALWAYS_SHOWN, CROSSED, MEASURE, Ablation, read_grids
from benchmarks.study.layers import Layers
from benchmarks.study.study import read_findings
from litebert.files import write_text
from litebert.metrics import Spread

HERE = Path(__file__).parent
PAGES = (HERE.parents[1] / "docs" / "study.md", HERE / "RESULTS.md")
BLOCK = re.compile(r"(<!-- ([\w-]+) -->\n).*?(<!-- end -->)", re.DOTALL)


def page_with_tables(page: str) -> str:
    """Return the page with every table made from its metrics file."""
    return BLOCK.sub(lambda found: f"{found[1]}{table(found[2])}\n{found[3]}", page)


def table(name: str) -> str:
    """Return one ablation as a table in Markdown, and its verdict; or the rows of
    another file.
    """
    if name == "layers":
        return f"{_layers()}\n"
    if name not in read_grids().tables:
        values = json.loads((HERE / f"{name}.json").read_text("utf-8")).values()
        lists = [rows for rows in values if isinstance(rows, list)]
        return (
            "\n\n".join(
                markdown(list(rows[0]), [_shown(row.values()) for row in rows])
                for rows in lists
            )
            + "\n"
        )
    (found,) = read_findings(Ablation, HERE, name)
    has_paper = any(row.paper is not None for row in found.rows)
    crossed = [
        name for name in found.columns if name in CROSSED and name.endswith("_accuracy")
    ]
    probes = [name for name in found.columns if name not in (*ALWAYS_SHOWN, *CROSSED)]
    headings = [
        "" if found.source.endswith("no table") else found.source,
        *(["paper"] if has_paper else []),
    ]
    headings += [
        "each seed",
        "mean",
        *(name[:3].upper() for name in crossed),
        *probes,
        "steps",
        "body, K",
        "CPU s",
    ]
    lines = []
    for row in (row for row in found.rows if row.trials):
        values = row.values(MEASURE)
        first = row.trials[0]
        cells = [row.label, *([f"{row.paper or ''}"] if has_paper else [])]
        cells += [", ".join(f"{100 * value:.1f}" for value in values), _mean(values)]
        cells += [_mean(row.values(name)) for name in (*crossed, *probes)]
        seconds = Spread.of([trial.cpu_seconds for trial in row.trials]).mean
        lines.append(
            [*cells, f"{first.steps:,}", f"{first.body / 1_000:.0f}", f"{seconds:.0f}"]
        )
    left_out = [
        f"{row.label} ({row.predicted_cpu_seconds:.0f} CPU s)"
        for row in found.rows
        if not row.trials
    ]
    missing = (
        f"\n\nPredicted and not trained: {', '.join(left_out)}." if left_out else ""
    )
    return f"{markdown(headings, lines)}{missing}\n\n{found.verdict.partition(' Not trained:')[0]}\n"  # noqa: E501


def _layers() -> str:
    """Return Figure 1 of every network: its verdicts beyond the trained depth, the
    eigenvalues.
    """
    found = read_findings(Layers, HERE, "layers-*")
    depths = [fate.depth for fate in found[0].fates]
    headings = ["network", "steps", "blocks", *(f"at {depth}" for depth in depths)]
    headings += [
        f"moves at {depths[-1]}",
        "eigenvalue, trained depth",
        f"at {depths[-1]}",
    ]
    lines = []
    for each in found:
        cells = [
            each.source,
            each.num_steps,
            each.steps[-1].block,
            *(fate.verdict for fate in each.fates),
        ]
        values = (each.eigenvalue_at_depth, each.eigenvalue_at_end)
        lines.append(
            [
                *cells,
                f"{100 * each.fates[-1].residual:.1f} %",
                *(f"{value:.2f}" for value in values),
            ]
        )
    return markdown(headings, lines)


def _shown(cells: Iterable[object]) -> list[str]:
    """Format floats with three decimals, and counts without any."""
    return [
        (
            ", ".join(_shown(cell))
            if isinstance(cell, list)
            else f"{cell:.3f}"
            if isinstance(cell, float)
            else str(cell)
        )
        for cell in cells
    ]


def _mean(values: Sequence[float]) -> str:
    if not values:
        return ""
    spread = Spread.of(values)
    return f"{100 * spread.mean:.1f}" + (
        f" ± {100 * spread.spread:.1f}" if len(values) > 1 else ""
    )


if __name__ == "__main__":
    for page in PAGES:
        write_text(page, page_with_tables(page.read_text("utf-8")))
