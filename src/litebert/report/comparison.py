"""Runs in a folder, one row each; and runs side by side: the settings that differ, and what each run reached."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, TypeAlias

from pydantic import JsonValue

from litebert.errors import LitebertError
from litebert.metrics import Spread
from litebert.report.page import written
from litebert.report.pretraining import doubts, network_of
from litebert.report.tables import Cell, Table, word
from litebert.runs import EvaluatedStep, Run

DEEPEST = 3
"""Levels of folders to search: `litebert glue` writes runs two levels deep, or three with seeds."""
DECIMALS = 4
"""Measures are rounded once, so that every format has the same numbers."""
PRETRAINING_MEASURE = "masked_lm_accuracy"


@dataclass(frozen=True)
class Reached:
    """The key measure of a run with its last and its best evaluation."""

    measure: str | None = None
    last: EvaluatedStep | None = None
    best: EvaluatedStep | None = None


def reached_by(run: Run) -> list[Reached]:
    """Return what a run reached, or what each seed that finished did."""
    if run.seeds:
        return [found for seed in run.seeds if seed.outcome for found in reached_by(seed)]
    if run.kind == "fine-tuning":
        result = run.outcome
        return [Reached(result.key_measure, result.last, result.best) if result else Reached()]
    measured = [EvaluatedStep.of(row) for row in run.evaluations]
    measured = [each for each in measured if PRETRAINING_MEASURE in each.measures]
    if not measured:
        return [Reached()]
    best = max(measured, key=lambda each: each.measures[PRETRAINING_MEASURE])
    return [Reached(PRETRAINING_MEASURE, measured[-1], best)]


def doubts_of(run: Run) -> tuple[str, ...]:
    """Return reasons not to trust what a run reached; of several seeds, those of any."""
    if run.kind == "pretraining":
        return doubts(run)
    results = (each.outcome for each in run.seeds or (run,))
    return tuple(dict.fromkeys(doubt for result in results if result for doubt in result.doubts))


def median(measure: str | None, evaluations: Sequence[EvaluatedStep | None]) -> float | None:
    """Return the median of a measure over the evaluations that have it."""
    values = [each.measures[measure] for each in evaluations if each and measure]
    return Spread.of(values).median if values else None


def spreads(evaluations: Sequence[EvaluatedStep]) -> dict[str, Spread]:
    """Summarise each measure that all evaluations have; there is one evaluation per seed."""
    names = [name for name in evaluations[0].measures if all(name in e.measures for e in evaluations)]
    return {name: Spread.of([each.measures[name] for each in evaluations]) for name in names}


# ---- the runs in a folder -------------------------------------------------------------------------------------------


def list_runs(folder: Path) -> tuple[Table, list[LitebertError]]:
    """Return a row for each run below a folder, and the errors of those that are damaged.

    Several seeds are one row, with the medians of those that finished.
    """
    if not folder.is_dir():
        found = "a file" if folder.exists() else "no such folder"
        raise LitebertError(
            "LB-655", f"there are no runs in {folder}", received=found, next="litebert runs list --runs FOLDER"
        )
    rows, errors = [], []
    for run in _runs_below(folder, DEEPEST):
        try:
            rows.append(_row(str(run.folder.relative_to(folder)), run))
        except LitebertError as error:
            errors.append(error)
    headings = ("name", "kind", "task", "model", "seeds", "step", "of", "finished", "measure", "last", "best", "doubts")
    return Table(headings, tuple(rows)), errors


def _runs_below(folder: Path, depth: int) -> Iterator[Run]:
    for path in sorted(each for each in folder.iterdir() if each.is_dir()):
        run = Run(path)
        if run.seeds or (path / "run.json").exists():
            yield run
        elif depth > 1:
            yield from _runs_below(path, depth - 1)


def _row(name: str, run: Run) -> tuple[Cell, ...]:
    from litebert.report.published import start_of

    parts, reached = run.seeds or (run,), reached_by(run)
    is_finetuning = run.kind == "fine-tuning"
    trained = (run.setting("task.name"), start_of(run)) if is_finetuning else (None, network_of(run))
    is_timed = run.settings.get("train.minutes") is not None  # its steps are an estimate
    steps = None if is_timed else run.settings.get("train.steps")
    progress = (min(each.step for each in parts), steps if isinstance(steps, int) else None)
    measure = reached[0].measure if reached else None
    found = (median(measure, [getattr(each, kind) for each in reached]) for kind in ("last", "best"))
    values = (None if value is None else round(value, DECIMALS) for value in found)
    is_finished = all(each.has_model for each in parts)
    doubted = "; ".join(doubts_of(run)) or None
    return (name, run.kind, *trained, len(parts), *progress, is_finished, measure, *values, doubted)


# ---- runs side by side ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Fact:
    """The value that one run has for a setting, and who set it."""

    value: JsonValue
    origin: str

    def __str__(self) -> str:
        return f"{written(self.value)} ({self.origin})" if self.origin else written(self.value)


Statistics: TypeAlias = dict[str, float]
"""Median, mean and spread of a measure over n seeds."""


@dataclass(frozen=True)
class ComparedMeasure:
    """A measure, of last steps or of best evaluations, by run."""

    of: str
    measure: str
    runs: dict[str, Statistics]


@dataclass(frozen=True)
class Comparison:
    """What differs between runs; runs without a value are omitted."""

    runs: tuple[str, ...]
    settings: dict[str, dict[str, Fact]]
    measures: tuple[ComparedMeasure, ...]
    doubts: dict[str, tuple[str, ...]]
    formats: ClassVar = Table.formats

    def __str__(self) -> str:
        return "\n\n".join(map(str, self.tables()))

    def as_markdown(self) -> str:
        return "\n\n".join(table.as_markdown() for table in self.tables())

    def as_csv(self) -> str:
        """Return everything as one table with a line per value."""
        rows: list[tuple[Cell, ...]] = [
            ("setting", setting, name, written(one.value), one.origin)
            for setting, by_run in self.settings.items()
            for name, one in by_run.items()
        ]
        rows += [
            (f"{each.of} {statistic}", each.measure, name, value, None)
            for each in self.measures
            for name, statistics in each.runs.items()
            for statistic, value in statistics.items()
        ]
        rows += [("doubt", None, name, doubt, None) for name, some in self.doubts.items() for doubt in some]
        return Table(("part", "name", "run", "value", "origin"), tuple(rows)).as_csv()

    def tables(self) -> list[Table]:
        """Return settings, measures and doubts for readers, the first two with a column per run."""

        def measure(statistics: Statistics | None) -> Cell:
            if statistics is None:
                return None
            middle, mean, spread = (word(statistics[name]) for name in ("median", "mean", "spread"))
            return middle if statistics["n"] == 1 else f"{middle} (mean {mean} ± {spread}, n {statistics['n']})"

        def facts(by_run: Mapping[str, Fact]) -> Iterator[Cell]:
            return (str(by_run[run]) if run in by_run else None for run in self.runs)

        settings = tuple((name, *facts(by_run)) for name, by_run in self.settings.items())
        measures = tuple((e.of, e.measure, *(measure(e.runs.get(run)) for run in self.runs)) for e in self.measures)
        doubtful = tuple((name, doubt) for name, some in self.doubts.items() for doubt in some)
        tables = [
            Table(("setting", *self.runs), settings, title="Settings that differ (who set them)"),
            Table(("of", "measure", *self.runs), measures, title="Measures"),
        ]
        return [*tables, Table(("run", "doubt"), doubtful, title="Doubts")] if doubtful else tables


def compare(runs: Mapping[str, Run]) -> Comparison:
    """Compare runs by their names; several seeds count as one run."""
    facts = {name: _facts(run) for name, run in runs.items()}
    differing = {
        setting: {name: one[setting] for name, one in facts.items() if setting in one}
        for setting in dict.fromkeys(setting for one in facts.values() for setting in one)
        if len({written(one[setting].value) if setting in one else "" for one in facts.values()}) > 1
    }
    reached = {name: _statistics(run) for name, run in runs.items()}
    measures = tuple(
        ComparedMeasure(*key, {name: one[key] for name, one in reached.items() if key in one})
        for key in dict.fromkeys(key for one in reached.values() for key in one)
    )
    return Comparison(tuple(runs), differing, measures, {name: doubts_of(run) for name, run in runs.items()})


def _facts(run: Run) -> dict[str, Fact]:
    """Return settings, data and environment of a run, each by a name that tells which it is."""
    file = run.file
    settings = dict(file.settings)
    if run.seeds:
        settings["train.seed"] = [each.seed for each in run.seeds]
    environment = {"litebert": file.litebert, **file.environment}
    return {
        **{name: Fact(value, str(file.origins.get(name, ""))) for name, value in settings.items()},
        **{f"data: {name}": Fact(value, "") for name, value in file.data.items()},
        **{f"environment: {name}": Fact(value, "") for name, value in environment.items()},
    }


def _statistics(run: Run) -> dict[tuple[str, str], Statistics]:
    """Return median, mean and spread of every measure, rounded once for every format."""

    def rounded(value: float) -> float:
        is_count = abs(value) > 1 and float(value).is_integer()
        return int(value) if is_count else round(float(value), DECIMALS)

    found = {}
    for kind in ("last", "best"):
        evaluations = [each for reached in reached_by(run) if (each := getattr(reached, kind)) is not None]
        if not evaluations:
            continue
        steps = {"step": Spread.of([each.step for each in evaluations])}
        for name, spread in (steps | spreads(evaluations)).items():
            values = {"median": spread.median, "mean": spread.mean, "spread": spread.spread}
            found[kind, name] = {**{each: rounded(value) for each, value in values.items()}, "n": spread.number}
    return found
