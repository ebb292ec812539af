"""The registry of data sets: those with a name, and users' own files."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from litebert.config import TaskConfig, TaskDataConfig
from litebert.errors import LitebertError, no_such_name
from litebert.files import Json
from litebert.tasks.dataset import Dataset
from litebert.tasks.named import glue, race, squad

OWN = "table"
DATASETS: dict[str, Dataset[Any, Any]] = {**glue.DATASETS, **race.DATASETS, **squad.DATASETS}


def register(dataset: Dataset[Any, Any]) -> None:
    """Register a data set, so that `litebert finetune NAME` and recipes find it by its name.

    Raises:
        LitebertError: LB-882, another one has this name.
    """
    if dataset.name == OWN or DATASETS.setdefault(dataset.name, dataset) is not dataset:
        raise LitebertError(
            "LB-882",
            "another task has this name",
            received=dataset.name,
            expected=f"a name that is not one of {', '.join([*DATASETS, OWN])}",
            next="litebert recipes list",
        )


def is_registered(name: str) -> bool:
    """Whether a data set has this name."""
    return name in DATASETS


def open_dataset(
    task: TaskConfig, data: TaskDataConfig, *, settled: Mapping[str, Json] | None = None
) -> Dataset[Any, Any]:
    """Return a data set whose family has the task's settings.

    `settled` is what a run recorded about a user's own files, in case the training file is gone.

    Raises:
        LitebertError: LB-870, no task has this name; or a user's own file cannot be read.
    """
    require_task(task.name)
    dataset = _own(data, settled or {}) if task.name == OWN else DATASETS[task.name]
    split = data.train_split or dataset.train_split
    family = _configured(dataset.family, task)
    return dataclasses.replace(dataset, family=family, train_split=split)


def require_task(name: str) -> None:
    """Raise LB-870 if no task has this name."""
    if name != OWN and name not in DATASETS:
        raise no_such_name(
            "LB-870", "no task has this name, and no file either", name, [*DATASETS, OWN], next="litebert recipes list"
        )


def _own(data: TaskDataConfig, settled: Mapping[str, Json]) -> Dataset[Any, Any]:
    from litebert.tasks.own import table_dataset

    if settled and not (data.train and Path(data.train).exists()):
        return table_dataset(
            None, columns=_words(settled["columns"]), problem=str(settled["problem"]), labels=_words(settled["labels"])
        )
    return table_dataset(
        Path(str(data.train)),
        Path(data.dev) if data.dev else None,
        held_out=data.held_out,
        columns=data.columns,
        problem=data.problem,
        skips_unlabelled=data.missing_labels == "skip",
    )


def _words(value: Json) -> list[str]:
    return [str(word) for word in value] if isinstance(value, list) else []


def _configured(family: Any, task: TaskConfig) -> Any:
    """Replace the fields of a family that the task's settings name."""
    names = {field.name for field in dataclasses.fields(family)} & set(TaskConfig.model_fields)
    overrides = {name: getattr(task, name) for name in names}
    return dataclasses.replace(family, **overrides)
