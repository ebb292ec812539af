"""Every data set that has a name, and people's own: one place that finds and sets them up."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from litebert.config import TaskConfig, TaskDataConfig
from litebert.errors import LitebertError, did_you_mean
from litebert.tasks import glue, race, squad
from litebert.tasks.dataset import Dataset

OWN = "table"
DATASETS: dict[str, Dataset[Any, Any]] = {**glue.DATASETS, **race.DATASETS, **squad.DATASETS}


def open_dataset(task: TaskConfig, data: TaskDataConfig) -> Dataset[Any, Any]:
    """Return a data set whose family has the task's settings.

    Raises:
        LitebertError: LB-870, no task has this name; what reading your own files raises.
    """
    require_task(task.name)
    dataset = _own(data) if task.name == OWN else DATASETS[task.name]
    split = data.train_split or dataset.train_split
    family = _configured(dataset.family, task)
    return dataclasses.replace(dataset, family=family, train_split=split)


def require_task(name: str) -> None:
    """Refuse a name that no task has."""
    if name != OWN and name not in DATASETS:
        raise LitebertError(
            "LB-870",
            "no task has this name, and no file either",
            received=name,
            expected=did_you_mean(name, [*DATASETS, OWN]),
            next="litebert recipes list",
        )


def _own(data: TaskDataConfig) -> Dataset[Any, Any]:
    from litebert.tasks.table import table_dataset

    return table_dataset(
        Path(str(data.train)),
        Path(data.dev) if data.dev else None,
        held_out=data.held_out,
        columns=data.columns,
        problem=data.problem,
    )


def _configured(family: Any, task: TaskConfig) -> Any:
    """Replace the fields of a family that the task's settings name."""
    names = {field.name for field in dataclasses.fields(family)} & set(TaskConfig.model_fields)
    asked = {name: getattr(task, name) for name in names}
    return dataclasses.replace(family, **asked)
