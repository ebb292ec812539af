"""A user's own files as a data set: how to read them is settled once on the training file, and reported.

What is not set is guessed from the columns and, for labels, from all rows.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from litebert import rng
from litebert.errors import LitebertError, RequestError, did_you_mean
from litebert.files import Json
from litebert.reading.tables import Row
from litebert.tasks.kinds.family import Answer, Dataset, Example, Family
from litebert.tasks.own.columns import (
    LEARNT,
    Contents,
    RowShape,
    chosen_columns,
    chosen_header,
    guess_columns,
    label_of,
    pair_flags,
)
from litebert.tasks.own.examples import EVERY_PROBLEM, READINGS, RowReading
from litebert.tasks.own.table import TableFile, open_table

HELD_OUT = 0.1
SPLITS = ("train", "dev", "test")


# How the rows of a table become examples


@dataclass(frozen=True)
class Settled:
    """A reading, and what is known about the files: whether they have headers, and their names."""

    reading: RowReading[Any, Any]
    has_header: bool | None = None
    names: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    def open(self, path: Path, *, is_labelled: bool) -> TableFile:
        """Open a file with the same columns; only with `is_labelled` does it need the labels."""
        table = open_table(path, has_header=self.has_header, known=self.names)
        optional = ("id",) if is_labelled else ("id", *LEARNT)
        self.reading.columns.require_in(table.columns, without=optional, where=f" in {path}")
        return table

    @property
    def words(self) -> tuple[str, ...]:
        """The assignments that a user would type for these columns."""
        header = ("header=no",) if self.has_header is False else ()
        return (*self.reading.columns.words(), *header)

    def example(self, table: TableFile, number: int, row: Row, *, is_labelled: bool) -> Any:
        """Turn a row into an example; its id is in the id column or, without one, its number."""
        id_column = self.reading.columns.one("id")
        own = label_of(row.get(id_column)) if id_column else None
        return self.reading.example(own or str(number), row, table.place(number), is_labelled=is_labelled)


def settle(table: TableFile, columns: Sequence[str], problem: str | None) -> Settled:
    """Read a training table once to settle what its rows are."""
    chosen = chosen_columns(columns, table.columns)
    sample = table.sample()
    shape, found = guess_columns(table.columns, sample, chosen, _shape_of(problem) if problem else None)
    role = READINGS[shape].learnt
    if not found.all(role):
        what, received = f"{table.source.name} has no column of labels", f"columns {', '.join(table.columns)}"
        raise LitebertError("LB-861", what, received=received, next=f"--column {role}=NAME")
    reading, summary = READINGS[shape].settle(table, found, problem)
    unused = [name for name in table.columns if name not in found.used]
    aside = f"; not used: {', '.join(unused)}" if unused else ""
    notes = [
        f"{table.source.name}: {table.writing}",
        f"columns: {' '.join(found.words())}{aside}",
        f"problem: {reading.problem}; {summary}",
    ]
    # A column that is not read although it looks like the other half of a pair
    text, contents = found.one("text"), Contents(sample)
    worded = [name for name in unused if contents.is_worded(name)]
    if text and worded and not chosen.all("text") and not found.one("second"):
        pair = pair_flags([name for name in sample[0] if name in (text, worded[0])])
        notes.append(f"warning: not used, though it looks like text: {', '.join(worded)}; for pairs: {pair}")
    has_header = False if table.has_header is False else chosen_header(columns)
    return Settled(reading, has_header, table.columns, tuple(notes))


def recalled(columns: Sequence[str], problem: str | None, labels: Sequence[str]) -> Settled:
    """Return what was settled earlier, from what a run recorded."""
    chosen, known = chosen_columns(columns, None), tuple(labels)
    reading = READINGS[_shape_of(problem)] if problem else None
    if not problem or reading is None or not chosen.names or (reading.needs_labels and not known):
        what = "without a training file the columns, the problem and the labels are needed"
        received = f"columns {' '.join(columns)}, problem {problem}, {len(known)} labels"
        raise LitebertError("LB-868", what, received=received, next="give the file that the model was trained on")
    return Settled(reading(chosen, problem, known), chosen_header(columns), chosen.used)


def _shape_of(problem: str) -> RowShape:
    if problem not in EVERY_PROBLEM:
        advice = f"--problem classification ({did_you_mean(problem, EVERY_PROBLEM)})"
        wanted = f"one of {', '.join(EVERY_PROBLEM)}"
        raise RequestError("LB-855", "there is no such problem", received=problem, expected=wanted, next=advice)
    return EVERY_PROBLEM[problem]


# The data set


@dataclass(frozen=True)
class TableDataset(Dataset[Example, Answer]):
    """A data set of the user's own files.

    `columns`, `problem` and `labels` are what was settled. Given to `table_dataset`, they suffice to read new files
    without the training file.
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

    `columns` are assignments such as text=review or header=no; everything else is guessed. Without `dev`, the share
    `held_out` of `train` is evaluated on, the same share of each label. These rows are chosen by a hash of their texts,
    so that equal ones stay together and the order of rows does not matter. With `skips_unlabelled`, rows without a
    label are omitted and counted in the notes. For any other file, `read` returns all rows: with labels as "train" or
    "dev", without as "test".
    """
    if train:
        settled = settle(open_table(train, has_header=chosen_header(columns)), columns, problem)
    else:
        settled = recalled(columns, problem, labels)
    reading = settled.reading
    part = f"{held_out * 100:g} % of the rows, the same share of each label"
    notes = [*settled.notes, f"evaluated on: {dev or part}"]
    if skips_unlabelled:
        for path in filter(None, (train, dev)):
            number = sum(reading.lacks_label(row) for _, row in settled.open(path, is_labelled=True).rows())
            notes.append(f"{path.name}: {number:,} rows without a label are omitted")

    def read(path: Path, split: str) -> list[Any]:
        """Return the examples of a split: a part of the training file, or all of another file."""
        if split not in SPLITS:
            advice = "--split dev for rows with labels, --split test for rows without"
            raise LitebertError("LB-867", f"your own files have no split {split}", next=advice)
        is_labelled, is_train = split != "test", train is not None and path.absolute() == train.absolute()
        table = settled.open(dev if is_train and dev and split == "dev" else path, is_labelled=is_labelled)
        numbered = {
            number: settled.example(table, number, row, is_labelled=is_labelled)
            for number, row in table.rows()
            if not (is_labelled and skips_unlabelled and reading.lacks_label(row))
        }
        examples = list(numbered.values())
        if len({example.id for example in examples}) < len(examples):  # ids that repeat give way to numbers of rows
            examples = [replace(example, id=str(number)) for number, example in numbered.items()]
        if not is_train or dev or split == "test":
            return examples
        is_out = drawn([reading.key(each) for each in examples], held_out, [reading.stratum(each) for each in examples])
        return [example for example, out in zip(examples, is_out, strict=True) if out == (split == "dev")]

    return TableDataset(
        name="table",
        family=reading.family,
        read=read,
        key_measure=reading.family.key_measure,
        submission=partial(answer_table, reading.family),
        notes=tuple(notes),
        columns=settled.words,
        problem=reading.problem,
        labels=reading.labels,
        train=train,
    )


def drawn(keys: Sequence[str], share: float, strata: Sequence[str] = ()) -> NDArray[np.bool_]:
    """Draw a share of the distinct keys, the same share of each stratum, but at least one key.

    Equal keys are drawn together unless all keys are equal; if their strata differ, the first by name counts.

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
    digests = [blake2b(name.encode("utf-8", "surrogatepass"), digest_size=8).digest() for name in names]
    hashes = np.array([int.from_bytes(digest, "little", signed=True) for digest in digests])
    draws = rng.hashed(0, "held-out rows", hashes)
    order = sorted(range(len(names)), key=lambda place: (stratum_of[names[place]], draws[place]))
    number = max(1, round(share * len(order)))  # evenly spaced, so every stratum gives its share
    chosen = {names[order[int((n + 0.5) * len(order) / number)]] for n in range(number)}
    return np.array([key in chosen for key in keys], dtype=np.bool_)


def answer_table(
    family: Family[Example, Answer], split: str, examples: Sequence[Example], answers: Sequence[Answer]
) -> dict[str, str]:
    """Return one CSV file, named after the split, with a line for each example.

    After `id` and `prediction` come the probability of each label or choice, the score, or the confidence of the
    answer, depending on the kind of task.
    """
    rows = family.rows(examples, answers)
    numbers = [family.numbers(*pair) for pair in zip(rows, answers, strict=True)]
    width = max(map(len, numbers), default=0)
    written = io.StringIO()
    writer = csv.writer(written, lineterminator="\n")
    writer.writerow(["id", "prediction", *family.columns(width)])
    for row, values, blank in zip(rows, numbers, map(family.is_blank, examples), strict=True):
        cells = ["" if value is None or blank else f"{value:.6g}" for value in values]
        writer.writerow([row.id, row.answer, *cells, *[""] * (width - len(cells))])
    return {f"{split}.csv": written.getvalue()}


def require_same_data(datasets: Mapping[str, Dataset[Any, Any]], data: Path) -> None:
    """Check that runs may be averaged: none may have trained on rows that others hold out."""
    own = {name: each for name, each in datasets.items() if isinstance(each, TableDataset)}
    columns = {name: " ".join(dataset.columns) for name, dataset in own.items()}
    if len({*columns.values()}) > 1:
        received = "; ".join(f"{name}: {words}" for name, words in columns.items())
        what, advice = "runs that read different columns cannot be averaged", "add --column ROLE=NAME for all"
        raise LitebertError("LB-880", what, received=received, next=f"evaluate them one by one, or {advice}")
    trained_on = {name: dataset.train for name, dataset in own.items() if dataset.train}
    held_out_by = [name for name, path in trained_on.items() if path.absolute() == data.absolute()]
    if held_out_by and len(held_out_by) < len(datasets):
        what = f"these runs do not hold out the same rows of {data}"
        received = "; ".join(f"{name}: trained on {path}" for name, path in trained_on.items())
        raise LitebertError("LB-881", what, received=received, next="--data FILE, on which none of them was trained")
