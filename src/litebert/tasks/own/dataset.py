"""A user's own files as a data set: texts with labels, words with tags, questions with
choices, questions on a context.

How rows become examples is settled once on the training file, and reported; then every
file is read the same way. What is not set is guessed from the columns and, for labels,
from all rows. How a kind of task reads rows is part of the kind (`Family.reading`).
"""

import csv
import io
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from hashlib import blake2b
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from litebert import rng
from litebert.errors import LitebertError, format_count, no_such_name
from litebert.files import hash_file
from litebert.plugins import LOADING, TASK_KINDS
from litebert.reading.source import TABLES, find_input
from litebert.tasks.kinds.family import Answer, Dataset, Example, Family
from litebert.tasks.kinds.text import TextRows
from litebert.tasks.own.rows import RowReading, TrainingRows, guess_columns
from litebert.tasks.own.table import (
    TableFile,
    chosen_columns,
    have_words,
    open_table,
    pair_flags,
)


def problems() -> dict[str, type[RowReading[Any, Any]]]:
    """Return how the rows of each kind of task are read, by its name in --problem."""
    readings = dict[str, type[RowReading[Any, Any]]]()
    for name, kind in TASK_KINDS.items():
        if kind.reading is not None:
            readings[name] = kind.reading
    return readings


def reading_of(problem: str) -> type[RowReading[Any, Any]]:
    """Return how the rows of a kind of task are read, given its name in --problem."""
    readings = problems()
    if problem not in readings:
        raise no_such_name(
            "LB-855",
            "there is no kind of task of this name for your own files",
            problem,
            readings,
            next=f"omit --problem; or if a plug-in adds the kind: {LOADING}",
        )
    return readings[problem]


def settle(
    table: TableFile,
    columns: Sequence[str],
    problem: str | None,
    labels: tuple[str, ...] = (),
) -> tuple[RowReading[Any, Any], list[str]]:
    """Read a training table once to settle how its rows become examples; the notes list
    what was guessed.
    """
    chosen = chosen_columns(columns, table.columns)
    sample = table.sample()
    file = table.source.name
    candidates = list(dict.fromkeys(problems().values()))
    if problem is not None:
        candidates = [reading_of(problem)]
    kind, found = guess_columns(table.columns, sample, chosen, candidates, TextRows)
    if not found.all(kind.learned[0]):
        raise LitebertError(
            "LB-861",
            f"{file} has no column of labels",
            received=f"columns {', '.join(table.columns)}",
            next=(
                f"--column {kind.learned[0]}=NAME; numbers have no units and no"
                " commas: 1234.5"
            ),
        )
    if table.has_header is False:  # then other files have none either
        found = replace(found, has_header=False)

    def rows() -> Any:
        return (row for _, row in table.rows())

    reading, about = kind.settle(TrainingRows(file, rows, found, problem, labels))
    taken = {*chain.from_iterable(found.names.values())}
    unused = [name for name in table.columns if name not in taken]
    not_used = f"; not used: {', '.join(unused)}" if unused else ""
    notes = [
        f"{file}: {table.writing}",
        f"columns: {' '.join(found.words())}{not_used}",
        f"problem: {reading.problem}; {about}",
    ]
    # A column that is not read although it looks like the other half of a pair
    text = found.all("text")
    worded = [name for name in unused if have_words([row.get(name) for row in sample])]
    if text and worded and not chosen.all("text") and not found.all("second"):
        pair = pair_flags(
            [name for name in table.columns if name in (*text, worded[0])]
        )
        notes.append(
            f"warning: not used, though it looks like text: {', '.join(worded)}; for"
            f" pairs: {pair}"
        )
    return reading, notes


def table_dataset(
    train: Path,
    dev: Path | None = None,
    *,
    held_out: float = 0.1,
    columns: Sequence[str] = (),
    problem: str | None = None,
    labels: tuple[str, ...] = (),
    skips_unlabelled: bool = False,
    settled: Mapping[str, Any] | None = None,
) -> Dataset[Any, Any]:
    """Set up a data set from files, reading `train` once for its labels.

    `columns` are assignments such as text=review or header=no, `labels` the labels in
    an order of the user's; everything else is guessed. With `settled`, as a run
    recorded it, nothing is, `columns` replace some of its columns, and `train` may be
    gone. Without `dev`, the share `held_out` of `train`
    is evaluated on, the same share of each label. These rows are chosen by a hash of
    their texts, so that equal ones stay together and the order of rows does not matter.
    With `skips_unlabelled`, rows without a label are omitted and counted in the notes.
    For any other file, `read` returns all rows: with labels as "train" or "dev",
    without as "test".
    """
    notes = list[str]()
    if settled:
        kind = reading_of(settled["problem"])
        chosen = chosen_columns((*settled["columns"], *columns))
        reading = kind(chosen, settled["problem"], tuple(settled["labels"]))
    else:
        reading, notes = settle(
            open_table(train, has_header=chosen_columns(columns).has_header),
            columns,
            problem,
            labels,
        )
        notes.append(
            "evaluated on:"
            f" {dev or f'about {held_out * 100:g} % of the rows; equal texts stay together'}"
        )
        for path in filter(None, (train, dev) if skips_unlabelled else ()):
            number = sum(
                reading.lacks_label(row)
                for _, row in reading.open(path, is_labelled=True).rows()
            )
            notes.append(
                f"{path.name}: omitted {format_count(number, 'row')} without a label"
            )
        settled = {
            "columns": list(reading.columns.words()),
            "problem": reading.problem,
            "labels": list(reading.labels),
        }
        settled |= {"train_hash": _hash(train)}
    trained_on = settled.get("train_hash")
    words = list(reading.columns.words())
    has_other_columns = words != settled["columns"]

    def read(path: Path, split: str) -> list[Any]:
        """Return the examples of a split: a part of the training file, or all of
        another file.
        """
        if split not in ("train", "dev", "test"):
            advice = "--split dev for rows with labels, --split test for rows without"
            raise LitebertError(
                "LB-867", f"your own files have no split {split}", next=advice
            )
        is_labelled = split != "test"
        is_train = split != "test" and _is_train(path, train, trained_on)
        table = reading.open(
            dev if is_train and dev and split == "dev" else path,
            is_labelled=is_labelled,
        )
        numbered = {
            number: reading.example_of(table, number, row, is_labelled=is_labelled)
            for number, row in table.rows()
            if not (is_labelled and skips_unlabelled and reading.lacks_label(row))
        }
        examples = list(numbered.values())
        # repeated ids: use row numbers instead
        if len({example.id for example in examples}) < len(examples):
            examples = [
                replace(example, id=str(number)) for number, example in numbered.items()
            ]
        if not is_train or dev:
            return examples
        if has_other_columns or trained_on not in (None, _hash(path)):
            what = (
                f"{path} or its columns are not as when trained on: rows held out now"
                " may have been trained on"
            )
            raise LitebertError(
                "LB-890",
                what,
                next="restore them; or give a file of new rows another name",
            )
        if len(examples) < 2:
            what = (
                f"{path} has {format_count(len(examples), 'row')} to learn from: one to"
                " train on, one to hold out"
            )
            raise LitebertError(
                "LB-894",
                what,
                next="add rows, or give a file to evaluate on: --dev FILE",
            )
        is_out = draw_held_out(
            [reading.group(example) for example in examples], held_out
        )
        return [
            example
            for example, out in zip(examples, is_out, strict=True)
            if out == (split == "dev")
        ]

    family = reading.family
    said = tuple(notes)
    write = partial(answer_table, family)
    settled = {**settled, "columns": words}
    return Dataset(
        "table",
        family,
        read,
        family.key_measure,
        write,
        notes=said,
        train=train,
        settled=settled,
    )


def _is_train(path: Path, train: Path, trained_on: str | None) -> bool:
    return path.resolve() == train.resolve() or _hash(path) == trained_on


def _hash(path: Path) -> str:
    return hash_file(Path(find_input(str(path), TABLES).location))


def draw_held_out(groups: Sequence[tuple[str, str]], share: float) -> NDArray[np.bool_]:
    """Draw a share of the rows, given (key, stratum) of each: the same share of each
    stratum, and at least one key.

    Equal keys are drawn together unless all keys are equal; if their strata differ, the
    first by name counts. A key with so many rows that the share would be missed by more
    with it than without it is not drawn.
    """
    keys, strata = zip(*groups, strict=True)
    if len(set(keys)) == 1:  # then rows are drawn by their numbers
        keys = tuple(map(str, range(len(keys))))
    stratum_of = dict(sorted(zip(keys, strata, strict=True), reverse=True))
    # a random number for each key that depends only on its text
    digests = [
        blake2b(key.encode("utf-8", "surrogatepass"), digest_size=8).digest()
        for key in stratum_of
    ]
    hashes = np.array(
        [int.from_bytes(digest, "little", signed=True) for digest in digests],
        dtype=np.int64,
    )
    draws = dict(
        zip(stratum_of, rng.random_bits(0, "held-out rows", hashes), strict=True)
    )
    # Of the keys sorted by stratum, evenly spaced ones come first, so that each stratum
    # gives its share; the others follow, and are drawn if some of the first have too
    # many rows.
    order = sorted(stratum_of, key=lambda key: (stratum_of[key], draws[key]))
    number = max(1, round(share * len(order)))
    spaced = {order[int((n + 0.5) * len(order) / number)] for n in range(number)}
    order.sort(key=lambda key: (key not in spaced, draws[key]))
    # A key is drawn if its rows bring the sum nearer to the share.
    sizes = Counter(keys)
    left = share * len(keys)
    chosen = set[str]()
    for key in order:
        if (half := sizes[key] / 2) < left or (half == left and key in spaced):
            chosen.add(key)
            left -= sizes[key]
    chosen = chosen or {min(order, key=sizes.__getitem__)}
    if len(chosen) == len(order):  # something must be left to learn from
        chosen.remove(max(order, key=sizes.__getitem__))
    return np.array([key in chosen for key in keys], dtype=np.bool_)


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
    numbers = [family.numbers(*pair) for pair in zip(rows, answers, strict=True)]
    columns = list(dict.fromkeys(chain.from_iterable(numbers)))
    written = io.StringIO()
    writer = csv.writer(written, lineterminator="\n")
    writer.writerow(["id", "prediction", *columns])
    for row, values in zip(rows, numbers, strict=True):
        cells = [None if row.is_blank else values.get(name) for name in columns]
        writer.writerow(
            [
                row.id,
                row.answer,
                *("" if cell is None else f"{cell:.6g}" for cell in cells),
            ]
        )
    return {f"{split}.csv": written.getvalue()}


def require_same_data(datasets: Mapping[str, Dataset[Any, Any]], data: Path) -> None:
    """Check that runs may be averaged: none may have trained on rows that others hold
    out.
    """
    own = {name: each for name, each in datasets.items() if each.settled}
    columns = {name: " ".join(each.settled["columns"]) for name, each in own.items()}
    trained = [
        (each.train, each.settled.get("train_hash"))
        for each in own.values()
        if each.train
    ]
    num_held_out = sum(_is_train(data, *each) for each in trained)
    if len({*columns.values()}) > 1 or 0 < num_held_out < len(datasets):
        what = (
            "these runs cannot be averaged: they read different columns, or do not hold"
            " out the same rows"
        )
        received = "; ".join(
            f"{name}: {columns[name]}, trained on {each.train}"
            for name, each in own.items()
        )
        advice = (
            "evaluate them one by one; or add --column ROLE=NAME for all, or --data"
            " FILE that none was trained on"
        )
        raise LitebertError("LB-880", what, received=received, next=advice)
