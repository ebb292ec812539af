"""What occurs more than once: documents by their hash, lines by a count of bounded size."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Repetition:
    """Say how many documents repeat an earlier one; the first of them, and what it repeats."""

    count: int
    where: str
    original: str


class SeenDocuments:
    """Remember every document by a hash of 8 bytes and its line of 4 bytes."""

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
        """Remember a document by the first 8 bytes of its digest."""
        self._hashes.append(int.from_bytes(digest[:8], "little"))
        self._lines.append(min(line, 0xFFFFFFFF))

    def repetition(self) -> Repetition | None:
        """Return the documents that equal an earlier one; None where all differ."""
        hashes = self.hashes
        order = np.argsort(hashes, kind="stable")
        is_repeated = hashes[order][1:] == hashes[order][:-1]
        if not is_repeated.any():
            return None
        at = int(order[1:][is_repeated].min())
        original = int((hashes == hashes[at]).argmax())
        return Repetition(int(is_repeated.sum()), self._place(at), self._place(original))

    def overlap(self, others: SeenDocuments) -> Repetition | None:
        """Return the documents that are among `others` too; None where there are none."""
        is_shared = np.isin(self.hashes, others.hashes)
        if not is_shared.any():
            return None
        at = int(is_shared.argmax())
        original = int((others.hashes == self.hashes[at]).argmax())
        return Repetition(int(is_shared.sum()), self._place(at), others._place(original))

    @property
    def hashes(self) -> NDArray[np.uint64]:
        """Hashes of all documents in order, of shape (documents,)."""
        return np.frombuffer(self._hashes, np.uint64)

    def _place(self, document: int) -> str:
        name = self._names[bisect_right(self._starts, document) - 1]
        return f"{name}:{self._lines[document]}"


class RepeatedLines:
    """Count equal lines within a bounded table; rare lines are forgotten where it is full.

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
        """Count a line of an input, given with its number."""
        count, name, number = self._seen.get(line, (0, name, number))
        self._seen[line] = (count + 1, name, number)
        threshold = 1
        while len(self._seen) > self._limit:
            self._seen = {line: seen for line, seen in self._seen.items() if seen[0] > threshold}
            threshold *= 2

    def most_frequent(self) -> tuple[str, int, str]:
        """Return a line, how often it stood there at least, and where first."""
        if not self._seen:
            return "", 0, ""
        line, (count, name, number) = max(self._seen.items(), key=lambda item: item[1][0])
        return line, count, f"{name}:{number}"
