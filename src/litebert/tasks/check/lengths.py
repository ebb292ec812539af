"""Count the pieces of examples: how long they are, what is cut off, what is unknown."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from litebert.tasks.kinds.family import CheckItem
from litebert.tokenizer import Tokenizer
from litebert.tokenizer.tokenizer import UnknownPieces

AT_ONCE = 2_048


@dataclass(frozen=True)
class LengthReport:
    """Pieces per example, including [CLS] and [SEP]; `first_*` are numbers of rows."""

    max_length: int
    mean: float
    median: int
    share_95: int
    longest: int
    num_too_long: int
    first_too_long: int
    num_pieces: int
    num_unknown: int
    first_unknown: int
    unknown_characters: tuple[tuple[str, int], ...]

    @property
    def unknown_share(self) -> float:
        """The share of pieces that are unknown."""
        return self.num_unknown / max(1, self.num_pieces)


class LengthCounter:
    """Count the pieces of items, encoding many of them at once."""

    def __init__(self, tokenizer: Tokenizer, *, max_length: int) -> None:
        self._tokenizer, self._max_length = tokenizer, max_length
        self._held: list[tuple[int, CheckItem]] = []
        self._lengths = Counter[int]()
        self._first_too_long = self._first_unknown = 0
        self._unknown = UnknownPieces(tokenizer)

    def add(self, number: int, item: CheckItem) -> None:
        """Count the item of row `number`."""
        self._held.append((number, item))
        if len(self._held) >= AT_ONCE:
            self._count()

    def report(self) -> LengthReport | None:
        """Return what was counted; None if nothing was."""
        self._count()
        if not self._lengths:
            return None
        lengths = np.array(sorted(self._lengths))
        counts = np.array([self._lengths[length] for length in lengths.tolist()])
        reached = counts.cumsum() / counts.sum()
        return LengthReport(
            max_length=self._max_length,
            mean=float((lengths * counts).sum() / counts.sum()),
            median=int(lengths[reached.searchsorted(0.5)]),
            share_95=int(lengths[reached.searchsorted(0.95)]),
            longest=int(lengths[-1]),
            num_too_long=int(counts[lengths > self._max_length].sum()),
            first_too_long=self._first_too_long,
            num_pieces=self._unknown.num_pieces,
            num_unknown=self._unknown.num_unknown,
            first_unknown=self._first_unknown,
            unknown_characters=self._unknown.characters,
        )

    def _count(self) -> None:
        texts = [text for _, item in self._held for text in (*item.texts, *item.choices)]
        encoded = iter(self._tokenizer.encode_ids(texts))
        for number, item in self._held:
            fixed = sum(self._size(number, text, next(encoded)) for text in item.texts)
            choices = [self._size(number, text, next(encoded)) for text in item.choices]
            is_pair = len(item.texts) > 1 or bool(item.choices)
            length = fixed + max(choices, default=0) + (3 if is_pair else 2)
            self._lengths[length] += 1
            if length > self._max_length:
                self._first_too_long = self._first_too_long or number
        self._held = []

    def _size(self, number: int, text: str, ids: Sequence[int]) -> int:
        """Count the pieces of one text, and its unknown ones."""
        if self._unknown.add(text, ids):
            self._first_unknown = self._first_unknown or number
        return len(ids)
