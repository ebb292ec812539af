"""Tokens that were added to a vocabulary: words and markers that are split off a text
before the vocabulary sees it.

Their rules are those of the library `tokenizers`, which transformers uses: tokens that
are not `normalized` are found in the text itself, then the others in the normalized
rest; of several that begin at one place, the longest is taken.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

# normalizes a text; returns it with the span of each character in the original
Align: TypeAlias = Callable[[str], tuple[str, NDArray[np.int32]]]

_WORD = re.compile(r"\w")


class AddedToken(NamedTuple):
    """A token beside the vocabulary, under the names of transformers."""

    content: str
    id: int
    single_word: bool = False  # not inside a word
    lstrip: bool = False  # takes the spaces before it
    rstrip: bool = False  # takes the spaces after it
    normalized: bool = True  # found in normalized text
    special: bool = False  # left out when ids are decoded


class Part(NamedTuple):
    """A part of a text, `text[start:end]`."""

    start: int
    end: int
    id: int | None  # of the added token that it is; None if the vocabulary encodes it


class _Occurrence(NamedTuple):
    """An added token that a text contains, at `text[start:end]`."""

    token: AddedToken
    start: int
    end: int


class Splitter:
    """Finds added tokens in texts; `normalize` and `align` are those of a
    vocabulary.
    """

    def __init__(
        self,
        tokens: Sequence[AddedToken],
        normalize: Callable[[str], str],
        align: Align,
    ) -> None:
        # by what is looked for: in the text itself, and in the normalized text
        self._verbatim = dict[str, AddedToken]()
        self._normalized = dict[str, AddedToken]()
        for token in tokens:
            if token.normalized:
                self._normalized[normalize(token.content)] = token
            else:
                self._verbatim[token.content] = token
        self._normalized.pop("", None)
        self._verbatim_pattern = _pattern(self._verbatim)
        self._normalized_pattern = _pattern(self._normalized)
        self._normalize = normalize
        self._align = align

    def split(self, text: str) -> list[Part]:
        """Return the parts of a text in order; together they cover it."""
        parts = list[Part]()
        for part in self._split_verbatim(text):
            if part.id is None:
                parts += self._split_normalized(text, part)
            else:
                parts.append(part)
        return parts

    def _split_verbatim(self, text: str) -> Iterable[Part]:
        if self._verbatim_pattern is None:
            return [Part(0, len(text), None)]
        occurrences = list[_Occurrence]()
        for match in self._verbatim_pattern.finditer(text):
            token = self._verbatim[match[0]]
            occurrences.append(_Occurrence(token, match.start(), match.end()))
        return _cut(text, occurrences)

    def _split_normalized(self, text: str, part: Part) -> Iterator[Part]:
        """Split one part at the tokens that its normalized form contains."""
        original = text[part.start : part.end]
        pattern = self._normalized_pattern
        # aligning takes far longer than this look
        if pattern is None or not pattern.search(self._normalize(original)):
            yield part
            return
        normalized, spans = self._align(original)
        occurrences = list[_Occurrence]()
        for match in pattern.finditer(normalized):
            start = int(spans[match.start(), 0])
            end = int(spans[match.end() - 1, 1])
            token = self._normalized[match[0]]
            occurrences.append(_Occurrence(token, start, end))
        for start, end, id_ in _cut(original, occurrences):
            yield Part(part.start + start, part.start + end, id_)


def _pattern(contents: Iterable[str]) -> re.Pattern[str] | None:
    """Return an expression that finds the longest content at each place."""
    ordered = sorted(contents, key=len, reverse=True)
    return re.compile("|".join(map(re.escape, ordered))) if ordered else None


def _cut(text: str, occurrences: Iterable[_Occurrence]) -> Iterator[Part]:
    """Yield the parts of a text between and at the tokens that are in it, as far as
    their rules allow (tokenizers, added_vocabulary.rs, find_matches).
    """
    done = 0  # where the last part ends
    for token, token_start, token_end in occurrences:
        if token.single_word and _is_inside_word(text, token_start, token_end):
            continue
        start = token_start
        end = token_end
        # the token before may have taken these spaces
        while token.lstrip and start > done and text[start - 1].isspace():
            start -= 1
        while token.rstrip and end < len(text) and text[end].isspace():
            end += 1
        if done < start:
            yield Part(done, start, None)
        yield Part(start, end, token.id)
        done = end
    if done < len(text):
        yield Part(done, len(text), None)


def _is_inside_word(text: str, start: int, end: int) -> bool:
    """Return whether a letter, digit or underscore is next to a part of a text."""
    around = text[max(0, start - 1) : start] + text[end : end + 1]
    return _WORD.search(around) is not None
