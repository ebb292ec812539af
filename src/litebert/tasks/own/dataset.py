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
from litebert.errors import LitebertError
from litebert.files import Json
from litebert.tasks.kinds.family import Answer, Dataset, Example, Family
from litebert.tasks.own.columns import are_worded, chosen_columns, guess_columns, pair_flags
from litebert.tasks.own.examples import READINGS, SHAPES, RowReading
from litebert.tasks.own.table import TableFile, open_table

HELD_OUT = 0.1
SPLITS = ("train", "dev", "test")


def settle(table: TableFile, columns: Sequence[str], problem: str | None) -> tuple[RowReading[Any, Any], list[str]]:
    """Read a training table once to settle how its rows become examples; notes say what was guessed."""
    chosen, sample, file = chosen_columns(columns, table.columns), table.sample(), table.source.name
    shape, found = guess_columns(table.columns, sample, chosen, SHAPES[problem] if problem else None)
    kind = READINGS[shape]
    if not found.all(kind.learnt):
        what, received = f"{file} has no column of labels", f"columns {', '.join(table.columns)}"
        raise LitebertError("LB-861", what, received=received, next=f"--column {kind.learnt}=NAME")
    settled, labels, about = kind.settle((row for _, row in table.rows()), file, found, problem)
    unused = [name for name in table.columns if name not in found.used]
    notes = [
        f"{file}: {table.writing}",
        f"columns: {' '.join(found.words())}" + (f"; not used: {', '.join(unused)}" if unused else ""),
        f"problem: {settled}; {about}",
    ]
    # A column that is not read although it looks like the other half of a pair
    text, worded = found.one("text"), [name for name in unused if are_worded([row.get(name) for row in sample])]
    if text and worded and not chosen.all("text") and not found.one("second"):
        pair = pair_flags([name for name in sample[0] if name in (text, worded[0])])
        notes.append(f"warning: not used, though it looks like text: {', '.join(worded)}; for pairs: {pair}")
    if table.has_header is False:  # then other files have none, either
        found = replace(found, has_header=False)
    return kind(found, settled, labels, table.columns), notes


@dataclass(frozen=True, kw_only=True)
class TableDataset(Dataset[Example, Answer]):
    """A data set of the user's own files, by how their rows become examples."""

    reading: RowReading[Example, Answer]
    train: Path | None

    @property
    def settled(self) -> dict[str, Json]:
        """What `table_dataset` needs to read new files without the training file."""
        columns, labels = list(self.reading.columns.words()), list(self.reading.labels)
        return {"columns": columns, "problem": self.reading.problem, "labels": labels}  # type: ignore[dict-item]


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

    `columns` are assignments such as text=review or header=no; everything else is guessed. Without `train`, all of
    `TableDataset.settled` is needed. Without `dev`, the share `held_out` of `train` is evaluated on, the same share of
    each label. These rows are chosen by a hash of their texts, so that equal ones stay together and the order of rows
    does not matter. With `skips_unlabelled`, rows without a label are omitted and counted in the notes. For any other
    file, `read` returns all rows: with labels as "train" or "dev", without as "test".
    """
    if train:
        table = open_table(train, has_header=chosen_columns(columns).has_header)
        reading, notes = settle(table, columns, problem)
    else:
        assert problem is not None, "without a training file, a record says what was settled"
        known = chosen_columns(columns)
        reading, notes = READINGS[SHAPES[problem]](known, problem, tuple(labels), known.used), []
    notes.append(f"evaluated on: {dev or f'{held_out * 100:g} % of the rows, the same share of each label'}")
    for path in filter(None, (train, dev) if skips_unlabelled else ()):
        number = sum(reading.lacks_label(row) for _, row in reading.open(path, is_labelled=True).rows())
        notes.append(f"{path.name}: {number:,} rows without a label are omitted")

    def read(path: Path, split: str) -> list[Any]:
        """Return the examples of a split: a part of the training file, or all of another file."""
        if split not in SPLITS:
            advice = "--split dev for rows with labels, --split test for rows without"
            raise LitebertError("LB-867", f"your own files have no split {split}", next=advice)
        is_labelled, is_train = split != "test", train is not None and path.absolute() == train.absolute()
        table = reading.open(dev if is_train and dev and split == "dev" else path, is_labelled=is_labelled)
        numbered = {
            number: reading.example_of(table, number, row, is_labelled=is_labelled)
            for number, row in table.rows()
            if not (is_labelled and skips_unlabelled and reading.lacks_label(row))
        }
        examples = list(numbered.values())
        if len({example.id for example in examples}) < len(examples):  # ids that repeat give way to numbers of rows
            examples = [replace(example, id=str(number)) for number, example in numbered.items()]
        if not is_train or dev or split == "test":
            return examples
        is_out = drawn([reading.group(example) for example in examples], held_out)
        return [example for example, out in zip(examples, is_out, strict=True) if out == (split == "dev")]

    family = reading.family
    write, key = partial(answer_table, family), family.key_measure
    return TableDataset("table", family, read, key, write, notes=tuple(notes), reading=reading, train=train)


def drawn(groups: Sequence[tuple[str, str]], share: float) -> NDArray[np.bool_]:
    """Draw a share of the distinct keys, given (key, stratum), the same share of each stratum, but at least one key.

    Equal keys are drawn together unless all keys are equal; if their strata differ, the first by name counts.

    >>> drawn([("a", ""), ("b", ""), ("a", ""), ("c", "")], 0.25).tolist()
    [True, False, True, False]
    >>> drawn([*zip("abcdef", "xxxyyy")], 0.34).tolist()
    [True, False, False, False, True, False]
    """
    if not groups:
        return np.zeros(0, dtype=np.bool_)
    keys = [key for key, _ in groups]
    if len(set(keys)) == 1:  # then rows are drawn by their numbers
        keys = [str(number) for number in range(len(keys))]
    stratum_of: dict[str, str] = {}
    for key, (_, stratum) in zip(keys, groups, strict=True):
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
    columns = {name: " ".join(dataset.reading.columns.words()) for name, dataset in own.items()}
    held_out_by = [each for each in own.values() if each.train and each.train.absolute() == data.absolute()]
    if len({*columns.values()}) > 1 or 0 < len(held_out_by) < len(datasets):
        raise LitebertError(
            "LB-880",
            "these runs cannot be averaged: they read other columns, or do not hold out the same rows",
            received="; ".join(f"{name}: {columns[name]}, trained on {each.train}" for name, each in own.items()),
            next="evaluate them one by one; or add --column ROLE=NAME for all, or --data FILE that none was trained on",
        )
