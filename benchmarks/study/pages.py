"""Write the tables of the studies into their pages: `python -m benchmarks.study.pages`.

A table stands between `<!-- NAME -->` and `<!-- end -->`; its figures are those of
NAME.json, next to this script. tests/docs/test_pages.py checks that the pages have
exactly these tables.
"""

import re
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TypeAlias

from benchmarks.measure import table
from benchmarks.study.grids import (
    ALWAYS_SHOWN,
    CROSSED,
    MEASURE,
    Ablation,
    AblationRow,
)
from benchmarks.study.layers import Layers
from benchmarks.study.study import read_findings
from litebert.files import write_text
from litebert.metrics import Spread

HERE = Path(__file__).parent
PAGES = (HERE.parents[1] / "docs" / "study.md", HERE / "RESULTS.md")
BLOCK = re.compile(r"(<!-- ([\w-]+) -->\n).*?(<!-- end -->)", re.DOTALL)

CellOf: TypeAlias = Callable[[AblationRow], str]


def page_with_tables(page: str) -> str:
    """Return the page with every table made again from its metrics file."""
    return BLOCK.sub(_block_with_table, page)


def _block_with_table(block: re.Match[str]) -> str:
    begin, name, end = block.groups()
    if name == "layers":
        return f"{begin}{layers_table()}\n\n{end}"
    (ablation,) = read_findings(Ablation, HERE, name)
    return f"{begin}{ablation_table(ablation)}\n\n{end}"


# ---- a table of the paper ------------------------------------------------------------


def ablation_table(ablation: Ablation) -> str:
    """Return the trained rows as a table, then a line on the others, and the verdict."""
    columns = _columns(ablation)
    lines = list[list[str]]()
    predictions = list[str]()
    for row in ablation.rows:
        if row.trials:
            lines.append([cell_of(row) for cell_of in columns.values()])
        else:
            predictions.append(f"{row.label} ({row.predicted_cpu_seconds:.0f} CPU s)")
    parts = [table(list(columns), lines)]
    if predictions:
        parts.append(f"Predicted and not trained: {', '.join(predictions)}.")
    verdict, _, _ = ablation.verdict.partition(" Not trained:")
    parts.append(verdict)
    return "\n\n".join(parts)


def _columns(ablation: Ablation) -> dict[str, CellOf]:
    """Return the columns from left to right: the heading, and what gives its cells."""
    source = "" if ablation.source.endswith("no table") else ablation.source
    columns: dict[str, CellOf] = {source: lambda row: row.label}
    if any(row.paper is not None for row in ablation.rows):
        columns["paper"] = lambda row: str(row.paper or "")
    columns["each seed"] = _value_of_each_seed
    columns["mean"] = partial(_mean, measure=MEASURE)
    others = [name for name in ablation.columns if name not in ALWAYS_SHOWN]
    for measure in others:
        if measure not in CROSSED:  # a probe, behind the crossed objectives
            columns[measure] = partial(_mean, measure=measure)
        elif measure.endswith("_accuracy"):
            columns[measure[:3].upper()] = partial(_mean, measure=measure)
    columns["steps"] = lambda row: f"{row.trials[0].steps:,}"
    columns["body, K"] = lambda row: f"{row.trials[0].body / 1_000:.0f}"
    columns["CPU s"] = _cpu_seconds
    return columns


def _value_of_each_seed(row: AblationRow) -> str:
    return ", ".join(f"{100 * value:.1f}" for value in row.values(MEASURE))


def _mean(row: AblationRow, measure: str) -> str:
    """Return mean and deviation over the seeds, in percent."""
    values = row.values(measure)
    if not values:
        return ""
    spread = Spread.of(values)
    mean = f"{100 * spread.mean:.1f}"
    if spread.number == 1:
        return mean
    return f"{mean} ± {100 * spread.spread:.1f}"


def _cpu_seconds(row: AblationRow) -> str:
    seconds = [trial.cpu_seconds for trial in row.trials]
    return f"{Spread.of(seconds).mean:.0f}"


# ---- Figure 1 of the paper -----------------------------------------------------------


def layers_table() -> str:
    """Return a row for each network: what its steps do beyond the trained depth."""
    networks = read_findings(Layers, HERE, "layers-*")
    depths = [fate.depth for fate in networks[0].fates]
    headings = [
        "network",
        "steps",
        "blocks",
        *(f"at {depth}" for depth in depths),
        f"moves at {depths[-1]}",
        "eigenvalue, trained depth",
        f"at {depths[-1]}",
    ]
    return table(headings, [_layers_row(network) for network in networks])


def _layers_row(network: Layers) -> Sequence[object]:
    return [
        network.source,
        network.num_steps,
        network.steps[-1].block,
        *(fate.verdict for fate in network.fates),
        f"{100 * network.fates[-1].residual:.1f} %",
        f"{network.eigenvalue_at_depth:.2f}",
        f"{network.eigenvalue_at_end:.2f}",
    ]


if __name__ == "__main__":
    for path in PAGES:
        write_text(path, page_with_tables(path.read_text("utf-8")))
