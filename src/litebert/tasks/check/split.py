"""Check one file or split row by row, without keeping the rows."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

from litebert.config import HeadConfig
from litebert.tasks.check.findings import SplitReport, TableFindings
from litebert.tasks.check.lengths import LengthCounter
from litebert.tasks.kinds.family import CheckItem

_NO_ANSWER = 0


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
        self._answers.append(_NO_ANSWER if answer is None else _hash(answer) | 1)
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
        texts, answers, numbers = self._arrays()
        is_labelled = answers != _NO_ANSWER
        texts, answers, numbers = texts[is_labelled], answers[is_labelled], numbers[is_labelled]
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
        return (
            np.frombuffer(self._texts, np.uint64),
            np.frombuffer(self._answers, np.uint64),
            np.frombuffer(self._numbers, np.uint32),
        )


def _equal(values: NDArray[np.uint64]) -> NDArray[np.bool_]:
    """Whether each value but the first equals the one before it."""
    is_equal: NDArray[np.bool_] = values[1:] == values[:-1]
    return is_equal


def _hash(text: str) -> int:
    digest = blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "little")


RARE, MOST = 10, 0.9
"""A label with fewer rows is rare; one with a larger share of the rows is in most of them."""
UNKNOWN_SHARE = 0.01
"""Up to this share, unknown pieces are not reported."""


class Split:
    """Collect the findings of the rows of one file; `place` names a row."""

    def __init__(
        self, name: str, place: Callable[[int], str], *, found: TableFindings, lengths: LengthCounter | None
    ) -> None:
        self.name, self.place, self.seen = name, place, Seen()
        self._found, self._lengths = found, lengths
        self._num_rows = self._num_labelled = 0
        self._labels = Counter[str]()

    def look(self, items: Iterable[tuple[int, CheckItem]]) -> None:
        """Check the rows one by one; `items` are pairs of a row's number and its item."""
        for number, item in items:
            self._num_rows += 1
            self._num_labelled += item.answer is not None
            self._labels.update(item.labels)
            if item.main and not item.main.isspace():
                self.seen.add((*item.texts, *item.choices), item.answer, number)
            else:
                self._found.add("empty text", self.place(number))
            if any("\ufffd" in text for text in item.texts):
                self._found.add("lost character", self.place(number), item.main)
            if self._lengths:
                self._lengths.add(number, item)

    def close(self, head: HeadConfig) -> SplitReport:
        """Add the findings that need all rows, and return what was counted."""
        if self._num_rows and not self._num_labelled:
            self._say("no labels", self.name, "", self._num_rows)
        self._compare("repeated row", self.seen.repeated(), self, "the same as")
        self._compare("contradictory labels", self.seen.contradictory(), self, "another answer than")
        lengths = self._lengths.report() if self._lengths else None
        if lengths and lengths.num_too_long and head.is_pooled:
            example = f"{lengths.num_too_long / self._num_rows:.2%} of rows lose their end"
            place = self.place(lengths.first_too_long)
            self._say("too long", place, example, lengths.num_too_long)
        if lengths and lengths.unknown_share > UNKNOWN_SHARE:
            shown = ", ".join(f"{mark!r} {count:,}" for mark, count in lengths.unknown_characters)
            example = f"{lengths.unknown_share:.2%} of pieces: {shown}"
            place = self.place(lengths.first_unknown)
            self._say("unknown piece", place, example, lengths.num_unknown)
        return SplitReport(self.name, self._num_rows, dict(sorted(self._labels.items())), lengths)

    def weigh(self) -> None:
        """Report labels that are too rare, and a label that most rows have."""
        for label, count in sorted(self._labels.items()):
            share = count / self._num_rows
            if count < RARE:
                self._found.add("rare label", self.name, f"{label}: {count}", detail=label)
            elif share > MOST and self._num_labelled == self._labels.total():
                self._say("one label in most rows", self.name, f"{label}: {share:.1%}", count)

    def compare(self, train: Split) -> None:
        """Report rows that are also in the training data."""
        overlap = self.seen.overlap(train.seen)
        self._compare("both trained and evaluated on", overlap, train, "the same texts as")

    def _compare(self, kind: str, likeness: Likeness | None, others: Split, how: str) -> None:
        if likeness:
            example = f"{how} {others.place(likeness.other)}"
            self._say(kind, self.place(likeness.number), example, likeness.count)

    def _say(self, kind: str, place: str, example: str, times: int) -> None:
        """Add a finding about all rows of this split."""
        self._found.add(kind, place, example, detail=self.name, times=times)
