"""Text on its way to the vocabulary: normalised, with the origin of each character; long texts in parts.

Official tokenization.py L33-50: join words with single spaces, NFKD, drop combining characters, lower-case last.
"""

from __future__ import annotations

import re
import unicodedata
from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from litebert.errors import LitebertError

Spans: TypeAlias = NDArray[np.int32]
"""Half-open places in a text, rows (start, end)."""
Places: TypeAlias = NDArray[np.int32]

LONG = 1 << 20
"""The longest text that is encoded at once, in characters."""
_PART = 1 << 17

_WORD = re.compile(r"\S+")
_NOT_ASCII = re.compile(r"[^\x00-\x7f]+")
_SURROGATE = re.compile("[\ud800-\udfff]")
_BETWEEN_WORDS = re.compile(r"(?<=\w)\s+(?=\w)")


class _FoldTable(dict[int, str]):
    """Map a code point to its NFKD form without combining characters, computed on first use.

    Folding one character at a time is exact: NFKD of a whole text only reorders combining characters, and all of
    these are dropped.
    """

    def __missing__(self, code_point: int) -> str:
        decomposed = unicodedata.normalize("NFKD", chr(code_point))
        folded = self[code_point] = "".join(c for c in decomposed if not unicodedata.combining(c))
        return folded


_FOLDED = _FoldTable()


@dataclass(frozen=True)
class AlignedText:
    """Normalised text, and for each of its characters the half-open span in the original."""

    text: str
    starts: Places
    ends: Places

    def spans(self, begins: Places, ends: Places) -> Spans:
        """Return the span in the original of each `text[begin:end]`; empty ones stay empty."""
        after = np.append(self.starts, self.ends[-1:] if len(self.ends) else np.int32(0))
        starts = after[np.minimum(begins, len(after) - 1)]
        before = np.append(np.int32(0), self.ends)
        return np.stack([starts, np.where(begins < ends, before[ends], starts)], axis=1)


@dataclass(frozen=True)
class Normalizer:
    """Official preprocessing; both settings change ids, so they belong to the vocabulary."""

    lowercase: bool = True
    keep_accents: bool = False

    def normalize(self, text: str) -> str:
        """Return the text as the vocabulary expects it.

        >>> Normalizer().normalize("  Café\\tﬁne  ")
        'cafe fine'
        >>> Normalizer(lowercase=False).normalize("Café")
        'Cafe'
        """
        text = replace_surrogates(text)
        # All white space but " " is unprintable, so this quick check suffices for most texts.
        if not text.isprintable() or "  " in text or text.strip(" ") != text:
            text = " ".join(text.split())
        if not (self.keep_accents or text.isascii()):
            text = _NOT_ASCII.sub(lambda run: run[0].translate(_FOLDED), text)
        return text.lower() if self.lowercase else text

    def align(self, text: str) -> AlignedText:
        """Normalise and record origins; a dropped mark belongs to the character before it."""
        starts, ends = array("i"), array("i")
        previous_end = 0
        for found in _WORD.finditer(replace_surrogates(text)):
            word, begin = found[0], found.start()
            if previous_end:  # the single space that all white space between two words becomes
                starts.append(previous_end)
                ends.append(begin)
            previous_end = found.end()
            if word.isascii():
                starts.extend(range(begin, previous_end))
                ends.extend(range(begin + 1, previous_end + 1))
                continue
            base_width = 0  # characters that the last one with any became, to which dropped marks are added
            for index, character in enumerate(word, begin):
                if width := self._width(character):
                    starts.extend([index] * width)
                    ends.extend([index + 1] * width)
                    base_width = width
                elif base_width:
                    ends[-base_width:] = array("i", [index + 1] * base_width)
        return AlignedText(self.normalize(text), np.array(starts, dtype=np.int32), np.array(ends, dtype=np.int32))

    def _width(self, character: str) -> int:
        if character.isascii():
            return 1
        folded = character if self.keep_accents else _FOLDED[ord(character)]
        return len(folded.lower() if self.lowercase else folded)


def replace_surrogates(text: str) -> str:
    """Return the text with lone surrogates replaced by U+FFFD, which every encoder accepts.

    All text enters the tokenizer through this function, which refuses what is not a string.

    >>> replace_surrogates("a\\ud800") == "a\\ufffd"
    True
    """
    if not isinstance(text, str):
        raise LitebertError(
            "LB-210",
            "text must be a string",
            received=f"{type(text).__name__} {text!r}",
            expected="str, or a list of str for a batch",
            next="give one string to encode, a list of strings to encode_batch",
        )
    if text.isascii():
        return text
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return _SURROGATE.sub("\ufffd", text)
    return text


def lone_string(text: str) -> LitebertError:
    """Return the error for a single string in place of a list, which would be read letter by letter."""
    return LitebertError(
        "LB-216",
        "a list of texts is needed, this is a single one",
        received=f"the string {text!r}",
        expected='a list such as ["one text", "another"]',
        next="put the text in a list, or use encode",
    )


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
    """Yield the parts of a text, each with its position; a text that is not long is one part.

    Encoding then needs memory for a part, not for the text.
    """
    if len(text) <= LONG:
        yield 0, text
        return
    for begin, end in cuts(text, _PART):
        yield begin, text[begin:end]
