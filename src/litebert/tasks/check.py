"""Check examples before training, users' own or those of a named task: one pass over each file, in bounded memory."""

from __future__ import annotations

from array import array
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from typing_extensions import TypedDict

from litebert.config import HeadConfig
from litebert.errors import LitebertError, MissingFileError, RequestError, counted
from litebert.reading.findings import Advice, CheckReport, Finding, Findings
from litebert.reading.source import CorruptStreamError, read_pieces
from litebert.reading.tables import Row
from litebert.tasks.own.columns import LEARNT, chosen_header
from litebert.tasks.own.table import TableFile, open_table
from litebert.tokenizer import Tokenizer
from litebert.tokenizer.tokenizer import UnknownPieces

if TYPE_CHECKING:  # they need torch, and `litebert data check --help` does not
    from litebert.tasks.kinds.family import CheckItem, Dataset
    from litebert.tasks.own.dataset import Settled

# What is found

PLACES = 5
"""The most places that are named for each kind."""
RARE, MOST = 10, 0.9
"""A label with fewer rows is rare; one with a larger share of the rows is in most of them."""
UNKNOWN_SHARE = 0.01
"""Up to this share, unknown pieces are not reported."""
_SHOWN_LABELS = 12
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"

ADVICE: Advice = {
    "unusable file": ("error", "correct this first: nothing after it was checked"),
    "unusable row": ("error", "correct or remove these rows: training would stop here"),
    "both trained and evaluated on": ("warning", "remove them from one side: results are inflated"),
    "contradictory labels": ("warning", "one of them is wrong: look them up, keep one"),
    "repeated row": ("warning", "remove all but one: training would see them more often"),
    "empty text": ("warning", "an example without text teaches nothing"),
    "rare label": ("warning", "too few to learn from: add examples, or merge labels"),
    "one label in most rows": ("warning", "do not judge by accuracy; see task.class_weights"),
    "lost character": ("warning", "U+FFFD stands for lost bytes: reconvert the text"),
    "unknown piece": ("warning", "the vocabulary lacks these characters"),
    "too long": ("warning", "raise task.max_length, or accept the loss"),
    "byte-order mark": ("note", "ignored when the file is read"),
    "no labels": ("note", "can be answered, but neither trained nor evaluated on"),
}
"""The severity of each kind and what to do, in the order in which they are reported."""


@dataclass(frozen=True)
class LengthReport:
    """Pieces per example, including [CLS] and [SEP]; `first_*` are numbers of rows."""

    max_length: int
    mean: float
    median: int
    share_95: int
    longest: int
    num_too_long: int
    first_too_long: int
    num_pieces: int
    num_unknown: int
    first_unknown: int
    unknown_characters: tuple[tuple[str, int], ...]

    @property
    def unknown_share(self) -> float:
        """The share of pieces that are unknown."""
        return self.num_unknown / max(1, self.num_pieces)


@dataclass(frozen=True)
class SplitReport:
    """The contents of one file or split: rows by label and, with a vocabulary, lengths."""

    name: str
    num_rows: int
    labels: dict[str, int]
    lengths: LengthReport | None

    def __str__(self) -> str:
        """Write the report for people."""
        lines = [f"{self.name}: {counted(self.num_rows, 'row')}"]
        if self.labels:
            total = sum(self.labels.values())
            ranked = sorted(self.labels.items(), key=lambda item: -item[1])
            shown = ", ".join(f"{label} {count:,} ({count / total:.1%})" for label, count in ranked[:_SHOWN_LABELS])
            left = len(ranked) - _SHOWN_LABELS
            lines.append(f"  {shown}" + (f", and {left} more" if left > 0 else ""))
        if lengths := self.lengths:
            lines.append(
                f"  pieces: mean {lengths.mean:.1f}, median {lengths.median}, 95 % up to {lengths.share_95}, "
                f"longest {lengths.longest:,}; over {lengths.max_length}: {lengths.num_too_long / self.num_rows:.2%}; "
                f"unknown: {lengths.unknown_share:.3%}"
            )
        return "\n".join(lines)


class DataRecord(TypedDict):
    """A `DataReport` as JSON."""

    notes: tuple[str, ...]
    splits: tuple[SplitReport, ...]
    findings: tuple[Finding, ...]


@dataclass(frozen=True)
class DataReport(CheckReport):
    """What was guessed about the data, what each split contains, and what is wrong with it."""

    said: tuple[str, ...]
    splits: tuple[SplitReport, ...]

    def as_json(self) -> DataRecord:
        """Return the report for programs."""
        return {"notes": self.said, "splits": self.splits, "findings": self.findings}

    def __str__(self) -> str:
        """Write the report for people."""
        return "\n".join([*self.said, *map(str, self.splits), "", super().__str__()])


# Checking files


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

    With a tokenizer, lengths and unknown pieces are counted, too. Whatever would stop training becomes a finding of
    severity error, one for each row where possible; what is wrong with the request is raised.
    """
    from litebert.tasks.own.dataset import settle

    check = _Check(tokenizer, max_length)
    try:
        table = open_table(train, has_header=chosen_header(columns))
        check.notes.append(f"{train}: {table.writing}")
        good = replace(table, scan=partial(_Check(None, max_length).good_rows, table))
        settled = settle(good, columns, problem)
    except RequestError:
        raise
    except LitebertError as error:
        check.add_error("unusable file", str(train), error)
        if check.notes:
            deque(check.good_rows(table), maxlen=0)  # notes what is wrong with single rows
        return check.report()
    check.notes[:] = settled.notes
    check.head = settled.reading.family.head
    check.rows(str(train), table.place, check.items(table, settled, is_labelled=True), is_train=True)
    for path in others:
        try:
            table = settled.open(path, is_labelled=False)
            labels = [name for role in LEARNT for name in settled.reading.columns.all(role)]
            is_labelled = any(row.get(name) not in (None, "") for row in table.sample() for name in labels)
        except RequestError:
            raise
        except LitebertError as error:
            check.add_error("unusable file", str(path), error)
        else:
            check.rows(str(path), table.place, check.items(table, settled, is_labelled=is_labelled))
    return check.report()


def check_dataset(
    dataset: Dataset[Any, Any], folder: Path, *, tokenizer: Tokenizer | None = None, max_length: int = 256
) -> DataReport:
    """Check the files of a named task in a folder, or a single file as training data."""
    check = _Check(tokenizer, max_length, dataset.family.head)
    check.notes.append(f"{folder}: {dataset.name}")
    names = (dataset.train_split, *dataset.dev_splits, *dataset.test_splits)
    names = names[:1] if folder.is_file() else names
    absent: list[LitebertError] = []
    for name in names:
        try:
            examples = dataset.read(folder, name)
        except MissingFileError as error:
            check.notes.append(f"{name}: no such file")
            absent.append(error)
        except LitebertError as error:
            check.add_error("unusable file", f"{folder}, {name}", error)
        else:
            pairs = ((number, dataset.family.item(each)) for number, each in enumerate(examples, 1))
            check.rows(name, partial("{}, example {:,}".format, name), pairs, is_train=name == dataset.train_split)
    if len(absent) == len(names):
        raise absent[0]
    return check.report()


@dataclass
class _Check:
    """What was found so far: splits are checked one after the other, the others are compared with the training data."""

    tokenizer: Tokenizer | None
    max_length: int
    head: HeadConfig | None = None
    notes: list[str] = field(default_factory=list)
    splits: list[SplitReport] = field(default_factory=list)
    found: Findings = field(default_factory=lambda: Findings(ADVICE, num_places=PLACES))
    train: tuple[Seen, Callable[[int], str]] | None = None

    def report(self) -> DataReport:
        counts = {f"rows of {split.name}": split.num_rows for split in self.splits}
        return DataReport(self.found.report(), counts, tuple(self.notes), tuple(self.splits))

    def add_error(self, kind: str, place: str, error: LitebertError) -> None:
        """Count an error raised while reading, by its code; its message may name the place."""
        own, _, reason = error.what.rpartition(": ")
        example = ": ".join(filter(None, (reason, error.received)))
        self.found.add(kind, own or place, example, detail=error.code, advice=error.next)

    def good_rows(self, table: TableFile) -> Iterator[tuple[int, Row]]:
        """Yield the good rows of a table; the bad ones, and where reading fails, are findings."""
        try:
            for number, row in table.scan():
                if isinstance(row, LitebertError):
                    self.add_error("unusable row", table.place(number), row)
                else:
                    yield number, row
        except LitebertError as error:
            self.add_error("unusable file", table.source.name, error)

    def items(self, table: TableFile, settled: Settled, *, is_labelled: bool) -> Iterator[tuple[int, CheckItem]]:
        """Yield the number and the check item of each row that training could use."""
        with suppress(CorruptStreamError):  # found again, with its place, when the rows are read
            if next(read_pieces(table.source), b"").startswith(_BYTE_ORDER_MARK):
                self.found.add("byte-order mark", table.source.name)
        for number, row in self.good_rows(table):
            try:
                example = settled.example(table, number, row, is_labelled=is_labelled)
            except LitebertError as error:
                self.add_error("unusable row", table.place(number), error)
            else:
                yield number, settled.reading.family.item(example)

    def rows(
        self, name: str, place: Callable[[int], str], items: Iterable[tuple[int, CheckItem]], *, is_train: bool = False
    ) -> None:
        """Check the rows of one split; `items` are pairs of a row's number and its item, `place` names a row."""
        assert self.head is not None
        found, seen, labels = self.found, Seen(), Counter[str]()
        counter = LengthCounter(self.tokenizer, max_length=self.max_length) if self.tokenizer else None
        num_rows = num_labelled = 0
        for number, item in items:
            num_rows += 1
            num_labelled += item.answer is not None
            labels.update(item.labels)
            if item.main and not item.main.isspace():
                seen.add((*item.texts, *item.choices), item.answer, number)
            else:
                found.add("empty text", place(number))
            if any("\ufffd" in text for text in item.texts):
                found.add("lost character", place(number), item.main)
            if counter:
                counter.add(number, item)

        def say(kind: str, where: str, example: str, times: int) -> None:
            found.add(kind, where, example, detail=name, times=times)

        def compare(kind: str, likeness: Likeness | None, other: Callable[[int], str], how: str) -> None:
            if likeness:
                say(kind, place(likeness.number), f"{how} {other(likeness.other)}", likeness.count)

        # What needs all rows
        if num_rows and not num_labelled:
            say("no labels", name, "", num_rows)
        compare("repeated row", seen.repeated(), place, "the same as")
        compare("contradictory labels", seen.contradictory(), place, "another answer than")
        lengths = counter.report() if counter else None
        if lengths and lengths.num_too_long and self.head.is_pooled:
            example = f"{lengths.num_too_long / num_rows:.2%} of rows lose their end"
            say("too long", place(lengths.first_too_long), example, lengths.num_too_long)
        if lengths and lengths.unknown_share > UNKNOWN_SHARE:
            shown = ", ".join(f"{mark!r} {count:,}" for mark, count in lengths.unknown_characters)
            example = f"{lengths.unknown_share:.2%} of pieces: {shown}"
            say("unknown piece", place(lengths.first_unknown), example, lengths.num_unknown)
        self.splits.append(SplitReport(name, num_rows, dict(sorted(labels.items())), lengths))
        if is_train and self.head.labels:
            for label, count in sorted(labels.items()):
                share = count / num_rows
                if count < RARE:
                    found.add("rare label", name, f"{label}: {count}", detail=label)
                elif share > MOST and num_labelled == labels.total():
                    say("one label in most rows", name, f"{label}: {share:.1%}", count)
        if self.train:
            theirs, where = self.train
            compare("both trained and evaluated on", seen.overlap(theirs), where, "the same texts as")
        if is_train:
            self.train = seen, place


@dataclass(frozen=True)
class Likeness:
    """How many rows are alike, the number of the first one, and of the row that it is like."""

    count: int
    number: int
    other: int


class Seen:
    """Store hashes of the texts and answers of rows, 20 bytes per row.

    >>> seen = Seen()
    >>> for number, (text, answer) in enumerate([("a", "x"), ("b", "x"), ("a", "y")], 1):
    ...     seen.add([text], answer, number)
    >>> seen.repeated(), seen.contradictory()
    (None, Likeness(count=2, number=3, other=1))
    """

    def __init__(self) -> None:
        self._texts, self._answers, self._numbers = array("Q"), array("Q"), array("I")

    def add(self, texts: Iterable[str], answer: str | None, number: int) -> None:
        """Store a row; differences in white space are ignored."""
        self._texts.append(_hash("\x1f".join(" ".join(text.split()) for text in texts)))
        self._answers.append(0 if answer is None else _hash(answer) | 1)  # 0: no answer
        self._numbers.append(min(number, 0xFFFFFFFF))

    def repeated(self) -> Likeness | None:
        """Return the rows that repeat an earlier one and its answer; None if there are none."""
        texts, answers, numbers = self._arrays()
        order = np.lexsort((answers, texts))
        is_same = _equal(texts[order]) & _equal(answers[order])
        if not is_same.any():
            return None
        at = int(order[1:][is_same].min())
        original = int(((texts == texts[at]) & (answers == answers[at])).argmax())
        return Likeness(int(is_same.sum()), int(numbers[at]), int(numbers[original]))

    def contradictory(self) -> Likeness | None:
        """Return the rows for which another row has the same texts and another answer."""
        texts, answers, numbers = (part[self._arrays()[1] != 0] for part in self._arrays())
        order = np.lexsort((answers, texts))
        is_conflict = _equal(texts[order]) & ~_equal(answers[order])
        if not is_conflict.any():
            return None
        rows = np.flatnonzero(np.isin(texts, texts[order][1:][is_conflict]))
        first = int(rows[0])
        differs = (texts == texts[first]) & (answers != answers[first])
        return Likeness(len(rows), int(numbers[differs.argmax()]), int(numbers[first]))

    def overlap(self, others: Seen) -> Likeness | None:
        """Return the rows whose texts are also in `others`; `Likeness.other` is a row there."""
        texts, _, numbers = self._arrays()
        their_texts, _, their_numbers = others._arrays()
        rows = np.flatnonzero(np.isin(texts, their_texts))
        if not len(rows):
            return None
        original = int((their_texts == texts[rows[0]]).argmax())
        return Likeness(len(rows), int(numbers[rows[0]]), int(their_numbers[original]))

    def _arrays(self) -> tuple[NDArray[np.uint64], NDArray[np.uint64], NDArray[np.uint32]]:
        texts, answers = np.frombuffer(self._texts, np.uint64), np.frombuffer(self._answers, np.uint64)
        return texts, answers, np.frombuffer(self._numbers, np.uint32)


def _equal(values: NDArray[np.uint64]) -> NDArray[np.bool_]:
    """Whether each value but the first equals the one before it."""
    is_equal: NDArray[np.bool_] = values[1:] == values[:-1]
    return is_equal


def _hash(text: str) -> int:
    digest = blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "little")


class LengthCounter:
    """Count the pieces of items, encoding many of them at once: how long they are, what is cut off, what is unknown."""

    AT_ONCE = 2_048

    def __init__(self, tokenizer: Tokenizer, *, max_length: int) -> None:
        self._tokenizer, self._max_length = tokenizer, max_length
        self._held: list[tuple[int, CheckItem]] = []
        self._lengths = Counter[int]()
        self._first_too_long = self._first_unknown = 0
        self._unknown = UnknownPieces(tokenizer)

    def add(self, number: int, item: CheckItem) -> None:
        """Count the item of row `number`."""
        self._held.append((number, item))
        if len(self._held) >= self.AT_ONCE:
            self._count()

    def report(self) -> LengthReport | None:
        """Return what was counted; None if nothing was."""
        self._count()
        if not self._lengths:
            return None
        lengths = np.array(sorted(self._lengths))
        counts = np.array([self._lengths[length] for length in lengths.tolist()])
        reached = counts.cumsum() / counts.sum()
        return LengthReport(
            max_length=self._max_length,
            mean=float((lengths * counts).sum() / counts.sum()),
            median=int(lengths[reached.searchsorted(0.5)]),
            share_95=int(lengths[reached.searchsorted(0.95)]),
            longest=int(lengths[-1]),
            num_too_long=int(counts[lengths > self._max_length].sum()),
            first_too_long=self._first_too_long,
            num_pieces=self._unknown.num_pieces,
            num_unknown=self._unknown.num_unknown,
            first_unknown=self._first_unknown,
            unknown_characters=self._unknown.characters,
        )

    def _count(self) -> None:
        texts = [text for _, item in self._held for text in (*item.texts, *item.choices)]
        encoded = iter(self._tokenizer.encode_ids(texts))
        for number, item in self._held:
            sizes = []
            for text in (*item.texts, *item.choices):
                ids = next(encoded)
                sizes.append(len(ids))
                if self._unknown.add(text, ids):
                    self._first_unknown = self._first_unknown or number
            fixed, choices = sizes[: len(item.texts)], sizes[len(item.texts) :]
            is_pair = len(item.texts) > 1 or bool(item.choices)
            length = sum(fixed) + max(choices, default=0) + (3 if is_pair else 2)  # [CLS] and [SEP]s
            self._lengths[length] += 1
            if length > self._max_length:
                self._first_too_long = self._first_too_long or number
        self._held = []
