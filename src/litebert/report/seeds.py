"""Several seeds of one fine-tuning: a folder whose seed-N folders are runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import TypeAlias

from litebert.metrics import Spread
from litebert.report.chart import Point
from litebert.runs import RUN_FILE, EvaluatedStep, Record, Result, read_record, read_result


@dataclass(frozen=True)
class Seeds:
    """The runs of one command with --seeds, by seed."""

    folder: Path
    runs: dict[int, Record]
    results: dict[int, Result]

    @property
    def name(self) -> str:
        """Name of the runs: that of the folder around them."""
        return self.folder.resolve().name

    @property
    def first(self) -> Record:
        """The run of the first seed; the others differ in the seed alone."""
        return next(iter(self.runs.values()))


RecordOrSeeds: TypeAlias = Record | Seeds


def read_run(folder: Path) -> RecordOrSeeds:
    """Read a run, or the runs of several seeds.

    Raises:
        LitebertError: LB-650, it is neither; DamagedError where its files are damaged.
    """
    has_seeds = not (folder / RUN_FILE).exists() and seed_folders(folder)
    return read_seeds(folder) if has_seeds else read_record(folder)


def first_of(run: RecordOrSeeds) -> Record:
    """Return the run, or the first of several seeds."""
    return run.first if isinstance(run, Seeds) else run


def seed_folders(folder: Path) -> dict[int, Path]:
    """Return the runs seed-1, seed-2, ... of a folder, by seed."""
    names = (path.parent for path in folder.glob(f"seed-*/{RUN_FILE}"))
    numbered = {path.name.removeprefix("seed-"): path for path in names}
    return {int(seed): numbered[seed] for seed in sorted(numbered, key=_place) if seed.isdecimal()}


def read_seeds(folder: Path) -> Seeds:
    """Read the runs of a folder that has seed-N runs."""
    folders = seed_folders(folder)
    results = {seed: read_result(run) for seed, run in folders.items()}
    return Seeds(
        folder,
        runs={seed: read_record(run) for seed, run in folders.items()},
        results={seed: result for seed, result in results.items() if result is not None},
    )


def spreads(evaluations: Sequence[EvaluatedStep]) -> dict[str, Spread]:
    """Summarise each measure that all evaluations have; there is one evaluation per seed."""
    names = [name for name in evaluations[0].measures if all(name in e.measures for e in evaluations)]
    return {name: Spread.of([each.measures[name] for each in evaluations]) for name in names}


def curve_across(curves: Sequence[Sequence[Point]]) -> tuple[Point, ...]:
    """Return the mean and the range of several curves at each of their steps.

    >>> curve_across([[Point(5, 0.5, 0.5, 0.5)], [Point(5, 1.0, 1.0, 1.0)]])
    (Point(step=5, mean=0.75, low=0.5, high=1.0),)
    """
    points: dict[int, list[Point]] = {}
    for curve in curves:
        for point in curve:
            points.setdefault(point.step, []).append(point)
    return tuple(
        Point(
            step,
            fmean(point.mean for point in some),
            min(point.low for point in some),
            max(point.high for point in some),
        )
        for step, some in sorted(points.items())
    )


def _place(seed: str) -> tuple[int, str]:
    return len(seed), seed
