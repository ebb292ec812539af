"""A user's own files as a data set: texts with labels, words with tags, questions with
choices, questions on a context.

How rows become examples is settled once on the training file, and reported; then every
file is read the same way. How a kind of task reads rows is part of the kind
(`Family.reading`).
"""

import csv
import io
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from litebert.errors import LitebertError, format_count
from litebert.runs import FILE_HASH
from litebert.tasks.kinds.family import Answer, Dataset, Example, Family
from litebert.tasks.tables.cells import split_of
from litebert.tasks.tables.columns import chosen_columns
from litebert.tasks.tables.held_out import draw_held_out
from litebert.tasks.tables.layouts import hash_table, note_encoding
from litebert.tasks.tables.settling import (
    AnyReading,
    Choices,
    count_splits,
    reading_of,
    settle,
)


def table_dataset(
    train: Path,
    dev: Path | None = None,
    *,
    held_out: float = 0.1,
    columns: Sequence[str] = (),
    problem: str | None = None,
    labels: tuple[str, ...] = (),
    skips_unlabeled: bool = False,
    settled: Mapping[str, Any] | None = None,
) -> Dataset[Any, Any]:
    """Set up a data set from files, reading `train` once for its labels.

    With `settled`, as a run recorded it, nothing is guessed, `columns` replace some of
    its columns, and `train` may be gone. What is evaluated on: `dev`; or the rows that
    a column of `train` names; or the share `held_out` of `train`, the same share of
    each label. These rows are chosen by a hash of their texts, so that equal ones stay
    together and the order of rows does not matter. With `skips_unlabeled`, rows
    without a label are omitted and counted in the notes. For any other file, `read`
    returns all rows: with labels as "train" or "dev", without as "test".
    """
    notes = list[str]()
    if settled:
        reading = _recorded_reading(settled, columns)
        train_hash = settled.get(FILE_HASH)
        recorded = list(settled["columns"])
        has_other_columns = recorded != list(reading.columns.words())
    else:
        choices = Choices(columns, problem, labels, skips_unlabeled)
        reading, notes = settle(choices.open(train), choices)
        train_hash = hash_table(train)
        has_other_columns = False
    files = OwnFiles(
        reading,
        train,
        dev,
        held_out=held_out,
        skips_unlabeled=skips_unlabeled,
        train_hash=train_hash,
        has_other_columns=has_other_columns,
    )
    if not settled:
        notes += [f"evaluated on: {files.evaluated_on}", *files.omissions()]
    family = reading.family
    return Dataset(
        "table",
        family,
        files.read,
        family.key_measure,
        partial(answer_table, family),
        notes=tuple(notes),
        train=train,
        settled=_record(reading, train_hash),
    )


# ---- what a run records of its files -------------------------------------------------


def _record(reading: AnyReading, train_hash: str | None) -> dict[str, Any]:
    """Return what a run records, with which new files are read as these were."""
    record: dict[str, Any] = {
        "columns": list(reading.columns.words()),
        "problem": reading.problem,
        "labels": list(reading.labels),
        FILE_HASH: train_hash,
    }
    if reading.splitting != "words":
        record["splitting"] = reading.splitting
    if reading.first_number is not None:
        record["first_number"] = reading.first_number
    return record


def _recorded_reading(record: Mapping[str, Any], columns: Sequence[str]) -> AnyReading:
    """Return how rows were read, by the record of a run; `columns` replace some of its
    columns.
    """
    kind = reading_of(record["problem"])
    return kind(
        columns=chosen_columns((*record["columns"], *columns)),
        problem=record["problem"],
        labels=tuple(record["labels"]),
        splitting=record.get("splitting", "words"),
        first_number=record.get("first_number"),
    )


# ---- the examples of each split ------------------------------------------------------


@dataclass(frozen=True)
class OwnFiles:
    """A user's own files, and which of their rows belong to a split."""

    reading: AnyReading
    train: Path
    dev: Path | None
    held_out: float  # the share of the rows of `train`, without `dev`
    skips_unlabeled: bool
    train_hash: str | None  # of the training file as it was; None if it is unknown
    has_other_columns: bool  # than those that were trained on

    @property
    def evaluated_on(self) -> str:
        """What is evaluated on, for a note."""
        if self.dev is not None:
            return str(self.dev)
        if self.reading.columns.all("split"):
            return "the rows that the column of the split names"
        share = f"about {self.held_out * 100:g} % of the rows"
        return f"{share}; rows with equal texts stay together"

    def omissions(self) -> Iterator[str]:
        """Yield a note on each file whose rows without a label are omitted."""
        if not self.skips_unlabeled:
            return
        for path in (self.train, self.dev):
            if path is None:
                continue
            table = self.reading.open(path, is_labeled=True)
            number = sum(self.reading.lacks_label(row) for _, row in table.rows())
            rows = format_count(number, "row")
            yield f"{path.name}: omitted {rows} without a label"

    def read(self, path: Path, split: str) -> list[Any]:
        """Return the examples of a split: a part of the training file, or all of
        another file.
        """
        _require_split(split)
        if split == "test" or not _is_train(path, self.train, self.train_hash):
            return self._examples(path, is_labeled=split != "test")
        if split == "dev" and self.dev is not None:
            return self._examples(self.dev, is_labeled=True)
        if self.reading.columns.all("split"):
            splits = self._splits_in(path, split)
            return self._examples(path, is_labeled=True, splits=splits)
        examples = self._examples(path, is_labeled=True)
        if self.dev is not None:
            return examples
        return self._divide(path, examples, split)

    def _divide(self, path: Path, examples: Sequence[Any], split: str) -> list[Any]:
        """Return the rows of the training file that are held out, as "dev", or the
        others.
        """
        self._require_same(path)
        _require_two_rows(path, len(examples))
        groups = [self.reading.group(example) for example in examples]
        are_held_out = draw_held_out(groups, self.held_out)  # (examples,)
        of_split = list[Any]()
        for example, is_held_out in zip(examples, are_held_out, strict=True):
            if is_held_out == (split == "dev"):
                of_split.append(example)
        return of_split

    def _splits_in(self, path: Path, split: str) -> tuple[str, ...]:
        """Return the names of a split in its column; without rows for development, the
        test rows are evaluated on.
        """
        if split == "train":
            return ("train",)
        table = self.reading.open(path, is_labeled=True)
        counts = count_splits(table, self.reading.columns)
        return ("dev",) if counts["dev"] else ("test",)

    def _examples(
        self, path: Path, *, is_labeled: bool, splits: Collection[str] | None = None
    ) -> list[Any]:
        """Return the examples of a file, or only of rows that belong to `splits`."""
        reading = self.reading
        table = reading.open(path, is_labeled=is_labeled)
        if path != self.train:
            note_encoding(table.source)
        numbers = list[int]()
        examples = list[Any]()
        for number, row in table.rows():
            if is_labeled and self.skips_unlabeled and reading.lacks_label(row):
                continue
            split = split_of(reading.columns.cell(row, "split"))
            if splits is not None and split not in splits:
                continue
            example = reading.example_of(table, number, row, is_labeled=is_labeled)
            numbers.append(number)
            examples.append(example)
        if len({example.id for example in examples}) == len(examples):
            return examples
        # repeated ids: use row numbers instead
        pairs = zip(numbers, examples, strict=True)
        return [replace(example, id=str(number)) for number, example in pairs]

    def _require_same(self, path: Path) -> None:
        """Check that the training file is as it was, so that the same rows are held
        out.
        """
        is_changed = self.train_hash not in (None, hash_table(path))
        if self.has_other_columns or is_changed:
            raise LitebertError(
                "LB-890",
                f"{path} or its columns have changed since the model was trained"
                " on it: rows held out now may have been trained on",
                next="evaluate on a file of rows that it has not seen; or train again,"
                " with another --name",
            )


def _require_split(split: str) -> None:
    if split not in ("train", "dev", "test"):
        raise LitebertError(
            "LB-867",
            f"your own files have no split {split}",
            next="--split dev for rows with labels, --split test for rows without",
        )


def _require_two_rows(path: Path, number: int) -> None:
    if number < 2:
        raise LitebertError(
            "LB-894",
            f"{path} has {format_count(number, 'row')} to learn from: one"
            " to train on, one to hold out",
            next="add rows, or give a file to evaluate on: --dev FILE",
        )


def _is_train(path: Path, train: Path, train_hash: str | None) -> bool:
    """Return whether a file is the training file, by its place or its contents."""
    return path.resolve() == train.resolve() or hash_table(path) == train_hash


# ---- answers -------------------------------------------------------------------------


def answer_table(
    family: Family[Example, Answer],
    split: str,
    examples: Sequence[Example],
    answers: Sequence[Answer],
) -> dict[str, str]:
    """Return one CSV file, named after the split, with a line for each example.

    After `id` and `prediction` come the probability of each label or choice, the score,
    or the confidence of the answer, depending on the kind of task.
    """
    rows = family.rows(examples, answers)
    numbers = list[Mapping[str, float | None]]()
    columns = dict[str, None]()  # in the order in which they occur
    for row, answer in zip(rows, answers, strict=True):
        by_column = family.numbers(row, answer)
        numbers.append(by_column)
        columns.update(dict.fromkeys(by_column))

    written = io.StringIO()
    writer = csv.writer(written, lineterminator="\n")
    writer.writerow(["id", "prediction", *columns])
    for row, by_column in zip(rows, numbers, strict=True):
        cells = [""] * len(columns)
        if not row.is_blank:
            cells = [_as_cell(by_column.get(name)) for name in columns]
        writer.writerow([row.id, row.answer, *cells])
    return {f"{split}.csv": written.getvalue()}


def _as_cell(number: float | None) -> str:
    return "" if number is None else f"{number:.6g}"


# ---- several runs --------------------------------------------------------------------


def require_same_data(datasets: Mapping[str, Dataset[Any, Any]], data: Path) -> None:
    """Check that runs may be averaged: none may have trained on rows that others hold
    out.
    """
    columns_of = dict[str, str]()  # of each run on files of the user's own
    trained_on = dict[str, Path | None]()
    num_trained_on_data = 0
    for name, dataset in datasets.items():
        if not dataset.settled:
            continue
        columns_of[name] = " ".join(dataset.settled["columns"])
        trained_on[name] = dataset.train
        train_hash = dataset.settled.get(FILE_HASH)
        if dataset.train and _is_train(data, dataset.train, train_hash):
            num_trained_on_data += 1
    have_other_columns = len(set(columns_of.values())) > 1
    have_other_rows = 0 < num_trained_on_data < len(datasets)
    if not have_other_columns and not have_other_rows:
        return
    runs = list[str]()
    for name, columns in columns_of.items():
        runs.append(f"{name}: {columns}, trained on {trained_on[name]}")
    raise LitebertError(
        "LB-880",
        "these runs cannot be averaged: they read different columns, or do not hold out"
        " the same rows",
        received="; ".join(runs),
        next=(
            "evaluate them one by one; or add --column ROLE=NAME for all, or --data FILE"
            " that none was trained on"
        ),
    )
