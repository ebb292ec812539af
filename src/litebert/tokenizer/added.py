"""Tokens that are split off a text before the vocabulary sees it: words and markers that
were added to it and, on request, the names of special pieces.

Their rules are those of the library `tokenizers`, which transformers uses: tokens that
are not `normalized` are found in the text itself, then the others in the normalized
rest; of several that begin at one place, the longest is taken.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from typing import NamedTuple

import numpy as np

from litebert.tokenizer.text import Normalizer, Spans, replace_surrogates

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


class Trace(NamedTuple):
    """The pieces of a text, and where each came from."""

    pieces: list[str]
    spans: Spans  # (pieces, 2), in characters of the original

    def moved(self, distance: int) -> "Trace":
        """Return the trace of a part of a text that begins at this character."""
        return Trace(self.pieces, self.spans + np.int32(distance))


def join_traces(traces: Sequence[Trace]) -> Trace:
    """Return the traces of the parts of a text as one."""
    pieces = list(chain.from_iterable(trace.pieces for trace in traces))
    no_spans = np.zeros((0, 2), np.int32)
    spans = [no_spans, *(trace.spans for trace in traces)]
    return Trace(pieces, np.concatenate(spans))


class _Part(NamedTuple):
    """A part of a text, `text[start:end]`: a token, or what the vocabulary encodes."""

    token: AddedToken | None
    start: int
    end: int


class _Occurrence(NamedTuple):
    """A token that a text contains, at `text[start:end]`."""

    token: AddedToken
    start: int
    end: int


class Splitter:
    """Splits tokens off texts; the normalizer is that of the vocabulary."""

    def __init__(self, tokens: Sequence[AddedToken], normalizer: Normalizer) -> None:
        # by what is looked for: in the text itself, and in the normalized text
        self._verbatim = dict[str, AddedToken]()
        self._normalized = dict[str, AddedToken]()
        for token in tokens:
            if token.normalized:
                self._normalized[normalizer.normalize(token.content)] = token
            else:
                self._verbatim[token.content] = token
        self._normalized.pop("", None)
        self._verbatim_pattern = _pattern(self._verbatim)
        self._normalized_pattern = _pattern(self._normalized)
        self._normalizer = normalizer

    def encode(
        self, texts: Iterable[str], encode: Callable[[list[str]], list[list[int]]]
    ) -> list[list[int]]:
        """Return the ids of texts; `encode` gives those of the parts without tokens."""
        parts_of_texts = list[list[_Part]]()
        plain = list[str]()  # the parts of all texts that the vocabulary encodes
        for text in texts:
            parts = self._split(text)
            parts_of_texts.append(parts)
            for token, start, end in parts:
                if token is None:
                    plain.append(text[start:end])
        ids_of_plain = iter(encode(plain))
        encoded = list[list[int]]()
        for parts in parts_of_texts:
            ids = list[int]()
            for token, _, _ in parts:
                if token:
                    ids.append(token.id)
                else:
                    ids += next(ids_of_plain)
            encoded.append(ids)
        return encoded

    def trace(self, text: str, trace: Callable[[str], Trace]) -> Trace:
        """Return the pieces of a text; `trace` gives those of the parts without
        tokens.
        """
        traces = list[Trace]()
        for token, start, end in self._split(text):
            if token:
                span = np.array([(start, end)], np.int32)
                traces.append(Trace([token.content], span))
            else:
                traces.append(trace(text[start:end]).moved(start))
        return join_traces(traces)

    def _split(self, text: str) -> list[_Part]:
        """Return the parts of a text in order; together they cover it."""
        clean = replace_surrogates(text)
        parts = list[_Part]()
        for part in self._split_verbatim(clean):
            if part.token is None:
                parts += self._split_normalized(clean, part)
            else:
                parts.append(part)
        return parts

    def _split_verbatim(self, text: str) -> Iterable[_Part]:
        if self._verbatim_pattern is None:
            return [_Part(None, 0, len(text))]
        occurrences = list[_Occurrence]()
        for match in self._verbatim_pattern.finditer(text):
            token = self._verbatim[match[0]]
            occurrences.append(_Occurrence(token, match.start(), match.end()))
        return _cut(text, occurrences)

    def _split_normalized(self, text: str, part: _Part) -> Iterator[_Part]:
        """Split one part at the tokens that its normalized form contains."""
        original = text[part.start : part.end]
        pattern = self._normalized_pattern
        # aligning takes far longer than this look
        if pattern is None or not pattern.search(self._normalizer.normalize(original)):
            yield part
            return
        normalized, spans = self._normalizer.align(original)
        occurrences = list[_Occurrence]()
        for match in pattern.finditer(normalized):
            start = int(spans[match.start(), 0])
            end = int(spans[match.end() - 1, 1])
            token = self._normalized[match[0]]
            occurrences.append(_Occurrence(token, start, end))
        for cut in _cut(original, occurrences):
            yield _Part(cut.token, part.start + cut.start, part.start + cut.end)


def _pattern(contents: Iterable[str]) -> re.Pattern[str] | None:
    """Return an expression that finds the longest content at each place."""
    ordered = sorted(contents, key=len, reverse=True)
    return re.compile("|".join(map(re.escape, ordered))) if ordered else None


def _cut(text: str, occurrences: Iterable[_Occurrence]) -> Iterator[_Part]:
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
            yield _Part(None, done, start)
        yield _Part(token, start, end)
        done = end
    if done < len(text):
        yield _Part(None, done, len(text))


def _is_inside_word(text: str, start: int, end: int) -> bool:
    """Return whether a letter, digit or underscore is next to a part of a text."""
    around = text[max(0, start - 1) : start] + text[end : end + 1]
    return _WORD.search(around) is not None
