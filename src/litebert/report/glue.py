"""The tasks of GLUE in one table: yours, and a row of the paper for each."""

from __future__ import annotations

from collections.abc import Mapping

from litebert.report.finetuning.paper import comparability, nearest, percent, preset_of
from litebert.report.runs import median, outcomes
from litebert.report.seeds import RecordOrSeeds, first_of
from litebert.report.table import Cell, Table

_DECIMALS = 2
"""Decimals of percentages, which are rounded once for all formats."""


def glue_table(runs: Mapping[str, RecordOrSeeds]) -> Table:
    """Return a row per finished task, in percent; for several seeds, their median."""
    headings = ("task", "measure", "last", "best", "seeds", "published", "model", "source")
    rows = tuple(_line(task, run) for task, run in runs.items())
    return Table(headings, rows, decimals=_DECIMALS)


def remarks(runs: Mapping[str, RecordOrSeeds]) -> list[str]:
    """Say how the table is to be read."""
    compared = dict.fromkeys(comparability(first_of(run)) for run in runs.values())
    return [
        "Percent on dev. last: the last step; best: the best evaluation, which was chosen on dev "
        "itself. Over several seeds, both are medians.",
        *compared,
    ]


def _line(task: str, run: RecordOrSeeds) -> tuple[Cell, ...]:
    reached = outcomes(run)
    measure = reached[0].measure
    assert measure is not None, "a finished run has a key measure"
    score = nearest(task, measure, preset_of(first_of(run)))
    found = [median(measure, [getattr(o, name) for o in reached]) for name in ("last", "best")]
    yours = [None if value is None else round(percent(task, value), _DECIMALS) for value in found]
    if score is None:
        return task, measure, *yours, len(reached), None, None, None
    source = f"{score.table}, row {score.row}"
    return task, measure, *yours, len(reached), score.percent, score.model, source
