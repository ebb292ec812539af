"""Published figures beside those of a run, and the table of GLUE."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from litebert.config import PRESETS
from litebert.plugins import DATASETS
from litebert.report.results import medians, results_of, start_of
from litebert.report.tables import Cell, Table
from litebert.runs import RunFolder

if TYPE_CHECKING:
    from litebert.tasks.kinds.family import PublishedScore

NEAREST = ("base-v2", "base-v1", "xxlarge-v1")
"""The models to cite, in this order, if the run's own has no published figure: the
smallest first.
"""


def published_on_dev(task: str) -> "list[PublishedScore]":
    """Return the published scores of a task on its dev set; of a plug-in's task without
    such scores, the scores on other splits.
    """
    from litebert.tasks.named import published_scores  # imports torch

    scores = [score for score in published_scores() if score.task == task]
    on_dev = [score for score in scores if score.split == "dev"]
    if DATASETS.plugin_of(task):
        return on_dev or scores
    return on_dev


def preset_of(run: RunFolder) -> str | None:
    """Return the published model that a run started from, recognized by its name."""
    if run.settings.get("model.random") is True:
        return None
    name = Path(run.setting("model.start")).name.lower().removeprefix("albert-")
    return name if name in PRESETS else None


def comparability(run: RunFolder) -> str:
    """Return a sentence on whether there are figures for exactly the model that the run
    started from.
    """
    preset = preset_of(run)
    task = run.setting("task.name")
    if preset is None:
        return _not_comparable(
            f"{start_of(run)}, which is not one of the published models"
        )
    if preset not in [score.model for score in published_on_dev(task)]:
        return _not_comparable(f"the published {preset}, which has no figure on {task}")
    return (
        f"Judging by its name, the run started from the published {preset}: compare your"
        " figures with its figures, as far as the settings are those of the paper."
    )


def _not_comparable(model: str) -> str:
    return (
        f"The run started from {model}: the figures show what others reach, and are not"
        " comparable with yours."
    )


def percent(task: str, value: float) -> float:
    """Return a measure in percent, as in papers; those of SQuAD's official script
    already are.

    >>> percent("mrpc", 0.68), percent("squad", 68.0)
    (68.0, 68.0)
    """
    return value if task.startswith("squad") else 100 * value


def find_measure(measure: str, names: Sequence[str]) -> str | None:
    """Find a measure among names; either may start with the name of a held-out set.

    >>> find_measure("accuracy", ["dev_matched_accuracy", "dev_mismatched_accuracy"])
    'dev_matched_accuracy'
    """
    if measure in names:
        return measure
    for name in names:
        if name.endswith(f"_{measure}") or measure.endswith(f"_{name}"):
            return name
    return None


# ---- GLUE ----------------------------------------------------------------------------


def glue_table(runs: Mapping[str, RunFolder]) -> Table:
    """Return a table of finished tasks, in percent (for several seeds, medians), with
    notes on how to read it.
    """
    rows = [_glue_row(task, run) for task, run in runs.items()]
    headings = (
        "task",
        "measure",
        "last",
        "best",
        "seeds",
        "published",
        "model",
        "source",
    )
    how_to_read = (
        "Percent on dev. last: the last step; best: the best evaluation, which was"
        " chosen on dev itself. For several seeds, both are medians."
    )
    sentences = dict.fromkeys(comparability(run) for run in runs.values())
    return Table(headings, rows, decimals=2, notes=(how_to_read, *sentences))


def _glue_row(task: str, run: RunFolder) -> tuple[Cell, ...]:
    results = results_of(run)
    measure = results[0].key_measure
    last, best = medians(results)
    measured = (_rounded(task, last), _rounded(task, best), len(results))
    cited: tuple[Cell, ...] = (None, None, None)
    score = _cited_score(task, run, measure)
    if score is not None:
        source = f"{score.table}, row {score.row}"
        cited = (score.percent, score.model, source)
    return (task, measure, *measured, *cited)


def _rounded(task: str, value: float | None) -> float | None:
    return None if value is None else round(percent(task, value), 2)


def _cited_score(task: str, run: RunFolder, measure: str) -> "PublishedScore | None":
    """Return the published score of the model that a run started from, or else of the
    smallest ALBERT that has one.
    """
    scores = published_on_dev(task)
    for model in (preset_of(run), *NEAREST):
        for score in scores:
            if score.model == model and find_measure(measure, [score.measure]):
                return score
    return None
