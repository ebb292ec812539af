"""Several seeds of one fine-tuning: median, mean and spread, of last steps and of best ones."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from litebert.files import Json, read_json
from litebert.metrics.spread import Spread
from litebert.train.finetune import RESULT_FILE


def read_result(folder: Path) -> dict[str, Json]:
    """Return the result of a finished fine-tuning run."""
    return read_json(folder / RESULT_FILE, command=f"ls {folder}")


def summarise(folders: Sequence[Path]) -> dict[str, dict[str, Spread]]:
    """Summarise the runs of several seeds: every measure of `last` and of `best`, kept apart."""
    results = [read_result(folder) for folder in folders]
    summary: dict[str, dict[str, Spread]] = {}
    for choice in ("last", "best"):
        tables = [table for result in results if isinstance(table := result[choice], dict)]
        names = [name for name in tables[0] if name != "step"]
        summary[choice] = {
            name: Spread.of([float(str(table[name])) for table in tables]) for name in names
        }
    return summary
