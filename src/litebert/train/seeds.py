"""Several seeds of one fine-tuning: median, mean and spread, of last steps and of best ones."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from litebert.metrics.spread import Spread
from litebert.runs import read_result


def summarise(folders: Sequence[Path]) -> dict[str, dict[str, Spread]]:
    """Summarise the runs of several seeds: every measure of `last` and of `best`, kept apart."""
    results = [result for folder in folders if (result := read_result(folder))]
    kept = {"last": [r.last.measures for r in results], "best": [r.best.measures for r in results]}
    return {
        choice: {name: Spread.of([table[name] for table in tables]) for name in tables[0]}
        for choice, tables in kept.items()
    }
