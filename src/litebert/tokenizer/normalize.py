"""Normalise text as the official code does, and record where each character came from.

Official tokenization.py L33-50: join words with single spaces, NFKD, drop combining characters,
lower-case last.
"""

from __future__ import annotations

import re
import unicodedata
from array import array
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from litebert.errors import LitebertError
from litebert.tokenizer.encoding import Spans

Places: TypeAlias = "array[int]"

_WORD = re.compile(r"\S+")
_NOT_ASCII = re.compile(r"[^\x00-\x7f]+")
_SURROGATE = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True)
class AlignedText:
    """Normalised text, and for each of its characters the half-open span in the original."""

    text: str
    starts: NDArray[np.int32]
    ends: NDArray[np.int32]

    def spans(self, begins: NDArray[np.int32], ends: NDArray[np.int32]) -> Spans:
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
        for word in _WORD.finditer(replace_surrogates(text)):
            if previous_end:
                starts.append(previous_end)
                ends.append(word.start())
            self._align_word(word[0], word.start(), starts, ends)
            previous_end = word.end()
        places = (np.array(numbers, dtype=np.int32) for numbers in (starts, ends))
        return AlignedText(self.normalize(text), *places)

    def _align_word(self, word: str, begin: int, starts: Places, ends: Places) -> None:
        if word.isascii():
            starts.extend(range(begin, begin + len(word)))
            ends.extend(range(begin + 1, begin + len(word) + 1))
            return
        base_width = 0
        for index, character in enumerate(word, begin):
            width = self._width(character)
            if width:
                starts.extend([index] * width)
                ends.extend([index + 1] * width)
                base_width = width
            elif base_width:
                ends[-base_width:] = array("i", [index + 1] * base_width)

    def _width(self, character: str) -> int:
        if character.isascii():
            return 1
        folded = character if self.keep_accents else _FOLDED[ord(character)]
        return len(folded.lower() if self.lowercase else folded)


def replace_surrogates(text: str) -> str:
    """Return the text with lone surrogates replaced by U+FFFD, which every encoder accepts.

    All text enters the tokenizer through this function.

    >>> replace_surrogates("a\\ud800") == "a\\ufffd"
    True

    Raises:
        LitebertError: LB-210, this is not a string.
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


def refuse_lone_string(texts: Iterable[str]) -> None:
    """Check that texts are not a single string, which would be read letter by letter.

    Raises:
        LitebertError: LB-216, they are.
    """
    if isinstance(texts, str):
        raise LitebertError(
            "LB-216",
            "a list of texts is needed, this is a single one",
            received=f"the string {texts!r}",
            expected='a list such as ["one text", "another"]',
            next="put the text in a list, or use encode",
        )


class _FoldTable(dict[int, str]):
    """Map a code point to its NFKD form without combining characters, computed on first use.

    Folding one character at a time is exact: NFKD of a whole text only reorders combining
    characters, and all of these are dropped.
    """

    def __missing__(self, code_point: int) -> str:
        decomposed = unicodedata.normalize("NFKD", chr(code_point))
        folded = self[code_point] = "".join(c for c in decomposed if not unicodedata.combining(c))
        return folded


_FOLDED = _FoldTable()
