"""All runs in a folder, one row each."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from litebert.errors import LitebertError
from litebert.metrics import Spread
from litebert.report.finetuning.overview import start_of
from litebert.report.pretraining.charts import network_of
from litebert.report.pretraining.results import doubts
from litebert.report.seeds import RecordOrSeeds, Seeds, read_run, seed_folders
from litebert.report.table import Cell, Table
from litebert.runs import RUN_FILE, EvaluatedStep, Record, read_result

DEEPEST = 3
"""Levels of folders to search: `litebert glue` writes runs two levels deep, or three with seeds."""
DECIMALS = 4
"""Measures are rounded once, so that every format has the same numbers."""
_PRETRAINING_MEASURE = "masked_lm_accuracy"


@dataclass(frozen=True)
class Reached:
    """The result of a run: its key measure at the last step and at the best evaluation."""

    measure: str | None
    last: EvaluatedStep | None
    best: EvaluatedStep | None


def list_runs(folder: Path) -> tuple[Table, list[LitebertError]]:
    """Return a row for each run below a folder, and the errors of those that are damaged.

    Several seeds are one row, with the medians of those that finished.
    Raises:
        LitebertError: LB-655, there is no such folder.
    """
    if not folder.is_dir():
        raise LitebertError(
            "LB-655",
            f"there are no runs in {folder}",
            received="a file" if folder.exists() else "no such folder",
            expected="the folder in which litebert pretrain and litebert finetune write runs",
            next="litebert runs list --runs FOLDER",
        )
    headings = ("name", "kind", "task", "model", "seeds", "step", "of", "finished")
    rows, errors = [], []
    for place in _run_folders(folder, DEEPEST):
        try:
            rows.append(_line(str(place.relative_to(folder)), read_run(place)))
        except LitebertError as error:
            errors.append(error)
    return Table((*headings, "measure", "last", "best", "doubts"), tuple(rows)), errors


def outcomes(run: RecordOrSeeds) -> list[Reached]:
    """Return what a run reached, or what each seed that finished did."""
    if isinstance(run, Record):
        return [_outcome(run)]
    return [Reached(r.key_measure, r.last, r.best) for r in run.results.values()]


def doubts_of(run: RecordOrSeeds) -> tuple[str, ...]:
    """Return reasons not to trust what a run reached; of several seeds, those of any."""
    if isinstance(run, Seeds):
        results = list(run.results.values())
    elif run.kind == "pretraining":
        return doubts(run)
    else:
        results = [result for result in [read_result(run.folder)] if result]
    return tuple(dict.fromkeys(doubt for result in results for doubt in result.doubts))


def median(measure: str | None, evaluations: list[EvaluatedStep | None]) -> float | None:
    """Return the median of a measure over the evaluations that have it."""
    values = [each.measures[measure] for each in evaluations if each and measure]
    return Spread.of(values).median if values else None


def _run_folders(folder: Path, depth: int) -> Iterator[Path]:
    for path in sorted(folder.iterdir()):
        if not path.is_dir():
            continue
        if (path / RUN_FILE).exists() or seed_folders(path):
            yield path
        elif depth > 1:
            yield from _run_folders(path, depth - 1)


def _outcome(record: Record) -> Reached:
    if record.kind == "fine-tuning":
        result = read_result(record.folder)
        if result:
            return Reached(result.key_measure, result.last, result.best)
        return Reached(None, None, None)
    measured = [EvaluatedStep.of(row) for row in record.evaluations]
    measured = [each for each in measured if _PRETRAINING_MEASURE in each.measures]
    if not measured:
        return Reached(None, None, None)
    best = max(measured, key=lambda each: each.measures[_PRETRAINING_MEASURE])
    return Reached(_PRETRAINING_MEASURE, measured[-1], best)


def _line(name: str, run: RecordOrSeeds) -> tuple[Cell, ...]:
    records = list(run.runs.values()) if isinstance(run, Seeds) else [run]
    first, reached = records[0], outcomes(run)
    is_finetuning = first.kind == "fine-tuning"
    measure = reached[0].measure if reached else None
    is_timed = first.settings.get("train.minutes") is not None  # its steps are an estimate
    steps = None if is_timed else first.settings.get("train.steps")
    return (
        name,
        first.kind,
        first.setting("task.name") if is_finetuning else None,
        start_of(first) if is_finetuning else network_of(first),
        len(records),
        min(record.step for record in records),
        steps if isinstance(steps, int) else None,
        all(record.has_model for record in records),
        measure,
        _rounded(median(measure, [outcome.last for outcome in reached])),
        _rounded(median(measure, [outcome.best for outcome in reached])),
        "; ".join(doubts_of(run)) or None,
    )


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, DECIMALS)
