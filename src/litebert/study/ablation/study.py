"""One ablation: train the rows within the budget, and say whether they are in the paper's order."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from statistics import fmean, variance
from typing import TypeVar

from pydantic import BaseModel

from litebert.errors import LitebertError, did_you_mean
from litebert.files import read_json, write_json
from litebert.metrics import Spread
from litebert.study.ablation.grids import GRIDS, SCALES, Grid, Variant
from litebert.study.ablation.trial import Bench, Probe, Trial, measured_rate, predicted

CLEAR = 2.0
"""A difference counts if it is at least this many standard errors."""


@dataclass(frozen=True)
class Ordering:
    """How many pairs of rows are in the paper's order, in the reverse order, or undecided."""

    same: int
    reversed: int
    unclear: int

    @property
    def verdict(self) -> str:
        """Say in a few words whether the paper's order is reproduced."""
        pairs = self.same + self.reversed + self.unclear
        if not pairs:
            return "nothing to compare"
        if self.same == pairs:
            return "reproduced"
        if self.reversed == pairs:
            return "reversed"
        if not self.same and not self.reversed:
            return "undecided"
        return "partly reproduced" if self.same > self.reversed else "not reproduced"

    def __str__(self) -> str:
        """Return the verdict with its counts."""
        pairs = self.same + self.reversed + self.unclear
        return (
            f"{self.verdict}: of {pairs} pairs of rows {self.same} in the paper's order, "
            f"{self.reversed} the other way, {self.unclear} undecided"
        )


def ordering(paper: Sequence[float | None], ours: Sequence[Sequence[float]]) -> Ordering:
    """Compare the order of two columns; `ours` has the values of all seeds for each row.

    The noise is the deviation between seeds, pooled over the rows. A row with one seed is not
    put above or below another. Rows without a figure, and equal figures, are not compared.

    >>> ordering([1.0, 2.0], [[0.10, 0.11], [0.30, 0.31]]).verdict
    'reproduced'
    >>> ordering([1.0, 2.0], [[0.10], [0.30]]).verdict
    'undecided'
    """
    noise = pooled_deviation(ours)
    counts = {"same": 0, "reversed": 0, "unclear": 0}
    for (their_first, first), (their_second, second) in combinations(zip(paper, ours, strict=True), 2):
        if their_first is None or their_second is None or their_first == their_second:
            continue
        if not first or not second:
            continue
        if (order := _difference(first, second, noise)) is None:
            counts["unclear"] += 1
        else:
            agrees = (order > 0) == (their_second > their_first)
            counts["same" if agrees else "reversed"] += 1
    return Ordering(**counts)


def differences(ours: Sequence[Sequence[float]]) -> list[str]:
    """Say of each row after the first whether it is above it, below it, or within the noise.

    >>> differences([[1.0, 1.1], [2.0, 2.1], [1.1, 1.2], []])
    ['above', 'within the noise', 'not measured']
    """
    return [_beside(ours[0], row, pooled_deviation(ours)) for row in ours[1:]]


def _beside(first: Sequence[float], row: Sequence[float], noise: float | None) -> str:
    if not first or not row:
        return "not measured"
    if (difference := _difference(first, row, noise)) is None:
        return "within the noise" if len(first) > 1 < len(row) else "undecided with one seed"
    return "above" if difference > 0 else "below"


def _difference(first: Sequence[float], second: Sequence[float], noise: float | None) -> float | None:
    """Return by how much the second mean is larger; None where the seeds cannot tell."""
    if noise is None or min(len(first), len(second)) < 2:
        return None
    difference = fmean(second) - fmean(first)
    error = noise * math.sqrt(1 / len(first) + 1 / len(second))
    return difference if abs(difference) > CLEAR * error else None


def pooled_deviation(rows: Sequence[Sequence[float]]) -> float | None:
    """Return the deviation between seeds over all rows; None where no row has two.

    >>> pooled_deviation([[1.0, 3.0], [5.0]])
    1.4142135623730951
    """
    repeated = [row for row in rows if len(row) > 1]
    if not repeated:
        return None
    degrees = sum(len(row) - 1 for row in repeated)
    return math.sqrt(sum(variance(row) * (len(row) - 1) for row in repeated) / degrees)


Known = TypeVar("Known")


class AblationRow(BaseModel):
    """One row: what was measured with each seed, or only what it would cost."""

    label: str
    part: str = ""
    paper: float | None
    trials: list[Trial]
    predicted_flops: float
    predicted_cpu_seconds: float

    def values(self, measure: str) -> list[float]:
        """Return one measure of all seeds."""
        return [t.measures[measure] for t in self.trials if measure in t.measures]

    def spread(self, measure: str) -> Spread | None:
        """Return mean and deviation of one measure over the seeds."""
        values = self.values(measure)
        return Spread.of(values) if values else None


class Ablation(BaseModel):
    """A table of the paper with our rows, exactly as in NAME.json of the output folder."""

    name: str
    title: str
    source: str
    scale: str
    paper_measure: str
    measure: str
    rows: list[AblationRow]

    @property
    def compared(self) -> list[list[float]]:
        """The deciding measure of each row, for every seed."""
        return [row.values(self.measure) for row in self.rows]

    @property
    def orderings(self) -> dict[str, Ordering]:
        """Whether the rows of each part of the table are in the paper's order."""
        parts: dict[str, list[tuple[float | None, list[float]]]] = {}
        for row, values in zip(self.rows, self.compared, strict=True):
            parts.setdefault(row.part, []).append((row.paper, values))
        return {
            part: ordering([paper for paper, _ in rows], [values for _, values in rows]) for part, rows in parts.items()
        }

    @property
    def verdict(self) -> str:
        """Say in one sentence what was and was not reproduced."""
        left_out = [row.label for row in self.rows if not row.trials]
        missing = f" Not trained: {', '.join(left_out)}." if left_out else ""
        if not any(row.trials for row in self.rows):
            return "Nothing was trained: the costs are predictions."
        if all(row.paper is None for row in self.rows):
            compared = differences(self.compared)
            beside = ", ".join(f"{row.label} {x}" for row, x in zip(self.rows[1:], compared, strict=True))
            return (
                f"The paper has no figures for this table. By {self.measure}, beside "
                f"{self.rows[0].label}: {beside} (scale {self.scale})."
            )
        seeds = sorted({len(row.trials) for row in self.rows if row.trials})
        verdicts = " ".join(
            f"The paper's ordering{f', {part}:' if part else ' is'} {each}." for part, each in self.orderings.items()
        )
        counted = f"{'-'.join(map(str, seeds))} {'seed' if seeds == [1] else 'seeds'}"
        return f"{verdicts} Scale {self.scale}, {counted} a row.{missing}"


@dataclass(frozen=True)
class Plan:
    """What to train: the seeds, and the CPU seconds that a row may take (None: no limit).

    `more` is a second corpus, which the table of additional data needs.
    """

    seeds: tuple[int, ...] = (1, 2)
    most_cpu_seconds: float | None = 600.0
    only: tuple[str, ...] = ()
    probes: tuple[Probe, ...] = ()
    more: Path | None = None

    def includes(self, row: Variant, cpu_seconds: float) -> bool:
        """Tell whether a row is trained."""
        is_affordable = self.most_cpu_seconds is None or cpu_seconds <= self.most_cpu_seconds
        return is_affordable and (not self.only or row.label in self.only)


def ablate(
    name: str,
    corpus: str | Path,
    output: str | Path,
    *,
    scale: str = "tiny",
    plan: Plan | None = None,
    say: Callable[[str], None] = lambda _: None,
) -> Ablation:
    """Train the rows of a table that are not trained yet, and write NAME.json.

    A row is trained once even if it is in several tables, and is not trained again when the study
    is rerun. A row that costs more than the plan allows is listed with its predicted cost only.

    Raises:
        LitebertError: LB-745 to LB-748, a name, a row or the corpus cannot be used.
    """
    grid = _known("LB-746", "there is no ablation of this name", name, GRIDS, did_you_mean(name, GRIDS))
    chosen = _known("LB-745", "no study has this scale", scale, SCALES, did_you_mean(scale, SCALES))
    plan = plan or Plan()
    variants = {variant.label: variant for variant in grid.variants(chosen)}
    _require_rows(plan.only, variants)
    bench = Bench(Path(corpus).absolute(), Path(output) / "runs", chosen, plan.more)
    rate = measured_rate(chosen)
    costs = {n: predicted(bench.words(v, 0), rate) for n, v in variants.items()}
    rows = {}
    for label, variant in variants.items():
        cost = costs[label]
        rows[label] = AblationRow(
            label=label,
            part=variant.part,
            paper=variant.paper,
            trials=[],
            predicted_flops=cost.flops,
            predicted_cpu_seconds=round(cost.cpu_seconds, 1),
        )
    found = _table(grid, scale, rows)
    path = Path(output) / f"{name}.json"
    for seed in plan.seeds:
        for label, variant in variants.items():
            trained = bench.finished(variant, variants, seed)
            if not plan.includes(variant, costs[label].cpu_seconds):
                rows[label].trials += [trained] if trained else []
                continue
            if not trained:
                say(f"{name}, {label}, seed {seed}")
            trial = bench.train(
                variant,
                variants,
                seed,
                crosses=grid.crosses_objectives,
                by_depth=grid.measures_depths,
                probes=plan.probes,
            )
            rows[label].trials.append(trial)
            write_json(path, found.model_dump(mode="json"))
    write_json(path, found.model_dump(mode="json"))
    return found


def read_ablation(path: Path) -> Ablation:
    """Read the NAME.json of an ablation."""
    return Ablation.model_validate(read_json(path, command="litebert study ablation --help"))


def _table(grid: Grid, scale: str, rows: dict[str, AblationRow]) -> Ablation:
    return Ablation.model_construct(
        name=grid.name,
        title=grid.title,
        source=grid.source,
        scale=scale,
        paper_measure=grid.paper_measure,
        measure=grid.measure,
        rows=list(rows.values()),
    )


def _require_rows(only: Sequence[str], variants: dict[str, Variant]) -> None:
    for label in only:
        if label not in variants:
            raise LitebertError(
                "LB-748",
                "this table has no such row",
                received=label,
                expected=", ".join(variants),
                next="litebert study ablation --help",
            )


def _known(code: str, message: str, name: str, table: Mapping[str, Known], expected: str) -> Known:
    """Return the entry of a table with this name, or raise an error that lists the names."""
    if name not in table:
        raise LitebertError(code, message, received=name, expected=expected, next="litebert study ablation --help")
    return table[name]
