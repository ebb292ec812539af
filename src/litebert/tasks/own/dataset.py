"""A user's own files as a data set: how to read them is guessed and reported, or can be set."""

from __future__ import annotations

import csv
import io
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
from litebert.tasks.kinds.classification import Scores
from litebert.tasks.kinds.family import Answer, AnswerRow, Example, Family
from litebert.tasks.own.roles import chosen_header
from litebert.tasks.own.rows import open_table
from litebert.tasks.own.settle import Settled, recalled, settle

HELD_OUT = 0.1
SPLITS = ("train", "dev", "test")


@dataclass(frozen=True)
class TableDataset(Dataset[Example, Answer]):
    """A data set of the user's own files.

    `columns`, `problem` and `labels` are what was settled. Given to `table_dataset`, they suffice
    to read new files without the training file.
    """

    columns: tuple[str, ...] = ()
    problem: str = ""
    labels: tuple[str, ...] = ()
    train: Path | None = None

    @property
    def settled(self) -> dict[str, Json]:
        """What is needed to read new files."""
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
    skips_unlabelled: bool = False,
) -> TableDataset[Any, Any]:
    """Set up a data set from files, reading `train` once for its labels.

    `columns` are assignments such as text=review or header=no; everything else is guessed. Without
    `dev`, the share `held_out` of `train` is evaluated on, the same share of each label. These rows
    are chosen by a hash of their texts, so that equal ones stay together and the order of rows does
    not matter. With `skips_unlabelled`, rows without a label are omitted and counted in the notes.
    For any other file, `read` returns all rows: with labels as "train" or "dev", without as "test".

    Raises:
        LitebertError: LB-868, there is no training file, and `columns`, `problem` and `labels` do
            not replace it; or the file or the assignments are not valid.
    """
    if train:
        table = open_table(train, has_header=chosen_header(columns))
        settled = settle(table, columns, problem)
    else:
        settled = recalled(columns, problem, labels)
    files = _Files(settled, train, dev, held_out, skips_unlabelled)
    reading = settled.reading
    part = f"{held_out * 100:g} % of the rows, the same share of each label"
    notes = [*settled.notes, f"evaluated on: {dev or part}"]
    if skips_unlabelled:
        counts = files.num_unlabelled().items()
        notes += [f"{name}: {number:,} rows without a label are omitted" for name, number in counts]
    return TableDataset(
        name="table",
        family=reading.family,
        read=files.read,
        key_measure=reading.key_measure,
        submission=partial(answer_table, reading.family),
        notes=tuple(notes),
        columns=settled.words,
        problem=reading.problem,
        labels=reading.labels,
        train=train,
    )


@dataclass(frozen=True)
class _Files:
    """The files of a data set, and how to read them."""

    settled: Settled
    train: Path | None
    dev: Path | None
    held_out: float
    skips_unlabelled: bool = False

    def num_unlabelled(self) -> dict[str, int]:
        """Count the rows without a label in each file that should have them."""
        paths = [path for path in (self.train, self.dev) if path]
        tables = {path.name: self.settled.open(path, is_labelled=True) for path in paths}
        lacks = self.settled.reading.lacks_label
        return {name: sum(lacks(row) for _, row in table.rows()) for name, table in tables.items()}

    def read(self, path: Path, split: str) -> list[Any]:
        """Return the examples of a split: a part of the training file, or all of another file."""
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
        reading = self.settled.reading
        keys, strata = map(reading.key, examples), map(reading.stratum, examples)
        is_out = drawn(list(keys), self.held_out, list(strata))
        return [example for example, out in zip(examples, is_out, strict=True) if out == (split == "dev")]

    def _examples(self, path: Path, *, is_labelled: bool) -> list[Any]:
        """Read all rows; if ids are missing or repeated, the numbers of the rows replace them."""
        table = self.settled.open(path, is_labelled=is_labelled)
        numbers, examples = [], []
        for number, row in table.rows():
            if is_labelled and self.skips_unlabelled and self.settled.reading.lacks_label(row):
                continue
            numbers.append(number)
            examples.append(self.settled.example(table, number, row, is_labelled=is_labelled))
        if len({example.id for example in examples}) == len(examples):
            return examples
        return [replace(example, id=str(number)) for example, number in zip(examples, numbers, strict=True)]


def drawn(keys: Sequence[str], share: float, strata: Sequence[str] = ()) -> NDArray[np.bool_]:
    """Draw a share of the distinct keys, the same share of each stratum, but at least one key.

    Equal keys are drawn together unless all keys are equal; if their strata differ, the first by
    name counts.

    >>> drawn(["a", "b", "a", "c"], 0.25).tolist()
    [True, False, True, False]
    >>> drawn(list("abcdef"), 0.34, list("xxxyyy")).tolist()
    [True, False, False, False, True, False]
    """
    if not keys:
        return np.zeros(0, dtype=np.bool_)
    if len(set(keys)) == 1:  # then rows are drawn by their numbers
        keys = [str(number) for number in range(len(keys))]
    stratum_of: dict[str, str] = {}
    for key, stratum in zip(keys, strata or [""] * len(keys), strict=True):
        stratum_of[key] = min(stratum, stratum_of.get(key, stratum))
    names = list(stratum_of)
    draws = rng.hashed(0, "held-out rows", np.array([_hash(name) for name in names]))
    order = sorted(range(len(names)), key=lambda place: (stratum_of[names[place]], draws[place]))
    number = max(1, round(share * len(order)))  # evenly spaced, so every stratum gives its share
    chosen = {names[order[int((n + 0.5) * len(order) / number)]] for n in range(number)}
    return np.array([key in chosen for key in keys], dtype=np.bool_)


def answer_table(
    family: Family[Example, Answer], split: str, examples: Sequence[Example], answers: Sequence[Answer]
) -> dict[str, str]:
    """Return one CSV file, named after the split, with a line for each example.

    After `id` and `prediction` come the probability of each label or choice, the score, or the
    confidence of the answer, depending on the kind of task.
    """
    rows = family.rows(examples, answers)
    numbers = [_answer_numbers(row, answer) for row, answer in zip(rows, answers, strict=True)]
    width = max(map(len, numbers), default=0)
    classified = ("sequence-classification", "vector-classification")
    names = {
        **dict.fromkeys(classified, family.head.labels),
        "multiple-choice": tuple(f"choice {place}" for place in range(1, width + 1)),
    }.get(family.head.kind, ("confidence",))
    written = io.StringIO()
    writer = csv.writer(written, lineterminator="\n")
    writer.writerow(["id", "prediction", *names])
    for row, values in zip(rows, numbers, strict=True):
        writer.writerow([row.id, row.answer, *values, *[""] * (width - len(values))])
    return {f"{split}.csv": written.getvalue()}


def _answer_numbers(row: AnswerRow, answer: object) -> list[str]:
    values = answer.values if isinstance(answer, Scores) else (row.confidence,)
    return ["" if value is None else f"{value:.6g}" for value in values]


def _hash(key: str) -> int:
    digest = blake2b(key.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "little", signed=True)
