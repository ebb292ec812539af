"""Data sets by name: built-in and registered ones, and users' own files. Also the
published scores.
"""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from functools import cache
from pathlib import Path
from typing import Any

from litebert.config import TaskConfig, TaskDataConfig
from litebert.errors import LitebertError, no_such_name
from litebert.files import Json
from litebert.tasks.kinds.family import Dataset
from litebert.tasks.named import glue, questions
from litebert.tasks.own.dataset import table_dataset

OWN = "table"
"""The name of the task whose data are users' own files."""
DATASETS: dict[str, Dataset[Any, Any]] = {
    **glue.DATASETS,
    **questions.RACE,
    **questions.SQUAD,
}


def register(dataset: Dataset[Any, Any]) -> None:
    """Register a data set, so that `litebert finetune NAME` and recipes find it by its
    name.
    """
    if dataset.name == OWN or DATASETS.setdefault(dataset.name, dataset) is not dataset:
        raise LitebertError(
            "LB-882",
            f"another task is called {dataset.name}",
            next="litebert recipes list",
        )


def require_task(name: str) -> None:
    """Check that a task has this name."""
    if name != OWN and name not in DATASETS:
        what = "no task has this name, and no file either"
        raise no_such_name(
            "LB-870", what, name, [*DATASETS, OWN], next="litebert recipes list"
        )


def open_dataset(
    task: TaskConfig, data: TaskDataConfig, *, settled: Mapping[str, Json] | None = None
) -> Dataset[Any, Any]:
    """Return a data set, with the task's settings in its family.

    `settled` is what a run recorded about a user's own files, which are then read as in
    its training.
    """
    require_task(task.name)
    if task.name != OWN:
        dataset = DATASETS[task.name]
    else:
        dataset = table_dataset(
            Path(str(data.train)),
            Path(data.dev) if data.dev else None,
            held_out=data.held_out,
            columns=data.columns,
            problem=data.problem,
            skips_unlabelled=data.missing_labels == "skip",
            settled=settled,
        )
    # The settings of a task that its family has a field for
    names = {field.name for field in fields(dataset.family)} & set(
        TaskConfig.model_fields
    )
    family = replace(dataset.family, **{name: getattr(task, name) for name in names})
    return replace(dataset, family=family)


# What the paper and the official README report, as listed in published.toml


@dataclass(frozen=True)
class PublishedScore:
    """One score in percent, and its source (arXiv 1909.11942 v6, README of
    google-research).

    `model` is the preset of this row, or a description if there is none; `row` is the
    row's own name.
    """

    task: str
    measure: str
    percent: float
    model: str
    table: str
    row: str
    split: str = "dev"


@cache
def published_scores() -> tuple[PublishedScore, ...]:
    """Return every published score, table by table."""
    tables = tomllib.loads(
        Path(__file__).with_name("published.toml").read_text(encoding="utf-8")
    )["tables"]
    return tuple(
        PublishedScore(
            task, measure, percent, model, table["name"], row, table["split"]
        )
        for table in tables
        for row, model, *percents in table["rows"]
        for (task, measure), percent in zip(
            map(str.split, table["columns"]), percents, strict=True
        )
    )
