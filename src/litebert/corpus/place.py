"""The place of a finding, as `file:line`, computed only when it is used."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from litebert.corpus.read import Passage
from litebert.reading.source import Source


@dataclass(frozen=True)
class Place:
    """Hold a passage and its input; a row has one line, a .txt passage as many as its text."""

    source: Source
    passage: Passage

    def at(self, position: int) -> str:
        """Return the place of a character of the passage."""
        lines_before = self.passage.text.count("\n", 0, position) if self._has_lines else 0
        return f"{self.source.name}:{self.passage.line + lines_before}"

    def of(self, sentence: str) -> str:
        """Return the place of a sentence of the passage."""
        return self.at(max(0, self.passage.text.find(sentence)))

    def lines(self) -> Iterator[tuple[int, str]]:
        """Yield the lines of the passage with their numbers in the input."""
        for index, line in enumerate(self.passage.text.split("\n")):
            yield self.passage.line + index * self._has_lines, line

    @property
    def _has_lines(self) -> bool:
        return self.source.kind == ".txt"
