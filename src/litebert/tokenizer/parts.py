"""Split long texts into parts, so that encoding needs memory for a part, not for the text."""

from __future__ import annotations

import re
from collections.abc import Iterator

LONG = 1 << 20
"""The longest text that is encoded at once, in characters."""
_PART = 1 << 17
_BETWEEN_WORDS = re.compile(r"(?<=\w)\s+(?=\w)")


def cuts(text: str, size: int) -> Iterator[tuple[int, int]]:
    """Yield where parts of a text begin and end: at least `size` characters, cut between words.

    >>> list(cuts("one two three", 5))
    [(0, 7), (8, 13)]
    """
    begin = 0
    while found := _BETWEEN_WORDS.search(text, begin + size):
        yield begin, found.start()
        begin = found.end()
    yield begin, len(text)


def parts_of(text: str) -> Iterator[tuple[int, str]]:
    """Yield the parts of a text, each with its position; a text that is not long is one part."""
    if len(text) <= LONG:
        yield 0, text
        return
    for begin, end in cuts(text, _PART):
        yield begin, text[begin:end]
