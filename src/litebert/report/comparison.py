"""What runs reached and whether to trust it: one row each, side by side with their settings, or the table of GLUE."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from litebert.config import PRESETS
from litebert.errors import LitebertError
from litebert.files import Json
from litebert.metrics import Spread
from litebert.report.tables import Cell, Table, written
from litebert.runs import EvaluatedStep, Result, Run

if TYPE_CHECKING:
    from litebert.tasks.named import PublishedScore

DEEPEST = 3
"""Levels of folders to search: `litebert glue` writes runs two levels deep, or three with seeds."""
DECIMALS = 4  # measures are rounded once, so that every format has the same numbers
WORSE = 0.01  # nats that a held-out loss may lie above the lowest one before that is worth a word


def reached_by(run: Run) -> list[Result]:
    """Return what a run reached, or what each of its seeds did; nothing if it did not get so far."""
    if run.kind == "fine-tuning":
        return [each.outcome for each in run.seeds or (run,) if each.outcome]
    measure = "masked_lm_accuracy"
    steps = [step for step in map(EvaluatedStep.of, run.evaluations) if measure in step.measures]
    if not steps:
        return []
    best = max(steps, key=lambda step: step.measures[measure])
    return [Result(task="", key_measure=measure, last=steps[-1], best=best, num_evaluations=len(steps), fresh=())]


def spreads(evaluations: Sequence[EvaluatedStep]) -> dict[str, Spread]:
    """Summarise each measure that all evaluations have; there is one evaluation per seed."""
    names = [name for name in evaluations[0].measures if all(name in each.measures for each in evaluations)]
    return {name: Spread.of([each.measures[name] for each in evaluations]) for name in names}


def medians(reached: Sequence[Result]) -> list[float | None]:
    """Return the medians of the key measure over several seeds: of their last steps, and of their best."""
    if not reached:
        return [None, None]
    ends = ([each.last for each in reached], [each.best for each in reached])
    return [spreads(steps)[reached[0].key_measure].median for steps in ends]


# ---- what a pretraining reached, and doubts about it ----------------------------------------------------------------


def share(value: float) -> str:
    """Write an accuracy.

    >>> share(0.4123)
    '41.2%'
    """
    return f"{value:.1%}" if math.isfinite(value) else "not finite"


def network_of(run: Run) -> str:
    origin = run.file.origins.get("model.hidden_size")
    preset = f"{origin.detail}: " if origin and origin.kind == "preset" else ""
    return f"{preset}{run.setting('model.num_hidden_layers')} layers of {run.setting('model.hidden_size')}"


def sentence_task(run: Run) -> str:
    return "Next sentence" if run.settings.get("objective.sentence") == "next" else "Sentence order"


def pretraining_findings(run: Run) -> dict[str, bool]:
    """Say in clauses what the last evaluation means; True where it is a reason not to trust the model."""
    if not run.evaluations:
        return {}
    last, found = run.evaluations[-1], dict[str, bool]()
    if (accuracy := last.values.get("masked_lm_accuracy")) is not None:
        said, has_no_gain = f"at step {last.step:,} the model names {share(accuracy)} of the masked tokens", False
        if (baseline := last.values.get("masked_lm_baseline")) is not None:
            has_no_gain = round(accuracy, 3) <= round(baseline, 3)
            said += f"; always giving the commonest gets {share(baseline)}{': no gain over that' * has_no_gain}"
        found[said] = has_no_gain
    if (order := last.values.get("sentence_order_accuracy")) is not None:
        number = run.settings.get("train.eval_sequences")
        # two standard errors of a coin that is tossed once per sequence: 2 sqrt(p (1 - p) / n), p = 1/2
        is_chance = isinstance(number, int) and number > 0 and abs(order - 0.5) < 1 / math.sqrt(number)
        said = f"no better than chance on {number:,} sequences" if is_chance else f"where chance gets {share(0.5)}"
        found[f"{sentence_task(run)}: {share(order)} right, {said}"] = is_chance
    elif not run.trains_sentences:
        setting = run.setting("objective.sentence")
        found[f"no sentence objective was trained (objective.sentence = {setting})"] = False
    losses = [(row.values.get("masked_lm_loss", math.nan), row.step) for row in run.evaluations]
    lowest, step = min((each for each in losses if math.isfinite(each[0])), default=(math.nan, last.step))
    if step != last.step:
        now = losses[-1][0]
        said = f"the held-out masked-LM loss is {now:.3f}; it was lowest, {lowest:.3f}, at step {step:,}"
        found[said] = step < last.step and now > lowest + WORSE
    return found


def doubts_of(run: Run) -> tuple[str, ...]:
    """Return reasons not to trust what a run reached; of several seeds, those of any."""
    if run.kind == "pretraining":
        return tuple(said for said, is_doubtful in pretraining_findings(run).items() if is_doubtful)
    return tuple(dict.fromkeys(doubt for result in reached_by(run) for doubt in result.doubts))


# ---- the runs in a folder, and some of them side by side ------------------------------------------------------------


def list_runs(folder: Path) -> tuple[Table, list[LitebertError]]:
    """Return a row for each run below a folder, and the errors of those that are damaged.

    Several seeds are one row, with the medians of those that finished.
    """
    if not folder.is_dir():
        found = "a file" if folder.exists() else "no such folder"
        advice = "litebert runs list --runs FOLDER"
        raise LitebertError("LB-655", f"there are no runs in {folder}", received=found, next=advice)
    rows, errors = list[tuple[Cell, ...]](), []
    for run in _runs_below(folder, DEEPEST):
        parts = run.seeds or (run,)
        try:
            is_finetuning = run.kind == "fine-tuning"
            trained = (run.setting("task.name"), start_of(run)) if is_finetuning else (None, network_of(run))
            is_timed = run.settings.get("train.minutes") is not None  # its steps are an estimate
            steps = None if is_timed else run.settings.get("train.steps")
            progress = (min(each.step for each in parts), steps if isinstance(steps, int) else None)
            reached = reached_by(run)
            ends = (None if value is None else round(value, DECIMALS) for value in medians(reached))
            measured = (all(each.has_model for each in parts), reached[0].key_measure if reached else None, *ends)
            name, doubts = str(run.folder.relative_to(folder)), "; ".join(doubts_of(run)) or None
            rows.append((name, run.kind, *trained, len(parts), *progress, *measured, doubts))
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


def compare(runs: Mapping[str, Run]) -> Table:
    """Return a column per run: what differs in settings, data and environment, then measures, then doubts.

    Measures are those of the last step and of the best evaluation; over several seeds their medians, and below them
    their means and deviations.
    """
    # by kind and name: the text of each run's value, and who set it
    facts: dict[tuple[str, str], dict[str, tuple[str, str]]] = {}
    measures: dict[tuple[str, str], dict[str, Cell]] = {}
    for run_name, run in runs.items():
        settings: dict[str, Json] = dict(run.settings)
        if run.seeds:
            settings["train.seed"] = [each.seed for each in run.seeds]
        environment: dict[str, Json] = {"litebert": run.file.litebert, **run.file.environment}
        kinds = (("setting", settings), ("data", run.file.data), ("environment", environment))
        for kind, values in kinds:
            for name, value in values.items():
                origin = f" ({run.file.origins[name]})" if kind == "setting" and name in run.file.origins else ""
                facts.setdefault((kind, name), {})[run_name] = (written(value), origin)
        reached = reached_by(run)
        for kind, steps in (("last", [each.last for each in reached]), ("best", [each.best for each in reached])):
            spread_of = {"step": Spread.of([each.step for each in steps]), **spreads(steps)} if steps else {}
            for name, spread in spread_of.items():
                statistics = {kind: spread.median}
                if spread.number > 1:
                    statistics |= {f"{kind}, mean of {spread.number}": spread.mean, f"{kind}, deviation": spread.spread}
                for statistic, value in statistics.items():
                    measures.setdefault((statistic, name), {})[run_name] = _rounded(value)
    rows = list[tuple[Cell, ...]]()
    for key, by_run in facts.items():
        if len({by_run.get(run_name, ("", ""))[0] for run_name in runs}) > 1:
            rows.append((*key, *("".join(by_run[n]) if n in by_run else None for n in runs)))
    # all kinds of last steps before those of best evaluations
    for key in sorted(measures, key=lambda key: not key[0].startswith("last")):
        rows.append((*key, *map(measures[key].get, runs)))
    doubts = ["; ".join(doubts_of(run)) or None for run in runs.values()]
    if any(doubts):
        rows.append(("doubts", "", *doubts))
    return Table(("of", "name", *runs), tuple(rows))


def _rounded(value: float) -> float:
    is_count = abs(value) > 1 and float(value).is_integer()
    return int(value) if is_count else round(float(value), DECIMALS)


# ---- beside published figures; GLUE ---------------------------------------------------------------------------------

PERCENT_TASKS = ("squad", "squad2")
"""Tasks whose official scripts, and so our measures, are in percent; all others are 0 to 1."""
NEAREST = ("base-v2", "base-v1", "xxlarge-v1")
"""The model cited if the run's own has no published figures: the smallest that has some."""


def published_on_dev(task: str) -> list[PublishedScore]:
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
    """Return a row per finished task, in percent, and notes on how to read it; for several seeds, their median."""
    rows = list[tuple[Cell, ...]]()
    for task, run in runs.items():
        reached = reached_by(run)
        measure = reached[0].key_measure
        yours = [None if value is None else round(percent(task, value), 2) for value in medians(reached)]
        # that of the model itself, or else of the smallest ALBERT that has one
        by_model = {s.model: s for s in reversed(published_on_dev(task)) if named(measure, [s.measure])}
        score = next((by_model[model] for model in (preset_of(run), *NEAREST) if model in by_model), None)
        cited = (score.percent, score.model, f"{score.table}, row {score.row}") if score else (None, None, None)
        rows.append((task, measure, *yours, len(reached), *cited))
    headings = ("task", "measure", "last", "best", "seeds", "published", "model", "source")
    notes = (
        "Percent on dev. last: the last step; best: the best evaluation, which was chosen on dev "
        "itself. Over several seeds, both are medians.",
        *dict.fromkeys(comparability(run) for run in runs.values()),
    )
    return Table(headings, tuple(rows), decimals=2, notes=notes)
