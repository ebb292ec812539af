"""A data set: the family it belongs to, how its files are read, what is reported."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Generic

from litebert.files import Json
from litebert.tasks.kinds.family import Answer, Example, Family


@dataclass(frozen=True)
class Dataset(Generic[Example, Answer]):
    """Everything that is specific to one data set.

    `read` takes the data folder and a split; there are splits to train on, to evaluate on (two for
    MNLI) and to answer without labels. `submission` turns answers into the files that a leaderboard
    or the official script expects, by file name; `notes` say what was guessed.
    """

    name: str
    family: Family[Example, Answer]
    read: Callable[[Path, str], list[Example]]
    key_measure: str
    submission: Callable[[str, Sequence[Example], Sequence[Answer]], Mapping[str, str]]
    train_split: str = "train"
    dev_splits: tuple[str, ...] = ("dev",)
    test_splits: tuple[str, ...] = ("test",)
    notes: tuple[str, ...] = ()

    @property
    def settled(self) -> dict[str, Json]:
        """What was guessed about a user's own files, for run.json; nothing for a named data set."""
        return {}
