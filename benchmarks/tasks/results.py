"""The table of run.py: `python benchmarks/tasks/results.py OUT` prints Markdown."""

from __future__ import annotations

import sys
from pathlib import Path

from litebert.metrics import Spread
from litebert.runs import read_result, recorded_setting

SHOWN = {
    "cola": ("matthews",),
    "stsb": ("pearson", "spearman"),
    "mrpc": ("accuracy", "f1"),
    "squad": ("exact", "f1"),
    "squad2": ("exact", "f1"),
}


def main(out: Path) -> None:
    """Print a row for each task and measure, a column for each model: the last steps."""
    names = sorted(folder.name for folder in out.iterdir() if folder.name != "data")
    print(f"| task | measure | steps | commonest label | {' | '.join(names)} |")
    print("|---" * (4 + len(names)) + "|")
    for task in sorted({folder.name for name in names for folder in (out / name).iterdir()}):
        runs = [run for name in names for run in finished(out / name / task)]
        steps = recorded_setting(runs[0], "train.steps") if runs else None
        for measure in SHOWN.get(task, ("accuracy",)):
            cells = [_cell(out / name / task, measure) for name in names]
            least = f"{100 * read_result(runs[0]).baseline.get(measure, 0):.1f}" if runs else "-"
            print(f"| {task} | {measure} | {steps} | {least} | {' | '.join(cells)} |")


def finished(folder: Path) -> list[Path]:
    """Return the runs of a task, a seed each, that have their result."""
    return sorted(run for run in folder.glob("seed-*") if (run / "result.json").exists())


def _cell(folder: Path, measure: str) -> str:
    values = [read_result(run).last.measures[measure] for run in finished(folder)]
    if not values:
        return "-"
    spread = Spread.of(values)
    scale = 1 if abs(spread.median) > 1 else 100
    seeds = "" if len(values) == 1 else f" ± {scale * spread.spread:.1f} ({len(values)} seeds)"
    return f"{scale * spread.median:.1f}{seeds}"


if __name__ == "__main__":
    main(Path(sys.argv[1]))
