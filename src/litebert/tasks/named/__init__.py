"""Data sets by name: built-in and registered ones, and users' own files. Also the
published scores.
"""

import shlex
import tomllib
from collections.abc import Mapping
from dataclasses import fields, replace
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Any

from litebert.config import OWN_FILES, TaskConfig, TaskDataConfig
from litebert.errors import LitebertError, no_such_name
from litebert.files import Json
from litebert.plugins import DATASETS, LOADING
from litebert.tasks.kinds.family import Dataset, Family, PublishedScore
from litebert.tasks.named import glue, questions
from litebert.tasks.tables.dataset import table_dataset
from litebert.tasks.tables.layouts import SUFFIXES

for _name, _dataset in (glue.DATASETS | questions.RACE | questions.SQUAD).items():
    DATASETS.add(_name, _dataset)


def require_task(name: str) -> None:
    """Check that a task has this name."""
    if name == OWN_FILES or name in DATASETS:
        return
    advice = f"litebert recipes list; or if a plug-in adds the task: {LOADING}"
    for suffix in SUFFIXES:
        if Path(f"{name}{suffix}").is_file():
            advice = f"litebert finetune {shlex.quote(name + suffix)}"
            break
    raise no_such_name(
        "LB-870",
        "no task has this name, and no file either",
        name,
        [*DATASETS, OWN_FILES],
        next=advice,
    )


def open_dataset(
    task: TaskConfig, data: TaskDataConfig, *, settled: Mapping[str, Json] | None = None
) -> Dataset[Any, Any]:
    """Return a data set, with the task's settings in its family.

    `settled` is what a run recorded about a user's own files, which are then read as in
    its training.
    """
    require_task(task.name)
    if task.name != OWN_FILES:
        dataset = DATASETS[task.name]
    else:
        dev = Path(data.dev) if data.dev else None
        dataset = table_dataset(
            Path(str(data.train)),
            dev,
            held_out=data.held_out,
            columns=data.columns,
            problem=data.problem,
            labels=data.labels,
            skips_unlabeled=data.missing_labels == "skip",
            settled=settled,
        )
    return replace(dataset, family=with_settings(dataset.family, task))


def with_settings(family: Family[Any, Any], task: TaskConfig) -> Family[Any, Any]:
    """Return the kind of task with its settings: it takes the fields of `task` that it
    also has, and must have all of `task.settings`.
    """
    values = family.checked_settings(task.settings)
    for field in fields(family):
        if field.name in TaskConfig.model_fields:
            values[field.name] = getattr(task, field.name)
    # the model folder has them, too: answers depend on them
    head = family.head.model_copy(update={"settings": dict(task.settings)})
    return replace(family, head=head, **values)


def require_settings_of_kind(family: Family[Any, Any], task: TaskConfig) -> None:
    """Refuse a setting of `task` that this kind of task does not have."""
    defaults = TaskConfig(name=task.name)
    # every task has a name and a length, and its kind has checked `task.settings`
    settings_of_kind = {field.name for field in fields(family)}
    known = {"name", "max_length", "settings"} | settings_of_kind
    for name in TaskConfig.model_fields:
        value = getattr(task, name)
        if name in known or value == getattr(defaults, name):
            continue
        raise LitebertError(
            "LB-520",
            f"task.{name} has no effect: it is a setting of another kind of task",
            received=f"task.{name}={value} for {family.head}",
            next=f"omit task.{name}",
        )


# What the paper and the official README report, as listed in published.toml (arXiv
# 1909.11942 v6, README of google-research/albert), and what a plug-in's task does


def published_scores() -> tuple[PublishedScore, ...]:
    """Return every published score, table by table."""
    datasets = DATASETS.from_plugins().values()
    added = chain.from_iterable(dataset.published for dataset in datasets)
    return (*_published_with_albert(), *added)


@cache
def _published_with_albert() -> tuple[PublishedScore, ...]:
    path = Path(__file__).with_name("published.toml")
    scores = list[PublishedScore]()
    for table in tomllib.loads(path.read_text(encoding="utf-8"))["tables"]:
        # a column is named "task measure"
        columns = [column.split() for column in table["columns"]]
        for row, model, *percents in table["rows"]:
            for (task, measure), percent in zip(columns, percents, strict=True):
                score = PublishedScore(
                    task, measure, percent, model, table["name"], row, table["split"]
                )
                scores.append(score)
    return tuple(scores)
