"""Runs side by side: the settings that differ, with their origins, and what each run reached."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from pydantic import JsonValue

from litebert.metrics import Spread
from litebert.report.runs import DECIMALS, doubts_of, outcomes
from litebert.report.seeds import RecordOrSeeds, Seeds, spreads
from litebert.report.settings import written
from litebert.report.table import Cell, Table, word
from litebert.runs import EvaluatedStep


@dataclass(frozen=True)
class Fact:
    """The value that one run has for a setting, and who set it."""

    value: JsonValue
    origin: str


@dataclass(frozen=True)
class RunComparison:
    """What differs between runs, and their measures of last steps and of best evaluations.

    `settings` maps each setting to its values by run; `measures` maps (last or best, name) to the
    values by run. Runs without a value are omitted.
    """

    names: tuple[str, ...]
    settings: dict[str, dict[str, Fact]]
    measures: dict[tuple[str, str], dict[str, Spread]]
    doubts: dict[str, tuple[str, ...]]


def compare(runs: Mapping[str, RecordOrSeeds]) -> RunComparison:
    """Compare runs by their names; several seeds count as one run."""
    settings = {name: _facts(run) for name, run in runs.items()}
    every = list(dict.fromkeys(setting for one in settings.values() for setting in one))
    differing = {
        setting: {name: one[setting] for name, one in settings.items() if setting in one}
        for setting in every
        if len({written(s[setting].value) if setting in s else "" for s in settings.values()}) > 1
    }
    reached = {name: _reached(run) for name, run in runs.items()}
    kinds = list(dict.fromkeys(kind for one in reached.values() for kind in one))
    measures = {kind: {name: one[kind] for name, one in reached.items() if kind in one} for kind in kinds}
    doubts = {name: doubts_of(run) for name, run in runs.items()}
    return RunComparison(tuple(runs), differing, measures, doubts)


def side_by_side(comparison: RunComparison) -> list[Table]:
    """Return two tables for readers, settings and measures, with a column per run."""
    names = comparison.names
    settings = (
        (setting, *(_setting(by_run.get(name)) for name in names)) for setting, by_run in comparison.settings.items()
    )
    measures = (
        (kind, measure, *(_measure(by_run.get(name)) for name in names))
        for (kind, measure), by_run in comparison.measures.items()
    )
    doubts = tuple((name, doubt) for name, found in comparison.doubts.items() for doubt in found)
    tables = [
        Table(("setting", *names), tuple(settings), title="Settings that differ (who set them)"),
        Table(("of", "measure", *names), tuple(measures), title="Measures"),
    ]
    return [*tables, Table(("run", "doubt"), doubts, title="Doubts")] if doubts else tables


def one_below_the_other(comparison: RunComparison) -> Table:
    """Return everything as one table with a line per value, for machines."""
    settings: list[tuple[Cell, ...]] = [
        ("setting", setting, name, written(one.value), one.origin)
        for setting, by_run in comparison.settings.items()
        for name, one in by_run.items()
    ]
    measures: list[tuple[Cell, ...]] = [
        (f"{kind} {statistic}", measure, name, value, None)
        for (kind, measure), by_run in comparison.measures.items()
        for name, spread in by_run.items()
        for statistic, value in statistics(spread).items()
    ]
    doubts: list[tuple[Cell, ...]] = [
        ("doubt", None, name, doubt, None) for name, found in comparison.doubts.items() for doubt in found
    ]
    return Table(("part", "name", "run", "value", "origin"), (*settings, *measures, *doubts))


def statistics(spread: Spread) -> dict[str, float]:
    """Return the statistics of a measure, rounded once for every format."""
    values = {"median": spread.median, "mean": spread.mean, "spread": spread.spread}
    return {**{name: _rounded(value) for name, value in values.items()}, "n": spread.number}


def _rounded(value: float) -> float:
    is_count = abs(value) > 1 and float(value).is_integer()
    return int(value) if is_count else round(float(value), DECIMALS)


@dataclass(frozen=True)
class ComparedMeasure:
    """A measure, of last steps or of best evaluations, by run."""

    of: str
    measure: str
    runs: dict[str, dict[str, float]]


@dataclass(frozen=True)
class WrittenComparison:
    """What differs between runs, in the form of its JSON."""

    runs: tuple[str, ...]
    settings: dict[str, dict[str, Fact]]
    measures: tuple[ComparedMeasure, ...]
    doubts: dict[str, tuple[str, ...]]


def as_json(comparison: RunComparison) -> WrittenComparison:
    """Return the comparison as one JSON object."""
    measures = (
        ComparedMeasure(kind, measure, {name: statistics(s) for name, s in by_run.items()})
        for (kind, measure), by_run in comparison.measures.items()
    )
    return WrittenComparison(comparison.names, comparison.settings, tuple(measures), comparison.doubts)


def _facts(run: RecordOrSeeds) -> dict[str, Fact]:
    """Return settings, data and environment of a run, each by a name that tells which it is."""
    record = run.first if isinstance(run, Seeds) else run
    if isinstance(run, Seeds):
        seeds: list[JsonValue] = list(run.runs)
        record = replace(record, settings={**record.settings, "train.seed": seeds})
    surroundings = {"litebert": record.version, **record.environment}
    return {
        **{n: Fact(v, str(record.origins.get(n, ""))) for n, v in record.settings.items()},
        **{f"data: {name}": Fact(value, "") for name, value in record.data.items()},
        **{f"environment: {name}": Fact(value, "") for name, value in surroundings.items()},
    }


def _reached(run: RecordOrSeeds) -> dict[tuple[str, str], Spread]:
    reached = outcomes(run)
    last = [each.last for each in reached if each.last is not None]
    best = [each.best for each in reached if each.best is not None]
    return {**_named("last", last), **_named("best", best)}


def _named(kind: str, evaluations: list[EvaluatedStep]) -> dict[tuple[str, str], Spread]:
    found = spreads(evaluations) if evaluations else {}
    steps = Spread.of([each.step for each in evaluations]) if evaluations else None
    named = {(kind, name): spread for name, spread in found.items()}
    return ({(kind, "step"): steps} if steps else {}) | named


def _setting(one: Fact | None) -> str | None:
    if one is None:
        return None
    return f"{written(one.value)} ({one.origin})" if one.origin else written(one.value)


def _measure(spread: Spread | None) -> Cell:
    if spread is None:
        return None
    values = statistics(spread)
    median, mean, deviation = (word(values[name]) for name in ("median", "mean", "spread"))
    return median if spread.number == 1 else f"{median} (mean {mean} ± {deviation}, n {values['n']})"
