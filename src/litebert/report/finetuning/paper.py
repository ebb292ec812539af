"""The table "Paper, recipe, yours": published figures beside those of the run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.resources import files as package_files
from pathlib import Path
from typing import TYPE_CHECKING

from litebert.config import PRESETS
from litebert.report.finetuning.overview import start_of
from litebert.report.markup import Html, commands, details, paragraph, section, table
from litebert.runs import Record, Result

if TYPE_CHECKING:
    from litebert.tasks.named.published import PublishedScore

_PERCENT_TASKS = ("squad", "squad2")
"""Tasks whose official scripts, and so our measures, are in percent; all others are 0 to 1."""
_CAPTION = "Percent, on dev; tables of arXiv 1909.11942 v6, README of google-research/albert"
_NEAREST = ("base-v2", "base-v1", "xxlarge-v1")
"""The model cited if the run's own has no published figures: the smallest that has some."""


def sections(record: Record, result: Result | None) -> list[Html]:
    """Return the published figures of the run's task and its recipe; nothing if there are none."""
    columns = {"last step": result.last.measures, "best": result.best.measures} if result else {}
    return beside_yours(record, columns)


def beside_yours(record: Record, columns: Mapping[str, Mapping[str, float]]) -> list[Html]:
    """Return published figures beside the reader's own, given by column and measure."""
    scores, recipe = published_on_dev(record.setting("task.name")), _recipe(record)
    parts = []
    if scores:
        parts += [paragraph(comparability(record)), *_tables(record, scores, columns)]
    if recipe:
        parts += [paragraph(_departures(record, recipe)), details(*_recipe_text(recipe))]
    return [section("Paper, recipe, yours", *parts)] if parts else []


def published_on_dev(task: str) -> list[PublishedScore]:
    """Return the published scores of a task on held-out sets whose answers are public."""
    from litebert.tasks.named.published import published  # torch comes with it

    return [score for score in published(task) if score.split == "dev"]


def nearest(task: str, measure: str, preset: str | None) -> PublishedScore | None:
    """Return the published score of a preset, or else of the smallest ALBERT that has one."""
    scores = [score for score in published_on_dev(task) if named(measure, [score.measure])]
    by_model = {score.model: score for score in reversed(scores)}
    models = (preset, *_NEAREST)
    return next((by_model[model] for model in models if model in by_model), None)


def preset_of(record: Record) -> str | None:
    """Return the published model that a run started from, recognised by its name."""
    name = Path(record.setting("model.start")).name.lower().removeprefix("albert-")
    return name if name in PRESETS and record.settings.get("model.random") is not True else None


def comparability(record: Record) -> str:
    """Say whether there are figures of exactly the model that the run started from."""
    preset = preset_of(record)
    task = record.setting("task.name")
    if preset and any(score.model == preset for score in published_on_dev(task)):
        return (
            f"By its name the run started from the published {preset}: compare yours with its "
            "figures, as far as the settings are those of the paper."
        )
    model = (
        f"the published {preset}, of which there is no figure on {task}"
        if preset
        else f"{start_of(record)}, which is none of the published models"
    )
    return f"The run started from {model}: the figures show what others reach, and are not comparable with yours."


def percent(task: str, value: float) -> float:
    """Return a measure in percent, as papers write it.

    >>> percent("mrpc", 0.68), percent("squad", 68.0)
    (68.0, 68.0)
    """
    return value if task in _PERCENT_TASKS else 100 * value


def named(measure: str, names: Sequence[str]) -> str | None:
    """Find a measure among names, where either may begin with the name of a held-out set.

    >>> named("accuracy", ["dev_matched_accuracy", "dev_mismatched_accuracy"])
    'dev_matched_accuracy'
    """
    fits = (name for name in names if name.endswith(f"_{measure}") or measure.endswith(f"_{name}"))
    return measure if measure in names else next(fits, None)


def _tables(record: Record, scores: list[PublishedScore], columns: Mapping[str, Mapping[str, float]]) -> list[Html]:
    """Return the figures of the run's own model, or the nearest, and folded those of others."""
    models = {score.model for score in scores}
    preset = preset_of(record)
    shown = {preset} if preset in models else models.intersection(_NEAREST) or models
    near = [score for score in scores if score.model in shown]
    others = [score for score in scores if score.model not in shown]
    headings = ("Model", "Measure", "Published", *(f"Yours, {name}" for name in columns), "Source")
    tables = [
        table(_CAPTION, headings, (_cells(score, columns) for score in part), kind="numbers") for part in (near, others)
    ]
    count = f"{len(others)} published figures of other models"
    return [tables[0], details(count, tables[1])] if others else tables[:1]


def _cells(score: PublishedScore, columns: Mapping[str, Mapping[str, float]]) -> tuple[str, ...]:
    yours = [_yours(score, measures) for measures in columns.values()]
    source = f"{score.table}, row {score.row}"
    return score.model, score.measure, f"{score.percent:.1f}", *yours, source


def _yours(score: PublishedScore, measures: Mapping[str, float]) -> str:
    name = named(score.measure, list(measures))
    return f"{percent(score.task, measures[name]):.1f}" if name else ""


def _recipe(record: Record) -> str | None:
    """Return the name of the packaged recipe that the run used."""
    names = sorted({o.detail for o in record.origins.values() if o.kind == "recipe"})
    return names[0] if names else None


def _departures(record: Record, recipe: str) -> str:
    """Say which settings of the recipe the run changed."""
    values = record.settings
    typed = [
        f"{name} = {values.get(name)}"
        for name, origin in record.origins.items()
        if origin.kind == "flag"
        and name.startswith(("optim.", "train.", "task.max", "model.random"))
        and name != "train.seed"
    ]
    if not typed:
        return f"All values are those of the recipe {recipe}."
    return f"Set otherwise than the recipe {recipe} says: {'; '.join(typed)}."


def _recipe_text(recipe: str) -> tuple[str, Html]:
    path = package_files("litebert") / "recipes" / "finetune" / f"{recipe}.toml"
    lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
    comments = [line.lstrip("# ") for line in lines if line.startswith("#")]
    return f"What the recipe {recipe} says", commands(comments or ["It is not in this version."])
