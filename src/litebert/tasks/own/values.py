"""Read cells as texts, labels, numbers or lists (None for an empty cell), and guess contents."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from litebert.reading.tables import Row
from litebert.tokenizer.normalize import replace_surrogates

_TEXT_CHARACTERS = 10
"""The mean length of texts, at least."""
_QUOTED = re.compile(r"'((?:[^'\\]|\\.)*)'|\"((?:[^\"\\]|\\.)*)\"")
_ESCAPED = re.compile(r"\\(.)")
_BETWEEN = re.compile(r"[\s,]*")


def text_of(value: object) -> str | None:
    """Return a cell as text.

    >>> text_of("a b"), text_of(3.0), text_of(True), text_of(""), text_of(float("nan"))
    ('a b', '3', 'true', None, None)
    """
    if isinstance(value, str):
        return replace_surrogates(value) or None
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float) and not math.isnan(value):
        return str(int(value)) if value.is_integer() else repr(value)
    return None


def label_of(value: object) -> str | None:
    """Return a cell as the name of a label, without surrounding white space.

    >>> label_of(" positive "), label_of(1), label_of("  ")
    ('positive', '1', None)
    """
    return (text_of(value) or "").strip() or None


def number_of(value: object) -> float | None:
    """Return a cell as a finite number.

    >>> number_of("4.5"), number_of(3), number_of("NaN"), number_of("four")
    (4.5, 3.0, None, None)
    """
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return None
    if isinstance(value, str) and "_" in value:  # Python reads 1_000 as a number; data do not
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


def list_of(value: object) -> list[object] | None:
    """Return a cell as a list: a list, or a text that JSON, Python or numpy wrote for one.

    >>> list_of('["a", "b"]'), list_of("['a', 'b']"), list_of("['a' 'b']"), list_of("a b")
    (['a', 'b'], ['a', 'b'], ['a', 'b'], None)
    """
    if isinstance(value, (list, tuple)):
        return list(value)
    if not isinstance(value, str):
        return None
    text = value.strip()
    if not (text.startswith("[") and text.endswith("]")):
        return None
    try:
        parsed = json.loads(text)
    except (ValueError, RecursionError):
        return _written_list(text[1:-1])
    return parsed if isinstance(parsed, list) else None


def _written_list(inside: str) -> list[object] | None:
    """Read quoted strings or bare words, with commas or spaces between them."""
    if "'" not in inside and '"' not in inside:
        return [word for word in re.split(r"[\s,]+", inside) if word]
    strings: list[object] = []
    end = 0
    for found in _QUOTED.finditer(inside):
        if not _BETWEEN.fullmatch(inside, end, found.start()):
            return None
        strings.append(_ESCAPED.sub(r"\1", found[1] if found[1] is not None else found[2]))
        end = found.end()
    return strings if _BETWEEN.fullmatch(inside, end) else None


@dataclass(frozen=True)
class Contents:
    """Guess the contents of columns from the first rows of a table."""

    rows: Sequence[Row]

    def is_text(self, name: str) -> bool:
        """Whether most rows have a text of several words here, and most of these differ."""
        values = self.strings(name)
        return self.is_worded(name) and len(set(values)) * 2 > len(values)

    def is_worded(self, name: str) -> bool:
        """Whether most rows have several words here."""
        values = self.strings(name)
        if not values or len(values) * 2 < len(self.rows):
            return False
        num_worded = sum(" " in value or not value.isascii() for value in values)
        return num_worded * 2 > len(values) and fmean(map(len, values)) >= _TEXT_CHARACTERS

    def is_label(self, name: str) -> bool:
        """Whether there are few distinct values, or fractions, or nothing but lists."""
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
        """Whether any row has a list here, or a text that is a list."""
        return any(list_of(row.get(name)) is not None for row in self.rows)

    def is_object(self, name: str) -> bool:
        """Whether any row has an object with named values here."""
        return any(isinstance(row.get(name), Mapping) for row in self.rows)

    def is_span(self, name: str) -> bool:
        """Whether any row says where an answer starts."""
        return any("answer_start" in str(row.get(name)) for row in self.rows)

    def strings(self, name: str) -> list[str]:
        """Return the texts of a column that are not numbers."""
        cells = (row.get(name) for row in self.rows)
        values = (text_of(cell) for cell in cells if isinstance(cell, str))
        return [value for value in values if value is not None and number_of(value) is None]
