"""Published figures beside those of a run: the table "Paper, recipe, yours" of a page, and the table of GLUE."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.resources import files as package_files
from pathlib import Path
from typing import TYPE_CHECKING

from litebert.config import PRESETS
from litebert.report.comparison import median, reached_by
from litebert.report.page import Block, Section, commands, details, paragraph, table
from litebert.report.tables import Cell, Table
from litebert.runs import Run

if TYPE_CHECKING:
    from litebert.tasks.named import PublishedScore

PERCENT_TASKS = ("squad", "squad2")
"""Tasks whose official scripts, and so our measures, are in percent; all others are 0 to 1."""
NEAREST = ("base-v2", "base-v1", "xxlarge-v1")
"""The model cited if the run's own has no published figures: the smallest that has some."""
DECIMALS = 2
"""Decimals of percentages in the table of GLUE, which are rounded once for all formats."""


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


def beside_yours(run: Run, columns: Mapping[str, Mapping[str, float]]) -> list[Section]:
    """Return published figures beside the reader's own, given by column and measure, and what the recipe says."""
    blocks = [*_published(run, columns), *_recipe(run)]
    return [Section("Paper, recipe, yours", blocks)] if blocks else []


def _published(run: Run, columns: Mapping[str, Mapping[str, float]]) -> list[Block]:
    scores, preset = published_on_dev(run.setting("task.name")), preset_of(run)
    if not scores:
        return []
    models = {score.model for score in scores}
    shown = {preset} if preset in models else models.intersection(NEAREST) or models
    near, others = list[Sequence[str]](), list[Sequence[str]]()
    for score in scores:
        names = [(measures, named(score.measure, list(measures))) for measures in columns.values()]
        yours = [f"{percent(score.task, measures[name]):.1f}" if name else "" for measures, name in names]
        cells = (score.model, score.measure, f"{score.percent:.1f}", *yours, f"{score.table}, row {score.row}")
        (near if score.model in shown else others).append(cells)
    headings = ("Model", "Measure", "Published", *(f"Yours, {name}" for name in columns), "Source")
    caption = "Percent, on dev; tables of arXiv 1909.11942 v6, README of google-research/albert"
    blocks = [paragraph(comparability(run)), table(caption, headings, near, style="numbers")]
    folded = table(caption, headings, others, style="numbers")
    return [*blocks, details(f"{len(others)} published figures of other models", folded)] if others else blocks


def _recipe(run: Run) -> list[Block]:
    """Return what was set otherwise than the recipe says, and its comments."""
    origins = run.file.origins
    recipe = min((origin.detail for origin in origins.values() if origin.kind == "recipe"), default=None)
    if recipe is None:
        return []
    told = ("optim.", "train.", "task.max", "model.random")
    typed = [name for name, origin in origins.items() if origin.kind == "flag" and name.startswith(told)]
    changed = "; ".join(f"{name} = {run.settings.get(name)}" for name in typed if name != "train.seed")
    words = f"Set otherwise than the recipe {recipe} says: {changed}." if changed else ""
    path = package_files("litebert") / "recipes" / "finetune" / f"{recipe}.toml"
    lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
    said = [line.lstrip("# ") for line in lines if line.startswith("#")]
    says = commands(said or ["It is not in this version."])
    first = paragraph(words or f"All values are those of the recipe {recipe}.")
    return [first, details(f"What the recipe {recipe} says", says)]


# ---- GLUE -----------------------------------------------------------------------------------------------------------


def glue_table(runs: Mapping[str, Run]) -> Table:
    """Return a row per finished task, in percent; for several seeds, their median."""
    rows = []
    for task, run in runs.items():
        reached = reached_by(run)
        measure = reached[0].measure
        assert measure is not None, "a finished run has a key measure"
        found = (median(measure, [getattr(each, name) for each in reached]) for name in ("last", "best"))
        yours = [None if value is None else round(percent(task, value), DECIMALS) for value in found]
        # that of the model itself, or else of the smallest ALBERT that has one
        by_model = {s.model: s for s in reversed(published_on_dev(task)) if named(measure, [s.measure])}
        score = next((by_model[model] for model in (preset_of(run), *NEAREST) if model in by_model), None)
        cited: tuple[Cell, ...] = (None, None, None)
        if score is not None:
            cited = (score.percent, score.model, f"{score.table}, row {score.row}")
        rows.append((task, measure, *yours, len(reached), *cited))
    headings = ("task", "measure", "last", "best", "seeds", "published", "model", "source")
    return Table(headings, tuple(rows), decimals=DECIMALS)


def glue_remarks(runs: Mapping[str, Run]) -> tuple[str, ...]:
    """Say how the table is to be read."""
    return (
        "Percent on dev. last: the last step; best: the best evaluation, which was chosen on dev "
        "itself. Over several seeds, both are medians.",
        *dict.fromkeys(comparability(run) for run in runs.values()),
    )
