"""The table of run.py: `python benchmarks/tasks/results.py OUT` prints Markdown."""

from __future__ import annotations

import sys
from pathlib import Path

from litebert.metrics.spread import Spread
from litebert.runs import read_result, recorded_setting

SHOWN = {
    "cola": ("matthews",),
    "stsb": ("pearson", "spearman"),
    "mrpc": ("accuracy", "f1"),
    "squad": ("exact", "f1"),
    "squad2": ("exact", "f1"),
}


def main(out: Path) -> None:
    """Print a row for each task and measure: last steps, medians over seeds."""
    print("| task | measure | steps | pretrained | random weights |\n|---|---|---|---|---|")
    folders = sorted((out / "pretrained").iterdir())
    for folder in folders:
        for measure in SHOWN.get(folder.name, ("accuracy",)):
            steps = recorded_setting(next(iter(folder.glob("seed-*"))), "train.steps")
            cells = [_cell(out / kind / folder.name, measure) for kind in ("pretrained", "random")]
            print(f"| {folder.name} | {measure} | {steps} | {' | '.join(cells)} |")


def _cell(folder: Path, measure: str) -> str:
    runs = sorted(run for run in folder.glob("seed-*") if (run / "result.json").exists())
    if not runs:
        return "not run"
    values = []
    for run in runs:
        last = read_result(run)["last"]
        assert isinstance(last, dict)
        values.append(float(str(last[measure])))
    spread = Spread.of(values)
    scale = 1 if abs(spread.median) > 1 else 100
    seeds = "" if len(values) == 1 else f" ± {scale * spread.spread:.1f} ({len(values)} seeds)"
    return f"{scale * spread.median:.1f}{seeds}"


if __name__ == "__main__":
    main(Path(sys.argv[1]))
