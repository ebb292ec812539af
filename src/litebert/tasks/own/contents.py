"""What stands in a column, seen on the first rows: texts, labels, lists, spans."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from litebert.reading.rows import Row
from litebert.tasks.own.values import label_of, list_of, number_of, text_of

_TEXT_CHARACTERS = 10
"""Texts are this long in the mean, or longer."""


@dataclass(frozen=True)
class Contents:
    """The first rows of a table, from which the contents of a column are guessed."""

    rows: Sequence[Row]

    def is_text(self, name: str) -> bool:
        """Whether most rows have a text of several words, and most of these differ."""
        values = self._strings(name)
        return self.is_worded(name) and len(set(values)) * 2 > len(values)

    def is_worded(self, name: str) -> bool:
        """Whether most rows have several words there."""
        values = self._strings(name)
        if not values or len(values) * 2 < len(self.rows):
            return False
        num_worded = sum(" " in value or not value.isascii() for value in values)
        return num_worded * 2 > len(values) and fmean(map(len, values)) >= _TEXT_CHARACTERS

    def is_label(self, name: str) -> bool:
        """Whether few values repeat, or all are numbers and some not whole, or all are lists."""
        values = [label_of(row.get(name)) for row in self.rows]
        filled = [value for value in values if value is not None]
        if not filled:
            return self.is_list(name)
        num_distinct = len(set(filled))
        numbers = [number for value in filled if (number := number_of(value)) is not None]
        if len(numbers) < len(filled):
            return 1 < num_distinct <= max(2, len(filled) // 2)
        is_whole = all(number.is_integer() for number in numbers)
        return num_distinct > 1 and (num_distinct * 2 <= len(filled) or not is_whole)

    def is_list(self, name: str) -> bool:
        """Whether a row has a list, also one that is written as text."""
        return any(list_of(row.get(name)) is not None for row in self.rows)

    def is_object(self, name: str) -> bool:
        """Whether a row has named values there."""
        return any(isinstance(row.get(name), Mapping) for row in self.rows)

    def is_span(self, name: str) -> bool:
        """Whether a row says where an answer starts."""
        return any("answer_start" in str(row.get(name)) for row in self.rows)

    def has_strings(self, name: str) -> bool:
        """Whether a row has a text there that is no number."""
        return bool(self._strings(name))

    def _strings(self, name: str) -> list[str]:
        cells = (row.get(name) for row in self.rows)
        values = (text_of(cell) for cell in cells if isinstance(cell, str))
        return [value for value in values if value is not None and number_of(value) is None]
