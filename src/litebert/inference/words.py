"""Values of pieces added up by word, which ends at white space."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class WordValue(NamedTuple):
    """A word, `start` to `end` in its text, and the sum of its pieces' values."""

    word: str
    start: int
    end: int
    value: float


def by_word(
    text: str, offsets: Sequence[tuple[int, int]], values: Sequence[float]
) -> list[WordValue]:
    """Add up the values of the pieces of each word.

    >>> by_word("a cat", [(0, 1), (2, 3), (3, 5)], [1.0, 2.0, 3.0])[-1]
    WordValue(word='cat', start=2, end=5, value=5.0)
    """
    words: list[WordValue] = []
    for (start, end), value in zip(offsets, values, strict=True):
        last = words[-1] if words else None
        if last is not None and not any(map(str.isspace, text[last.end : max(start, last.end)])):
            end = max(end, last.end)
            words[-1] = WordValue(text[last.start : end], last.start, end, last.value + value)
        else:
            words.append(WordValue(text[start:end], start, end, value))
    return words
