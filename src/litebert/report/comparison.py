"""What runs reached and whether to trust it: one row each, side by side with their settings, or the table of GLUE."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, NamedTuple

from pydantic import JsonValue

from litebert.config import PRESETS
from litebert.errors import LitebertError
from litebert.metrics import Spread
from litebert.report.page import written
from litebert.report.tables import Cell, Table, word
from litebert.runs import EvaluatedStep, Run

if TYPE_CHECKING:
    from litebert.tasks.named import PublishedScore

DEEPEST = 3
"""Levels of folders to search: `litebert glue` writes runs two levels deep, or three with seeds."""
DECIMALS = 4  # measures are rounded once, so that every format has the same numbers
WORSE = 0.01  # nats that a held-out loss may lie above the lowest one before that is worth a word


class Reached(NamedTuple):
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
    measure = "masked_lm_accuracy"
    measured = [each for each in map(EvaluatedStep.of, run.evaluations) if measure in each.measures]
    if not measured:
        return [Reached()]
    return [Reached(measure, measured[-1], max(measured, key=lambda each: each.measures[measure]))]


def medians(reached: Sequence[Reached]) -> list[float | None]:
    """Return the medians of the key measure over several seeds: of their last steps, and of their best."""
    found = []
    for kind in ("last", "best"):
        steps = [(each.measure, getattr(each, kind)) for each in reached]
        values = [step.measures[measure] for measure, step in steps if step and measure]
        found.append(Spread.of(values).median if values else None)
    return found


def spreads(evaluations: Sequence[EvaluatedStep]) -> dict[str, Spread]:
    """Summarise each measure that all evaluations have; there is one evaluation per seed."""
    names = [name for name in evaluations[0].measures if all(name in e.measures for e in evaluations)]
    return {name: Spread.of([each.measures[name] for each in evaluations]) for name in names}


# ---- what a pretraining reached, and doubts about it ----------------------------------------------------------------


def share(value: float) -> str:
    """Write an accuracy.

    >>> share(0.4123)
    '41.2%'
    """
    return f"{value:.1%}" if math.isfinite(value) else "not finite"


def network_of(run: Run) -> str:
    """Return the preset and the shape of a network in a few words."""
    origin = run.file.origins.get("model.hidden_size")
    preset = f"{origin.detail}: " if origin and origin.kind == "preset" else ""
    return f"{preset}{run.setting('model.num_hidden_layers')} layers of {run.setting('model.hidden_size')}"


def sentence_task(run: Run) -> str:
    """Return the paper's name of the second objective."""
    return "Next sentence" if run.settings.get("objective.sentence") == "next" else "Sentence order"


def pretraining_findings(run: Run) -> dict[str, bool]:
    """Say in clauses what the last evaluation means; True where it is a reason not to trust the model."""
    if not run.evaluations:
        return {}
    last, found = run.evaluations[-1], dict[str, bool]()
    now, accuracy, baseline, order = (
        last.values.get(name, math.nan)
        for name in ("masked_lm_loss", "masked_lm_accuracy", "masked_lm_baseline", "sentence_order_accuracy")
    )
    if "masked_lm_accuracy" in last.values:
        said = f"at step {last.step:,} the model names {share(accuracy)} of the masked tokens"
        has_no_gain = round(accuracy, 3) <= round(baseline, 3)
        if "masked_lm_baseline" in last.values:
            said += f"; always giving the commonest gets {share(baseline)}{': no gain over that' * has_no_gain}"
        found[said] = has_no_gain
    if "sentence_order_accuracy" in last.values:
        sequences = run.settings.get("train.eval_sequences")
        # two standard errors of a coin that is tossed once per sequence: 2 sqrt(p (1 - p) / n), p = 1/2
        number = sequences if isinstance(sequences, int) and sequences > 0 else 0
        is_chance = bool(number) and abs(order - 0.5) < 1 / math.sqrt(number)
        said = f"no better than chance on {number:,} sequences" if is_chance else f"where chance gets {share(0.5)}"
        found[f"{sentence_task(run)}: {share(order)} right, {said}"] = is_chance
    elif not run.trains_sentences:
        setting = run.setting("objective.sentence")
        found[f"no sentence objective was trained (objective.sentence = {setting})"] = False
    losses = [(row.values.get("masked_lm_loss", math.nan), row.step) for row in run.evaluations]
    lowest, step = min((each for each in losses if math.isfinite(each[0])), default=(math.nan, last.step))
    if step != last.step:
        said = f"the held-out masked-LM loss is {now:.3f}; it was lowest, {lowest:.3f}, at step {step:,}"
        found[said] = step < last.step and now > lowest + WORSE
    return found


def doubts_of(run: Run) -> tuple[str, ...]:
    """Return reasons not to trust what a run reached; of several seeds, those of any."""
    if run.kind == "pretraining":
        return tuple(said for said, is_doubtful in pretraining_findings(run).items() if is_doubtful)
    results = (each.outcome for each in run.seeds or (run,))
    return tuple(dict.fromkeys(doubt for result in results if result for doubt in result.doubts))


# ---- the runs in a folder -------------------------------------------------------------------------------------------


def list_runs(folder: Path) -> tuple[Table, list[LitebertError]]:
    """Return a row for each run below a folder, and the errors of those that are damaged.

    Several seeds are one row, with the medians of those that finished.
    """
    if not folder.is_dir():
        found = "a file" if folder.exists() else "no such folder"
        advice = "litebert runs list --runs FOLDER"
        raise LitebertError("LB-655", f"there are no runs in {folder}", received=found, next=advice)
    rows, errors = [], []
    for run in _runs_below(folder, DEEPEST):
        parts = run.seeds or (run,)
        try:
            is_finetuning = run.kind == "fine-tuning"
            trained = (run.setting("task.name"), start_of(run)) if is_finetuning else (None, network_of(run))
            reached = reached_by(run)
            is_timed = run.settings.get("train.minutes") is not None  # its steps are an estimate
            steps = None if is_timed else run.settings.get("train.steps")
            row: tuple[Cell, ...] = (str(run.folder.relative_to(folder)), run.kind, *trained, len(parts))
            row += (min(each.step for each in parts), steps if isinstance(steps, int) else None)
            row += (all(each.has_model for each in parts), reached[0].measure if reached else None)
            row += tuple(None if value is None else round(value, DECIMALS) for value in medians(reached))
            rows.append((*row, "; ".join(doubts_of(run)) or None))
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


# ---- runs side by side ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Fact:
    """The value that one run has for a setting, and who set it."""

    value: JsonValue
    origin: str = ""

    def __str__(self) -> str:
        return f"{written(self.value)} ({self.origin})" if self.origin else written(self.value)


@dataclass(frozen=True)
class ComparedMeasure:
    """Median, mean and spread of a measure over the n seeds of each run: `of` last steps, or of best evaluations."""

    of: str
    measure: str
    runs: dict[str, dict[str, float]]


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

        def measured(each: ComparedMeasure, run: str) -> Cell:
            if run not in each.runs:
                return None
            middle, mean, spread = (word(each.runs[run][name]) for name in ("median", "mean", "spread"))
            number = each.runs[run]["n"]
            return middle if number == 1 else f"{middle} (mean {mean} ± {spread}, n {number})"

        settings = tuple(
            (name, *(str(by_run[run]) if run in by_run else None for run in self.runs))
            for name, by_run in self.settings.items()
        )
        measures = tuple((e.of, e.measure, *(measured(e, run) for run in self.runs)) for e in self.measures)
        doubtful = tuple((name, doubt) for name, some in self.doubts.items() for doubt in some)
        tables = [
            Table(("setting", *self.runs), settings, title="Settings that differ (who set them)"),
            Table(("of", "measure", *self.runs), measures, title="Measures"),
        ]
        return [*tables, Table(("run", "doubt"), doubtful, title="Doubts")] if doubtful else tables


def compare(runs: Mapping[str, Run]) -> Comparison:
    """Compare runs by their names; several seeds count as one run."""
    facts, found = dict[str, dict[str, Fact]](), dict[tuple[str, str], dict[str, dict[str, float]]]()
    for name, run in runs.items():
        file, settings = run.file, dict(run.settings)
        if run.seeds:
            settings["train.seed"] = [each.seed for each in run.seeds]
        environment: dict[str, JsonValue] = {"litebert": file.litebert, **file.environment}
        facts[name] = {
            **{setting: Fact(value, str(file.origins.get(setting, ""))) for setting, value in settings.items()},
            **{f"data: {each}": Fact(value) for each, value in file.data.items()},
            **{f"environment: {each}": Fact(value) for each, value in environment.items()},
        }
        for kind in ("last", "best"):
            steps = [step for reached in reached_by(run) if (step := getattr(reached, kind)) is not None]
            if not steps:
                continue
            measured = {"step": Spread.of([each.step for each in steps])} | spreads(steps)
            for measure, spread in measured.items():
                values = {"median": spread.median, "mean": spread.mean, "spread": spread.spread}
                rounded = {statistic: _rounded(value) for statistic, value in values.items()}
                found.setdefault((kind, measure), {})[name] = rounded | {"n": spread.number}
    differing = {
        setting: {name: one[setting] for name, one in facts.items() if setting in one}
        for setting in dict.fromkeys(setting for one in facts.values() for setting in one)
        if len({written(one[setting].value) if setting in one else "" for one in facts.values()}) > 1
    }
    measures = tuple(ComparedMeasure(*key, by_run) for key, by_run in found.items())
    return Comparison(tuple(runs), differing, measures, {name: doubts_of(run) for name, run in runs.items()})


def _rounded(value: float) -> float:
    is_count = abs(value) > 1 and float(value).is_integer()
    return int(value) if is_count else round(float(value), DECIMALS)


# ---- beside published figures; GLUE ---------------------------------------------------------------------------------

PERCENT_TASKS = ("squad", "squad2")
"""Tasks whose official scripts, and so our measures, are in percent; all others are 0 to 1."""
NEAREST = ("base-v2", "base-v1", "xxlarge-v1")
"""The model cited if the run's own has no published figures: the smallest that has some."""


def published_on_dev(task: str) -> list[PublishedScore]:
    """Return the published scores of a task on held-out sets whose answers are public."""
    from litebert.tasks.named import published  # torch comes with it

    return [score for score in published(task) if score.split == "dev"]


def start_of(run: Run) -> str:
    """Name the model that a run started from, or of which it took only the shape."""
    is_random = run.settings.get("model.random") is True
    return f"{'random weights, shaped as ' if is_random else ''}{run.setting('model.start')}"


def preset_of(run: Run) -> str | None:
    """Return the published model that a run started from, recognised by its name."""
    name = Path(run.setting("model.start")).name.lower().removeprefix("albert-")
    return name if name in PRESETS and run.settings.get("model.random") is not True else None


def comparability(run: Run) -> str:
    """Say whether there are figures of exactly the model that the run started from."""
    preset, task = preset_of(run), run.setting("task.name")
    if preset and any(score.model == preset for score in published_on_dev(task)):
        return (
            f"By its name the run started from the published {preset}: compare yours with its "
            "figures, as far as the settings are those of the paper."
        )
    model = f"{start_of(run)}, which is none of the published models"
    if preset:
        model = f"the published {preset}, of which there is no figure on {task}"
    return f"The run started from {model}: the figures show what others reach, and are not comparable with yours."


def percent(task: str, value: float) -> float:
    """Return a measure in percent, as papers write it.

    >>> percent("mrpc", 0.68), percent("squad", 68.0)
    (68.0, 68.0)
    """
    return value if task in PERCENT_TASKS else 100 * value


def named(measure: str, names: Sequence[str]) -> str | None:
    """Find a measure among names, where either may begin with the name of a held-out set.

    >>> named("accuracy", ["dev_matched_accuracy", "dev_mismatched_accuracy"])
    'dev_matched_accuracy'
    """
    fits = (name for name in names if name.endswith(f"_{measure}") or measure.endswith(f"_{name}"))
    return measure if measure in names else next(fits, None)


def glue_table(runs: Mapping[str, Run]) -> Table:
    """Return a row per finished task, in percent; for several seeds, their median."""
    rows = []
    for task, run in runs.items():
        reached = reached_by(run)
        measure = reached[0].measure
        assert measure is not None, "a finished run has a key measure"
        yours = [None if value is None else round(percent(task, value), 2) for value in medians(reached)]
        # that of the model itself, or else of the smallest ALBERT that has one
        by_model = {s.model: s for s in reversed(published_on_dev(task)) if named(measure, [s.measure])}
        score = next((by_model[model] for model in (preset_of(run), *NEAREST) if model in by_model), None)
        cited: tuple[Cell, ...] = (None, None, None)
        if score is not None:
            cited = (score.percent, score.model, f"{score.table}, row {score.row}")
        rows.append((task, measure, *yours, len(reached), *cited))
    headings = ("task", "measure", "last", "best", "seeds", "published", "model", "source")
    return Table(headings, tuple(rows), decimals=2)


def glue_remarks(runs: Mapping[str, Run]) -> tuple[str, ...]:
    """Say how the table is to be read."""
    return (
        "Percent on dev. last: the last step; best: the best evaluation, which was chosen on dev "
        "itself. Over several seeds, both are medians.",
        *dict.fromkeys(comparability(run) for run in runs.values()),
    )
