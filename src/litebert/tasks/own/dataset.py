"""People's own files as a data set: what they hold is guessed, said, and can be said instead."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from litebert import rng
from litebert.errors import LitebertError
from litebert.files import Json
from litebert.tasks.dataset import Dataset
from litebert.tasks.kinds.family import Answer, Example
from litebert.tasks.own.roles import asked_header
from litebert.tasks.own.rows import open_table
from litebert.tasks.own.settle import Settled, recalled, settle
from litebert.tasks.own.written import answer_table

HELD_OUT = 0.1
SPLITS = ("train", "dev", "test")


@dataclass(frozen=True)
class TableDataset(Dataset[Example, Answer]):
    """A data set of one's own files.

    `columns`, `problem` and `labels` are what was settled: given to `table_dataset`, they answer
    new files where the training file is not.
    """

    columns: tuple[str, ...] = ()
    problem: str = ""
    labels: tuple[str, ...] = ()

    @property
    def settled(self) -> dict[str, Json]:
        """What new files are read by."""
        columns, labels = list(self.columns), list(self.labels)
        return {"columns": columns, "problem": self.problem, "labels": labels}  # type: ignore[dict-item]


def table_dataset(
    train: Path | None,
    dev: Path | None = None,
    *,
    held_out: float = HELD_OUT,
    columns: Sequence[str] = (),
    problem: str | None = None,
    labels: Sequence[str] = (),
) -> TableDataset[Any, Any]:
    """Set up a data set from files, reading `train` once for its labels.

    `columns` are choices such as text=review or header=no; what is not chosen is guessed. Without
    `dev` the share `held_out` of `train` is evaluated on: rows drawn by what stands in them, so
    that equal ones stay together and other rows change nothing. Of any other file, `read` takes
    all rows: with labels as "train" or "dev", without as "test".

    Raises:
        LitebertError: LB-868, there is neither a training file nor all that is known of one;
            whatever is wrong with the file or with the choices.
    """
    if train:
        table = open_table(train, has_header=asked_header(columns))
        settled = settle(table, columns, problem)
    else:
        settled = recalled(columns, problem, labels)
    files = _Files(settled, train, dev, held_out)
    reading = settled.reading
    said = (
        f"evaluated on: {dev or f'{held_out * 100:g} % of the rows, drawn by what stands in them'}"
    )
    return TableDataset(
        name="table",
        family=reading.family,
        read=files.read,
        key_measure=reading.key_measure,
        submission=partial(answer_table, reading.family),
        notes=(*settled.notes, said),
        columns=settled.words,
        problem=reading.problem,
        labels=reading.labels,
    )


@dataclass(frozen=True)
class _Files:
    """The files of a data set, read as it was settled."""

    settled: Settled
    train: Path | None
    dev: Path | None
    held_out: float

    def read(self, path: Path, split: str) -> list[Any]:
        """Return the examples of a split: of the training file a part, of any other all."""
        if split not in SPLITS:
            raise LitebertError(
                "LB-867",
                "your own files have no such split",
                received=split,
                expected=f"one of {', '.join(SPLITS)}",
                next="--split dev for rows with labels, --split test for rows without",
            )
        is_train = self.train is not None and path.absolute() == self.train.absolute()
        if is_train and self.dev and split == "dev":
            path = self.dev
        examples = self._examples(path, is_labelled=split != "test")
        if not is_train or self.dev or split == "test":
            return examples
        is_out = drawn([self.settled.reading.key(example) for example in examples], self.held_out)
        return [
            example
            for example, out in zip(examples, is_out, strict=True)
            if out == (split == "dev")
        ]

    def _examples(self, path: Path, *, is_labelled: bool) -> list[Any]:
        """Read all rows; they are called by their numbers where ids are missing or repeated."""
        table = self.settled.open(path, is_labelled=is_labelled)
        numbers, examples = [], []
        for number, row in table.rows():
            numbers.append(number)
            examples.append(self.settled.example(table, number, row, is_labelled=is_labelled))
        if len({example.id for example in examples}) == len(examples):
            return examples
        return [
            replace(example, id=str(number))
            for example, number in zip(examples, numbers, strict=True)
        ]


def drawn(keys: Sequence[str], share: float) -> NDArray[np.bool_]:
    """Draw about a share of keys, at least one; equal keys go together unless all are equal.

    >>> drawn(["a", "b", "a", "c"], 0.25).tolist()
    [False, True, False, False]
    """
    if not keys:
        return np.zeros(0, dtype=np.bool_)
    hashes = np.array([_hash(key) for key in keys], dtype=np.int64)
    draws = rng.hashed(0, "held-out rows", hashes)
    if (draws == draws[0]).all():
        draws = rng.hashed(0, "held-out rows", np.arange(len(keys)))
    limit = np.sort(draws)[max(1, round(share * len(keys))) - 1]
    is_drawn: NDArray[np.bool_] = draws <= limit
    return is_drawn


def _hash(key: str) -> int:
    digest = blake2b(key.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "little", signed=True)
