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

# A part of a text, [start, end), and the id of the added token that it is; None if the
# vocabulary encodes it.
Part: TypeAlias = tuple[int, int, int | None]
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


# a token that is in a text, and its span there
FoundToken: TypeAlias = tuple[AddedToken, int, int]


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
        verbatim = [token for token in tokens if not token.normalized]
        self._verbatim = {token.content: token for token in verbatim}
        self._folded = {
            normalize(token.content): token for token in tokens if token.normalized
        }
        self._folded.pop("", None)
        self._normalize = normalize
        self._align = align
        self._find_verbatim = _pattern(self._verbatim)
        self._find_folded = _pattern(self._folded)

    def split(self, text: str) -> list[Part]:
        """Return the parts of a text in order; together they cover it."""
        parts = list[Part]()
        for start, end, id_ in self._split_verbatim(text):
            if id_ is None:
                parts += self._split_folded(text, start, end)
            else:
                parts.append((start, end, id_))
        return parts

    def _split_verbatim(self, text: str) -> Iterable[Part]:
        if self._find_verbatim is None:
            return [(0, len(text), None)]
        tokens = list[FoundToken]()
        for match in self._find_verbatim.finditer(text):
            tokens.append((self._verbatim[match[0]], *match.span()))
        return _cut(text, tokens)

    def _split_folded(self, text: str, start: int, end: int) -> Iterator[Part]:
        """Split one part at the tokens that its normalized form contains."""
        part = text[start:end]
        # aligning takes far longer than this look
        if self._find_folded is None or not self._find_folded.search(
            self._normalize(part)
        ):
            yield start, end, None
            return
        normalized, spans = self._align(part)
        tokens = list[FoundToken]()
        for match in self._find_folded.finditer(normalized):
            first = int(spans[match.start(), 0])
            last = int(spans[match.end() - 1, 1])
            tokens.append((self._folded[match[0]], first, last))
        for first, last, id_ in _cut(part, tokens):
            yield start + first, start + last, id_


def _pattern(contents: Iterable[str]) -> re.Pattern[str] | None:
    """Return an expression that finds the longest content at each place."""
    ordered = sorted(contents, key=len, reverse=True)
    return re.compile("|".join(map(re.escape, ordered))) if ordered else None


def _cut(text: str, tokens: Iterable[FoundToken]) -> Iterator[Part]:
    """Yield the parts of a text between and at the tokens that are in it, as far as
    their rules allow (tokenizers, added_vocabulary.rs, find_matches).
    """
    done = 0
    for token, token_start, token_end in tokens:
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
            yield done, start, None
        yield start, end, token.id
        done = end
    if done < len(text):
        yield done, len(text), None


def _is_inside_word(text: str, start: int, end: int) -> bool:
    """Return whether a letter, digit or underscore is next to a part of a text."""
    around = text[max(0, start - 1) : start] + text[end : end + 1]
    return _WORD.search(around) is not None
