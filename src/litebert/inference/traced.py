"""Framed sequences that remember where each token is in its text; piece values summed by word."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from litebert.tokenizer import Tokenizer

Span = tuple[int, int]


@dataclass(frozen=True)
class Pieces:
    """A text with the name of its part, as ids with the span of each in the text."""

    name: str
    text: str
    ids: list[int]
    offsets: list[Span]

    def cut(self, kept: slice) -> Pieces:
        """Return some of the pieces."""
        return Pieces(self.name, self.text, self.ids[kept], self.offsets[kept])


@dataclass(frozen=True)
class Framed:
    """A sequence as the network reads it; the tokens of `parts[i]` start at `begins[i]`.

    `is_text` is false for [CLS], [SEP] and [MASK].
    """

    ids: list[int]
    segments: list[int]
    is_text: list[bool]
    parts: tuple[Pieces, ...]
    begins: tuple[int, ...]


def pieces_of(tokenizer: Tokenizer, name: str, text: str, *, special: bool = False) -> Pieces:
    """Encode a text without [CLS] and [SEP]; with `special`, [MASK] in it is a blank."""
    encoding = tokenizer.encode(text, special_tokens=special, frame=False)
    return Pieces(name, text, encoding.ids, encoding.offsets)


def framed_pieces(tokenizer: Tokenizer, parts: Sequence[Pieces], *, longest: int) -> Framed:
    """Frame one text or two; if both do not fit, the longer one loses its end."""
    sizes = [len(part.ids) for part in parts]
    while sum(sizes) + len(parts) + 1 > longest:
        sizes[0 if sizes[0] > sizes[-1] else -1] -= 1
    kept = tuple(part.cut(slice(size)) for part, size in zip(parts, sizes, strict=True))
    ids, segments, begins = [tokenizer.cls_id], [0], list[int]()
    for number, part in enumerate(kept):
        begins.append(len(ids))
        ids += [*part.ids, tokenizer.sep_id]
        segments += [number] * (len(part.ids) + 1)
    special = {tokenizer.cls_id, tokenizer.sep_id, tokenizer.mask_id}
    return Framed(ids, segments, [id_ not in special for id_ in ids], kept, tuple(begins))


class WordValue(NamedTuple):
    """A word, `start` to `end` in its text, and the sum of its pieces' values."""

    word: str
    start: int
    end: int
    value: float


def by_word(text: str, offsets: Sequence[tuple[int, int]], values: Sequence[float]) -> list[WordValue]:
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
