"""Check examples before training: one pass over each file, in bounded memory."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from litebert.config import HeadConfig
from litebert.errors import LitebertError, MissingFileError, RequestError
from litebert.reading.source import CorruptStreamError, read_pieces
from litebert.reading.tables import Row
from litebert.tasks.check.findings import DataReport, SplitReport, TableFindings
from litebert.tasks.check.lengths import LengthCounter
from litebert.tasks.check.split import Split
from litebert.tasks.dataset import Dataset
from litebert.tasks.kinds.family import CheckItem
from litebert.tasks.own.roles import chosen_header
from litebert.tasks.own.rows import TableFile, open_table
from litebert.tasks.own.settle import LEARNT, Settled, settle
from litebert.tokenizer import Tokenizer

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


def rows_of(table: TableFile, found: TableFindings) -> Iterator[tuple[int, Row]]:
    """Yield the good rows of a table; add the bad ones, and where reading fails, to `found`."""
    try:
        for number, row in table.scan():
            if isinstance(row, LitebertError):
                found.add_error("unusable row", table.place(number), row)
            else:
                yield number, row
    except LitebertError as error:
        found.add_error("unusable file", table.source.name, error)


def items(
    table: TableFile, settled: Settled, found: TableFindings, *, has_labels: bool
) -> Iterator[tuple[int, CheckItem]]:
    """Yield the number and the check item of each row that training could use."""
    _note_mark(table, found)
    family = settled.reading.family
    for number, row in rows_of(table, found):
        try:
            example = settled.example(table, number, row, is_labelled=has_labels)
        except LitebertError as error:
            found.add_error("unusable row", table.place(number), error)
        else:
            yield number, family.item(example)


def is_labelled(table: TableFile, settled: Settled) -> bool:
    """Whether the first rows of a table have labels."""
    names = [name for role in LEARNT for name in settled.reading.columns.all(role)]
    return any(row.get(name) not in (None, "") for row in table.sample() for name in names)


def _note_mark(table: TableFile, found: TableFindings) -> None:
    try:
        first = next(read_pieces(table.source), b"")
    except CorruptStreamError:
        return
    if first.startswith(_BYTE_ORDER_MARK):
        found.add("byte-order mark", table.source.name)


def check_files(
    train: Path,
    others: Sequence[Path] = (),
    *,
    columns: Sequence[str] = (),
    problem: str | None = None,
    tokenizer: Tokenizer | None = None,
    max_length: int = 256,
) -> DataReport:
    """Check a training file, and other files to be evaluated on or answered.

    With a tokenizer, lengths and unknown pieces are counted, too. Whatever would stop training
    becomes a finding of severity error, one for each row where possible.

    Raises:
        LitebertError: A file is missing or of an unknown kind; the columns or the problem were
            chosen wrongly, or cannot be guessed.
    """
    found = TableFindings()
    try:
        table = open_table(train, has_header=chosen_header(columns))
    except RequestError:
        raise
    except LitebertError as error:
        found.add_error("unusable file", str(train), error)
        return DataReport((), (), found.report())
    try:
        good = replace(table, scan=lambda: rows_of(table, TableFindings()))
        settled = settle(good, columns, problem)
    except RequestError:
        raise
    except LitebertError as error:
        found.add_error("unusable file", str(train), error)
        deque(rows_of(table, found), maxlen=0)  # notes what is wrong with single rows
        return DataReport((f"{train}: {table.writing}",), (), found.report())
    checker = _SplitChecker(settled.reading.family.head, found, tokenizer, max_length)
    rows = items(table, settled, found, has_labels=True)
    checker.check(str(train), table.place, rows, is_train=True)
    for path in others:
        try:
            other = settled.open(path, is_labelled=False)
            has_labels = is_labelled(other, settled)
        except RequestError:
            raise
        except LitebertError as error:
            found.add_error("unusable file", str(path), error)
        else:
            rows = items(other, settled, found, has_labels=has_labels)
            checker.check(str(path), other.place, rows, is_train=False)
    return DataReport(settled.notes, tuple(checker.reports), found.report())


def check_dataset(
    dataset: Dataset[Any, Any], folder: Path, *, tokenizer: Tokenizer | None = None, max_length: int = 256
) -> DataReport:
    """Check the files of a named task in a folder, or a single file as training data.

    Raises:
        LitebertError: LB-820, the folder has no file of the task.
    """
    found, notes = TableFindings(), [f"{folder}: {dataset.name}"]
    checker = _SplitChecker(dataset.family.head, found, tokenizer, max_length)
    names = (dataset.train_split, *dataset.dev_splits, *dataset.test_splits)
    names = names[:1] if folder.is_file() else names
    absent: list[LitebertError] = []
    for name in names:
        try:
            examples = dataset.read(folder, name)
        except MissingFileError as error:
            notes.append(f"{name}: no such file")
            absent.append(error)
            continue
        except LitebertError as error:
            found.add_error("unusable file", f"{folder}, {name}", error)
            continue
        pairs = ((number, dataset.family.item(each)) for number, each in enumerate(examples, 1))
        place = partial("{}, example {:,}".format, name)
        checker.check(name, place, pairs, is_train=name == dataset.train_split)
    if len(absent) == len(names):
        raise absent[0]
    return DataReport(tuple(notes), tuple(checker.reports), found.report())


class _SplitChecker:
    """Check splits one after the other, training data first; compare the others with it."""

    def __init__(self, head: HeadConfig, found: TableFindings, tokenizer: Tokenizer | None, max_length: int) -> None:
        self.head, self.reports = head, list[SplitReport]()
        self._found, self._tokenizer, self._max_length = found, tokenizer, max_length
        self._train: Split | None = None

    def check(
        self, name: str, place: Callable[[int], str], numbered: Iterable[tuple[int, CheckItem]], *, is_train: bool
    ) -> None:
        """Check the rows of one split."""
        lengths = LengthCounter(self._tokenizer, max_length=self._max_length) if self._tokenizer else None
        split = Split(name, place, found=self._found, lengths=lengths)
        split.look(numbered)
        self.reports.append(split.close(self.head))
        if is_train and self.head.labels:
            split.weigh()
        if self._train:
            split.compare(self._train)
        self._train = split if is_train else self._train
