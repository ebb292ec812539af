"""One ablation: train the rows within the budget, and compare them with the paper's."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel

from litebert.errors import LitebertError, did_you_mean
from litebert.files import read_json, write_json
from litebert.metrics import Spread
from litebert.study.ablation.cost import measured_rate, predicted
from litebert.study.ablation.grid import SCALES, Grid, Variant
from litebert.study.ablation.grids import GRIDS
from litebert.study.ablation.ordering import Ordering, differences, ordering
from litebert.study.ablation.probes import Probe
from litebert.study.ablation.trial import Bench, Trial

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
