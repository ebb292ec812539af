"""The tables of docs/study.md out of the metrics files beside this script.

    python -m benchmarks.study.tables

A table stands between `<!-- NAME -->` and `<!-- end -->`, where NAME.json is its metrics file; what
is between them is replaced. tests/docs/test_study_tables.py compares them.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Iterable
from pathlib import Path

from benchmarks.measure import table as markdown
from litebert.files import write_text
from litebert.metrics import Spread
from litebert.study.ablation import MEASURE, Ablation, AblationRow, grids, read_ablation, shared_probes
from litebert.study.findings import Depths, Layers

HERE = Path(__file__).parent
PAGE = HERE.parents[1] / "docs" / "study.md"
BLOCK = re.compile(r"(<!-- ([\w-]+) -->\n).*?(<!-- end -->)", re.DOTALL)
CROSSED = {"nsp_accuracy": "NSP", "sop_accuracy": "SOP"}


def page_with_tables(page: str) -> str:
    """Return the page with every table made from its metrics file."""
    return BLOCK.sub(lambda found: f"{found[1]}{table(found[2])}\n{found[3]}", page)


def table(name: str) -> str:
    """Return one ablation as a table in Markdown, and its verdict; or the rows of another file."""
    if name in ("layers", "depths"):
        return _layers() if name == "layers" else _depths()
    if name not in grids():
        return _rows(name)
    found = read_ablation(HERE / f"{name}.json")
    extra = _extra(found)
    headings = ["" if found.source.endswith("no table") else found.source, *(["paper"] if _has_paper(found) else [])]
    headings += ["each seed", "mean", *extra.values(), "steps", "body, K", "CPU s"]
    lines = markdown(headings, [_cells(row, found, extra) for row in found.rows if row.trials])
    left_out = [f"{row.label} ({row.predicted_cpu_seconds:.0f} CPU s)" for row in found.rows if not row.trials]
    missing = f"\n\nPredicted and not trained: {', '.join(left_out)}." if left_out else ""
    verdict = found.verdict.partition(" Not trained:")[0]
    return f"{lines}{missing}\n\n{verdict}\n"


def _layers() -> str:
    """Return Figure 1 of every network: its verdicts beyond the trained depth, the eigenvalues."""
    found = [Layers.model_validate(json.loads(path.read_text("utf-8"))) for path in sorted(HERE.glob("layers-*.json"))]
    depths = [fate.depth for fate in found[0].fates]
    headings = ["network", "steps", "blocks", *(f"at {depth}" for depth in depths)]
    headings += [f"moves at {depths[-1]}", "eigenvalue, trained depth", f"at {depths[-1]}"]
    lines = []
    for each in found:
        cells = [each.source, each.num_steps, each.steps[-1].block, *(fate.verdict for fate in each.fates)]
        values = (each.eigenvalue_at_depth, each.eigenvalue_at_end)
        lines.append([*cells, f"{100 * each.fates[-1].residual:.1f} %", *(f"{value.modulus:.2f}" for value in values)])
    return markdown(headings, lines) + "\n"


def _depths() -> str:
    """Return masked-LM loss, accuracy and time by depth, for every network that was measured."""
    found = [Depths.model_validate(json.loads(path.read_text("utf-8"))) for path in sorted(HERE.glob("depth-*.json"))]
    lines = [
        [each.source, one.depth, f"{one.loss:.3f}", f"{100 * one.accuracy:.1f} %", f"{one.microseconds:.1f}"]
        for each in found
        for one in each.depths
    ]
    return markdown(["network", "depth", "loss", "accuracy", "µs a token"], lines) + "\n"


def _rows(name: str) -> str:
    """Return each list of rows in a metrics file as a table."""
    values = json.loads((HERE / f"{name}.json").read_text("utf-8")).values()
    lists = [rows for rows in values if isinstance(rows, list)]
    return "\n\n".join(markdown(list(rows[0]), [_shown(row.values()) for row in rows]) for rows in lists) + "\n"


def _shown(cells: Iterable[object]) -> list[str]:
    """Write numbers with three digits after the point, counts without."""
    return [
        ", ".join(_shown(cell)) if isinstance(cell, list) else f"{cell:.3f}" if isinstance(cell, float) else str(cell)
        for cell in cells
    ]


def _extra(found: Ablation) -> dict[str, str]:
    """Return the measures beside the accuracy at [MASK], with their headings."""
    trials, grid = [trial for row in found.rows for trial in row.trials], grids()[found.name]
    names = {name for trial in trials for name in trial.measures}
    extra: dict[str, str] = {}
    if grid.measures_depths:
        depths = sorted(int(n.rpartition("_")[2]) for n in names if n.startswith(f"{MEASURE}_at_"))
        extra = {f"{MEASURE}_at_{depth}": f"at depth {depth}" for depth in depths}
    if grid.crosses_objectives:
        extra |= {name: heading for name, heading in CROSSED.items() if name in names}
    return extra | {f"probe {name}": name for name in shared_probes(found.rows)}


def _cells(row: AblationRow, found: Ablation, extra: dict[str, str]) -> list[str]:
    first = row.trials[0]
    values = row.values(MEASURE)
    cells = [row.label, *([f"{row.paper or ''}"] if _has_paper(found) else [])]
    cells += [", ".join(f"{100 * value:.1f}" for value in values), _mean(values)]
    for name in extra:
        probe = name.removeprefix("probe ")
        probed = [trial.probes[probe] for trial in row.trials if probe in trial.probes]
        cells.append(_mean(probed if name.startswith("probe ") else row.values(name)))
    seconds = Spread.of([trial.cpu_seconds for trial in row.trials]).mean
    return [*cells, f"{first.steps:,}", f"{first.body / 1_000:.0f}", f"{seconds:.0f}"]


def _has_paper(found: Ablation) -> bool:
    return any(row.paper is not None for row in found.rows)


def _mean(values: list[float]) -> str:
    if not values:
        return ""
    spread = Spread.of(values)
    mean = f"{100 * spread.mean:.1f}"
    return f"{mean} ± {100 * spread.spread:.1f}" if len(values) > 1 else mean


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__).parse_args()
    write_text(PAGE, page_with_tables(PAGE.read_text("utf-8")))
