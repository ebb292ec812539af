"""The registry of data sets: those with a name, and users' own files."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from litebert.config import TaskConfig, TaskDataConfig
from litebert.errors import LitebertError, no_such_name
from litebert.files import Json
from litebert.tasks.kinds.family import Dataset
from litebert.tasks.named import glue, race, squad
from litebert.tasks.own.dataset import table_dataset

OWN = "table"
"""The name of the task whose data are users' own files."""
DATASETS: dict[str, Dataset[Any, Any]] = {**glue.DATASETS, **race.DATASETS, **squad.DATASETS}


def register(dataset: Dataset[Any, Any]) -> None:
    """Register a data set, so that `litebert finetune NAME` and recipes find it by its name."""
    if dataset.name == OWN or DATASETS.setdefault(dataset.name, dataset) is not dataset:
        raise LitebertError(
            "LB-882",
            "another task has this name",
            received=dataset.name,
            expected=f"a name that is not one of {', '.join([*DATASETS, OWN])}",
            next="litebert recipes list",
        )


def require_task(name: str) -> None:
    """Check that a task has this name."""
    if name != OWN and name not in DATASETS:
        raise no_such_name(
            "LB-870", "no task has this name, and no file either", name, [*DATASETS, OWN], next="litebert recipes list"
        )


def open_dataset(
    task: TaskConfig, data: TaskDataConfig, *, settled: Mapping[str, Json] | None = None
) -> Dataset[Any, Any]:
    """Return a data set whose family has the task's settings.

    `settled` is what a run recorded about a user's own files, in case the training file is gone.
    """
    require_task(task.name)
    if task.name != OWN:
        dataset = DATASETS[task.name]
    elif settled and not (data.train and Path(data.train).exists()):
        columns, labels = (
            [str(word) for word in words] if isinstance(words := settled[name], list) else []
            for name in ("columns", "labels")
        )
        dataset = table_dataset(None, columns=columns, problem=str(settled["problem"]), labels=labels)
    else:
        dataset = table_dataset(
            Path(str(data.train)),
            Path(data.dev) if data.dev else None,
            held_out=data.held_out,
            columns=data.columns,
            problem=data.problem,
            skips_unlabelled=data.missing_labels == "skip",
        )
    # The settings of a task that its family has a field for
    names = {field.name for field in dataclasses.fields(dataset.family)} & set(TaskConfig.model_fields)
    family = dataclasses.replace(dataset.family, **{name: getattr(task, name) for name in names})
    return dataclasses.replace(dataset, family=family, train_split=data.train_split or dataset.train_split)
