"""Rows remembered by hashes, 20 bytes each: which repeat, contradict, or lie on both sides."""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

_NO_ANSWER = 0


@dataclass(frozen=True)
class Likeness:
    """How many rows are alike, the number of the first of them, and of the one that it is like."""

    count: int
    number: int
    other: int


class Seen:
    """Remember the texts and answers of rows.

    >>> seen = Seen()
    >>> for number, (text, answer) in enumerate([("a", "x"), ("b", "x"), ("a", "y")], 1):
    ...     seen.add([text], answer, number)
    >>> seen.repeated(), seen.contradictory()
    (None, Likeness(count=2, number=3, other=1))
    """

    def __init__(self) -> None:
        self._texts, self._answers, self._numbers = array("Q"), array("Q"), array("I")

    def add(self, texts: Iterable[str], answer: str | None, number: int) -> None:
        """Remember a row; spaces in its texts do not count."""
        self._texts.append(_hash("\x1f".join(" ".join(text.split()) for text in texts)))
        self._answers.append(_NO_ANSWER if answer is None else _hash(answer) | 1)
        self._numbers.append(min(number, 0xFFFFFFFF))

    def repeated(self) -> Likeness | None:
        """Return the rows that repeat an earlier one, with the same answer; None: all differ."""
        texts, answers, numbers = self._arrays()
        order = np.lexsort((answers, texts))
        is_same = _equal(texts[order]) & _equal(answers[order])
        if not is_same.any():
            return None
        at = int(order[1:][is_same].min())
        original = int(((texts == texts[at]) & (answers == answers[at])).argmax())
        return Likeness(int(is_same.sum()), int(numbers[at]), int(numbers[original]))

    def contradictory(self) -> Likeness | None:
        """Return the rows of which another with the same texts has another answer."""
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
        """Return the rows whose texts are among those of others; `other` is a number of theirs."""
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
