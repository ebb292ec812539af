"""The scores that the paper and the official README report for each task, as listed in published.toml."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path


@dataclass(frozen=True)
class PublishedScore:
    """One score in percent, and its source (arXiv 1909.11942 v6, README of google-research).

    `model` is the preset of this row, or a description if it is none; `row` is the row's own name.
    """

    task: str
    measure: str
    percent: float
    model: str
    table: str
    row: str
    split: str = "dev"


@cache
def all_published() -> tuple[PublishedScore, ...]:
    """Return every published score, table by table."""
    tables = tomllib.loads(Path(__file__).with_name("published.toml").read_text(encoding="utf-8"))["tables"]
    return tuple(
        PublishedScore(task, measure, percent, model, table["name"], row, table["split"])
        for table in tables
        for row, model, *percents in table["rows"]
        for (task, measure), percent in zip(map(str.split, table["columns"]), percents, strict=True)
    )


def published(task: str, *, model: str | None = None) -> list[PublishedScore]:
    """Return the published scores of a task, for one model or for all.

    >>> [score.percent for score in published("sst2", model="base-v2")]
    [92.9]
    """
    return [score for score in all_published() if score.task == task and (model or score.model) == score.model]
