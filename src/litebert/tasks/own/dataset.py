"""A user's own files as a data set: texts with labels, words with tags, questions with
choices, questions on a context.

How rows become examples is settled once on the training file, and reported; then every
file is read the same way. What is not set is guessed from the columns and, for labels,
from all rows. How a kind of task reads rows is part of the kind (`Family.reading`).
"""

import csv
import io
import shlex
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from hashlib import blake2b
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from litebert import rng
from litebert.config import HeadConfig
from litebert.errors import LitebertError, format_count, no_such_name
from litebert.plugins import LOADING, TASK_KINDS
from litebert.reading.tables import Row
from litebert.tasks.kinds.family import Answer, Dataset, Example, Family
from litebert.tasks.kinds.text import TextRows
from litebert.tasks.own.cells import (
    FEWEST_WORDS,
    are_dates,
    are_varied,
    has_list,
    have_words,
    mean_words,
    split_of,
)
from litebert.tasks.own.columns import Columns, chosen_columns, pair_flags
from litebert.tasks.own.guess import ColumnGuess, has_usual_word
from litebert.tasks.own.layouts import hash_table, note_encoding, open_table
from litebert.tasks.own.rows import RowReading, TrainingRows, guess_columns
from litebert.tasks.own.table import TableFile


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


def problems_of_head(head: HeadConfig) -> list[str]:
    """Return the names in --problem of the kinds of task that use such a head."""
    names = list[str]()
    for name, kind in TASK_KINDS.items():
        is_read = kind.reading is not None and head.kind in kind.heads
        if is_read and kind.problem_type in ("", head.problem_type):
            names.append(name)
    return names


@dataclass(frozen=True)
class Choices:
    """What the user said about the files; everything else is guessed."""

    columns: Sequence[str] = ()  # assignments such as text=review or header=no
    problem: str | None = None
    labels: tuple[str, ...] = ()  # in an order of the user's
    skips_unlabelled: bool = False

    def open(self, path: Path) -> TableFile:
        """Open a training file."""
        chosen = chosen_columns(self.columns)
        return open_table(path, has_header=chosen.has_header, sentence=chosen.sentence)


def settle(
    table: TableFile, choices: Choices
) -> tuple[RowReading[Any, Any], list[str]]:
    """Read a training table once to settle how its rows become examples; the notes list
    what was guessed.
    """
    chosen = chosen_columns(choices.columns, table.columns)
    sample = table.sample()
    file = table.source.name
    candidates = list(dict.fromkeys(problems().values()))
    if choices.problem is not None:
        candidates = [reading_of(choices.problem)]
    names = [name for name in table.columns if name not in table.spare]
    kind, columns = guess_columns(names, sample, chosen, candidates, TextRows)
    _require_labels(table, kind, columns)
    if table.has_header is False:  # then other files have none either
        columns = replace(columns, has_header=False)
    splits = _count_splits(table, columns)
    if columns.all("split") and not chosen.all("split") and not _divide(splits):
        columns = columns.without("split")

    def rows() -> Iterator[Row]:
        return (row for _, row in table.rows())

    training = TrainingRows(
        file, rows, columns, choices.problem, choices.labels, choices.skips_unlabelled
    )
    reading, about = kind.settle(training)
    notes = [
        f"{file}: {table.writing}",
        f"columns: {' '.join(columns.words())}{_not_used(table, columns)}",
        f"problem: {reading.problem}; {about}",
    ]
    others = _other_labels(table, columns, chosen, sample)
    if others:
        flag = shlex.quote(f"label={others[0]}")
        notes.append(f"could be the label, too: {', '.join(others)}; --column {flag}")
    if columns.all("split"):
        counts = ", ".join(f"{name} {number:,}" for name, number in splits.items())
        notes.append(f"rows by column {columns.all('split')[0]}: {counts}")
        if not splits["dev"]:
            notes.append(
                "warning: no rows are for development, so the best evaluation is chosen"
                " on the test rows, which flatters it; the last step is not"
            )
    warning = _half_of_pair(table, columns, chosen, sample)
    if warning:
        notes.append(warning)
    return reading, notes


def _require_labels(
    table: TableFile, kind: type[RowReading[Any, Any]], columns: Columns
) -> None:
    role = kind.learned[0]
    if columns.all(role):
        return
    advice = f"--column {role}=NAME; numbers have no units and no commas: 1234.5"
    if len(table.columns) == 1 and table.has_header is not None:
        advice = "put commas, semicolons, tabs or bars between the text and its label"
    raise LitebertError(
        "LB-861",
        f"{table.source.name} has no column of labels",
        received=f"columns {', '.join(table.columns)}",
        next=advice,
    )


def _not_used(table: TableFile, columns: Columns) -> str:
    unused = _unused(table, columns)
    return f"; not used: {', '.join(unused)}" if unused else ""


def _unused(table: TableFile, columns: Columns) -> list[str]:
    """Return the columns without a role that somebody may miss."""
    used = {*table.spare, *chain.from_iterable(columns.names.values())}
    return [name for name in table.columns if name not in used]


def _other_labels(
    table: TableFile, columns: Columns, chosen: Columns, sample: Sequence[Row]
) -> list[str]:
    """Return the columns that are called like labels and look like them, beside the
    one that was guessed.
    """
    label = columns.all("label")
    if chosen.all("label") or len(label) != 1:
        return []
    guess = ColumnGuess(_unused(table, columns), sample, Columns({}))
    others = list[str]()
    for name in guess.likely_labels():
        is_about_label = name.startswith(label[0])
        is_single = not has_list(guess.cells(name))
        if has_usual_word(name, "label") and is_single and not is_about_label:
            others.append(name)
    return others


def _half_of_pair(
    table: TableFile, columns: Columns, chosen: Columns, sample: Sequence[Row]
) -> str | None:
    """Return a warning of a column that is not read although it looks like the other
    half of a pair of texts.
    """
    text = columns.all("text")
    if not text or chosen.all("text") or columns.all("second"):
        return None
    worded = list[str]()
    for name in _unused(table, columns):
        cells = [row.get(name) for row in sample]
        is_text = are_varied(cells) or mean_words(cells) >= FEWEST_WORDS
        if have_words(cells) and is_text and not are_dates(cells):
            worded.append(name)
    if not worded:
        return None
    pair = [name for name in table.columns if name in (*text, worded[0])]
    return (
        f"warning: not used, though it looks like text: {', '.join(worded)}; for pairs:"
        f" {pair_flags(pair)}"
    )


# ---- the split column ----------------------------------------------------------------


def _count_splits(table: TableFile, columns: Columns) -> Counter[str]:
    """Count the rows of each split that a column names; "other" are of none."""
    counts = Counter[str]()
    if columns.all("split"):
        for _, row in table.rows():
            counts[split_of(columns.cell(row, "split")) or "other"] += 1
    return counts


def _divide(splits: Counter[str]) -> bool:
    """Return whether rows are divided into some to train on and others."""
    return splits["train"] > 0 and len(splits) > 1 and "other" not in splits


# ---- the data set --------------------------------------------------------------------


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

    With `settled`, as a run recorded it, nothing is guessed, `columns` replace some of
    its columns, and `train` may be gone. What is evaluated on: `dev`; or the rows that
    a column of `train` names; or the share `held_out` of `train`, the same share of
    each label. These rows are chosen by a hash of their texts, so that equal ones stay
    together and the order of rows does not matter. With `skips_unlabelled`, rows
    without a label are omitted and counted in the notes. For any other file, `read`
    returns all rows: with labels as "train" or "dev", without as "test".
    """
    notes = list[str]()
    if settled:
        kind = reading_of(settled["problem"])
        chosen = chosen_columns((*settled["columns"], *columns))
        reading = kind(
            chosen,
            settled["problem"],
            tuple(settled["labels"]),
            settled.get("splitting", "words"),
            settled.get("first_number"),
        )
        trained_on = settled.get("train_hash")
        recorded = list(settled["columns"])
    else:
        choices = Choices(columns, problem, labels, skips_unlabelled)
        reading, notes = settle(choices.open(train), choices)
        trained_on = hash_table(train)
        recorded = list(reading.columns.words())
    files = OwnFiles(
        reading,
        train,
        dev,
        held_out,
        skips_unlabelled,
        trained_on,
        has_other_columns=recorded != list(reading.columns.words()),
    )
    if not settled:
        notes.append(f"evaluated on: {files.evaluated_on}")
        notes.extend(files.omissions())
    family = reading.family
    return Dataset(
        "table",
        family,
        files.read,
        family.key_measure,
        partial(answer_table, family),
        notes=tuple(notes),
        train=train,
        settled=files.record(),
    )


@dataclass(frozen=True)
class OwnFiles:
    """A user's own files, and which of their rows belong to a split."""

    reading: RowReading[Any, Any]
    train: Path
    dev: Path | None
    held_out: float
    skips_unlabelled: bool
    trained_on: str | None  # the hash of the training file
    has_other_columns: bool  # than those that were trained on

    @property
    def evaluated_on(self) -> str:
        """What is evaluated on, for a note."""
        if self.dev is not None:
            return str(self.dev)
        if self.reading.columns.all("split"):
            return "the rows that the column of the split names"
        return f"about {self.held_out * 100:g} % of the rows; equal texts stay together"

    def omissions(self) -> Iterator[str]:
        """Yield a note on each file whose rows without a label are omitted."""
        if not self.skips_unlabelled:
            return
        for path in (self.train, self.dev):
            if path is None:
                continue
            table = self.reading.open(path, is_labelled=True)
            number = sum(self.reading.lacks_label(row) for _, row in table.rows())
            rows = format_count(number, "row")
            yield f"{path.name}: omitted {rows} without a label"

    def record(self) -> dict[str, Any]:
        """Return what a run records, with which new files are read as these were."""
        record: dict[str, Any] = {
            "columns": list(self.reading.columns.words()),
            "problem": self.reading.problem,
            "labels": list(self.reading.labels),
            "train_hash": self.trained_on,
        }
        if self.reading.splitting != "words":
            record["splitting"] = self.reading.splitting
        if self.reading.first_number is not None:
            record["first_number"] = self.reading.first_number
        return record

    def read(self, path: Path, split: str) -> list[Any]:
        """Return the examples of a split: a part of the training file, or all of
        another file.
        """
        if split not in ("train", "dev", "test"):
            raise LitebertError(
                "LB-867",
                f"your own files have no split {split}",
                next="--split dev for rows with labels, --split test for rows without",
            )
        is_train = split != "test" and _is_train(path, self.train, self.trained_on)
        if is_train and split == "dev" and self.dev is not None:
            return list(self._examples(self.dev, is_labelled=True))
        is_labelled = split != "test"
        if not is_train:
            return list(self._examples(path, is_labelled=is_labelled))
        wanted = None
        if self.reading.columns.all("split"):
            wanted = self._splits_of(path, split)
        examples = self._examples(path, is_labelled=True, splits=wanted)
        if self.dev is not None or wanted is not None:
            return examples
        self._require_same(path)
        if len(examples) < 2:
            raise LitebertError(
                "LB-894",
                (
                    f"{path} has {format_count(len(examples), 'row')} to learn from: one"
                    " to train on, one to hold out"
                ),
                next="add rows, or give a file to evaluate on: --dev FILE",
            )
        groups = [self.reading.group(example) for example in examples]
        is_held_out = draw_held_out(groups, self.held_out)
        return [
            example
            for example, is_out in zip(examples, is_held_out, strict=True)
            if is_out == (split == "dev")
        ]

    def _splits_of(self, path: Path, split: str) -> tuple[str, ...]:
        """Return the names of the rows of a split; without rows for development, the
        test rows are evaluated on.
        """
        if split == "train":
            return ("train",)
        table = self.reading.open(path, is_labelled=True)
        counts = _count_splits(table, self.reading.columns)
        return ("dev",) if counts["dev"] else ("test",)

    def _examples(
        self, path: Path, *, is_labelled: bool, splits: Collection[str] | None = None
    ) -> list[Any]:
        reading = self.reading
        table = reading.open(path, is_labelled=is_labelled)
        if path != self.train:
            note_encoding(table.source)
        skips_unlabelled = is_labelled and self.skips_unlabelled
        numbers = list[int]()
        examples = list[Any]()
        for number, row in table.rows():
            if skips_unlabelled and reading.lacks_label(row):
                continue
            named = split_of(reading.columns.cell(row, "split"))
            if splits is not None and named not in splits:
                continue
            numbers.append(number)
            examples.append(
                reading.example_of(table, number, row, is_labelled=is_labelled)
            )
        if len({example.id for example in examples}) == len(examples):
            return examples
        # repeated ids: use row numbers instead
        pairs = zip(numbers, examples, strict=True)
        return [replace(example, id=str(number)) for number, example in pairs]

    def _require_same(self, path: Path) -> None:
        """Check that the training file is as it was, so that the same rows are held
        out.
        """
        is_changed = self.trained_on not in (None, hash_table(path))
        if self.has_other_columns or is_changed:
            raise LitebertError(
                "LB-890",
                (
                    f"{path} or its columns have changed since the model was trained"
                    " on it: rows held out now may have been trained on"
                ),
                next=(
                    "evaluate on a file of rows that it has not seen; or train again,"
                    " with another --name"
                ),
            )


def _is_train(path: Path, train: Path, trained_on: str | None) -> bool:
    return path.resolve() == train.resolve() or hash_table(path) == trained_on


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
