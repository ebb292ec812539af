"""Find repeated documents by their hashes, and repeated lines with a bounded table of counts."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Repetition:
    """How many documents repeat an earlier one, the place of the first one, and of its original."""

    count: int
    where: str
    original: str


class SeenDocuments:
    """Store a hash of 8 bytes and a line number of 4 bytes for every document."""

    def __init__(self) -> None:
        self._hashes = array("Q")
        self._lines = array("I")
        self._names: list[str] = []
        self._starts: list[int] = []

    def start_input(self, name: str) -> None:
        """Note that the next documents come from another input."""
        self._names.append(name)
        self._starts.append(len(self._hashes))

    def add(self, digest: bytes, line: int) -> None:
        """Store a document by the first 8 bytes of its digest."""
        self._hashes.append(int.from_bytes(digest[:8], "little"))
        self._lines.append(min(line, 0xFFFFFFFF))

    def repetition(self) -> Repetition | None:
        """Return the documents that equal an earlier one; None if all differ."""
        hashes = self.hashes
        order = np.argsort(hashes, kind="stable")
        is_repeated = hashes[order][1:] == hashes[order][:-1]
        if not is_repeated.any():
            return None
        at = int(order[1:][is_repeated].min())
        original = int((hashes == hashes[at]).argmax())
        return Repetition(int(is_repeated.sum()), self._place(at), self._place(original))

    def overlap(self, others: SeenDocuments) -> Repetition | None:
        """Return the documents that are also among `others`; None if there are none."""
        is_shared = np.isin(self.hashes, others.hashes)
        if not is_shared.any():
            return None
        at = int(is_shared.argmax())
        original = int((others.hashes == self.hashes[at]).argmax())
        return Repetition(int(is_shared.sum()), self._place(at), others._place(original))

    @property
    def hashes(self) -> NDArray[np.uint64]:
        """The hashes of all documents in order, shape (documents,)."""
        return np.frombuffer(self._hashes, np.uint64)

    def _place(self, document: int) -> str:
        name = self._names[bisect_right(self._starts, document) - 1]
        return f"{name}:{self._lines[document]}"


class RepeatedLines:
    """Count equal lines in a bounded table; when it is full, rare lines are dropped.

    >>> lines = RepeatedLines(limit=2)
    >>> for number, line in enumerate(["buy", "a", "buy", "b", "buy", "c"], 1):
    ...     lines.add(line, "x.txt", number)
    >>> lines.most_frequent()
    ('buy', 3, 'x.txt:1')
    """

    def __init__(self, limit: int = 1 << 17) -> None:
        self._limit = limit
        self._seen: dict[str, tuple[int, str, int]] = {}

    def add(self, line: str, name: str, number: int) -> None:
        """Count a line, which has this number in the input `name`."""
        count, name, number = self._seen.get(line, (0, name, number))
        self._seen[line] = (count + 1, name, number)
        threshold = 1
        while len(self._seen) > self._limit:
            self._seen = {line: seen for line, seen in self._seen.items() if seen[0] > threshold}
            threshold *= 2

    def most_frequent(self) -> tuple[str, int, str]:
        """Return the commonest line, a lower bound of its count, and its first place."""
        if not self._seen:
            return "", 0, ""
        line, (count, name, number) = max(self._seen.items(), key=lambda item: item[1][0])
        return line, count, f"{name}:{number}"
