"""Text before it reaches a vocabulary: the official preprocessing, and where each
character came from.

As in the official tokenization.py L33-50: words are joined with single spaces, then
NFKD, without combining characters, lower case last.
"""

import re
import sys
import unicodedata
from array import array
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from litebert.errors import LitebertError

Spans: TypeAlias = NDArray[np.int32]  # half-open ranges in a text, rows (start, end)

_WORD = re.compile(r"\S+")
_NOT_ASCII = re.compile(r"[^\x00-\x7f]+")
_SURROGATE = re.compile("[\ud800-\udfff]")


class _FoldTable(dict[int, str]):
    # A code point's NFKD form without combining characters, computed on first use. One
    # character at a time is exact: NFKD of a whole text only reorders combining
    # characters, and all of these are dropped.
    def __missing__(self, code_point: int) -> str:
        decomposed = unicodedata.normalize("NFKD", chr(code_point))
        kept = [char for char in decomposed if not unicodedata.combining(char)]
        self[code_point] = "".join(kept)
        return self[code_point]


_FOLDED = _FoldTable()


def _fold(run: re.Match[str]) -> str:
    return run[0].translate(_FOLDED)


@dataclass(frozen=True)
class Normalizer:
    """Official preprocessing; both settings change ids, so they belong to the
    vocabulary.
    """

    lowercase: bool = True
    keep_accents: bool = False

    def normalize(self, text: str) -> str:
        """Return the text as the vocabulary expects it.

        >>> Normalizer().normalize("  Café\\tﬁne  ")
        'cafe fine'
        >>> Normalizer(lowercase=False).normalize("Café")
        'Cafe'
        """
        plain = replace_surrogates(text)
        # All white space but " " is unprintable, so this quick check suffices for most
        # texts.
        if not plain.isprintable() or "  " in plain or plain.strip(" ") != plain:
            plain = " ".join(plain.split())
        if not (self.keep_accents or plain.isascii()):
            plain = _NOT_ASCII.sub(_fold, plain)
        return plain.lower() if self.lowercase else plain

    def count_dropped(self, text: str) -> int:
        """Count the letters that lose a mark, such as an accent.

        >>> Normalizer().count_dropped("Ça va?"), Normalizer().count_dropped("Es geht.")
        (1, 0)
        """
        if self.keep_accents or text.isascii():
            return 0
        number = 0
        for character in "".join(_NOT_ASCII.findall(text)):
            parts = unicodedata.normalize("NFKD", character)
            number += any(map(unicodedata.combining, parts))
        return number

    def align(self, text: str) -> tuple[str, Spans]:
        """Return the normalized text, and the span of each of its characters in the
        original, with the marks that were dropped after it.
        """
        starts = array("i")
        ends = array("i")
        previous_end = 0
        for match in _WORD.finditer(replace_surrogates(text)):
            begin, end = match.span()
            if previous_end:  # all white space between two words becomes a single space
                starts.append(previous_end)
                ends.append(begin)
            previous_end = end
            if match[0].isascii():
                starts.extend(range(begin, end))
                ends.extend(range(begin + 1, end + 1))
            else:
                self._align_word(match[0], begin, starts, ends)
        columns = [np.array(starts, np.int32), np.array(ends, np.int32)]
        return self.normalize(text), np.column_stack(columns)

    def _align_word(
        self, word: str, begin: int, starts: "array[int]", ends: "array[int]"
    ) -> None:
        """Append the spans of the characters that a word at `begin` becomes."""
        base_width = 0  # how many characters the last base character became
        for index, character in enumerate(word, begin):
            folded = character
            if not (self.keep_accents or character.isascii()):
                folded = _FOLDED[ord(character)]
            if self.lowercase:
                folded = folded.lower()
            width = len(folded)
            if width:
                starts.extend([index] * width)
                ends.extend([index + 1] * width)
                base_width = width
            elif base_width:  # a dropped mark belongs to the character before it
                ends[-base_width:] = array("i", [index + 1] * base_width)


def replace_surrogates(text: str) -> str:
    """Replace lone surrogates with U+FFFD, which every encoder accepts; all text enters
    the tokenizer through here.
    """
    if not isinstance(text, str):
        raise LitebertError(
            "LB-210",
            "text must be a string",
            received=f"{type(text).__name__} {text!r}",
            next="give one string, or a list of strings for a batch",
        )
    if text.isascii():
        return text
    try:
        text.encode("utf-8")  # twenty times as fast as a search
    except UnicodeEncodeError:
        return _SURROGATE.sub("\ufffd", text)
    return text


@cache
def character_runs(belongs: Callable[[str], object]) -> list[tuple[int, int]]:
    """Return the first and last code point of each run of characters of a class."""
    runs = list[tuple[int, int]]()
    for code in range(sys.maxunicode + 1):
        if not belongs(chr(code)):
            continue
        if runs and runs[-1][1] == code - 1:
            runs[-1] = (runs[-1][0], code)
        else:
            runs.append((code, code))
    return runs


def single_text(text: str) -> LitebertError:
    """Return the error for one string in place of a list, which would be read letter by
    letter.
    """
    return LitebertError(
        "LB-216",
        "a list of texts is needed, not a single text",
        received=f"the string {text!r}",
        next='put it in a list: ["one text"]',
    )
