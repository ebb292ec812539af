"""The result of encoding a text: ids at once; segments, pieces and offsets on demand."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Span: TypeAlias = tuple[int, int]
Spans: TypeAlias = NDArray[np.int32]
"""Rows (start, end)."""


@dataclass(frozen=True, slots=True)
class Trace:
    """The pieces of a text, and the half-open span of each in the original string."""

    pieces: list[str]
    offsets: Spans

    @classmethod
    def joined(cls, traces: Iterable[Trace]) -> Trace:
        """Concatenate several traces."""
        traces = list(traces)
        return cls(
            [p for trace in traces for p in trace.pieces],
            np.concatenate([spans_of([]), *(trace.offsets for trace in traces)]),
        )

    def shifted(self, by: int) -> Trace:
        """Return the trace of the same text if it starts `by` characters later."""
        return Trace(self.pieces, self.offsets + np.int32(by))


def spans_of(spans: Iterable[Span]) -> Spans:
    """Return spans as an array, shape (spans, 2)."""
    return np.array(list(spans), dtype=np.int32).reshape(-1, 2)


class Encoding:
    """The ids of a text or a pair; everything else is computed from the text when first used.

    All lists have one entry per token. `segments` is 0 for `[CLS] A [SEP]` and 1 for `B [SEP]`.
    `offsets` are (start, end) in the original string of the token's own text (A's or B's):
    `text[start:end]` is the word or part of a word without the space before it. Tokens without text
    have an empty span: `[CLS]` and `[SEP]` from framing are at (0, 0), a lone `▁` is before its
    word. Pieces of a single character, such as `½`, share its span.
    """

    __slots__ = ("_find_trace", "_first_size", "_trace", "ids")

    def __init__(self, ids: list[int], first_size: int, find_trace: Callable[[], Trace]) -> None:
        self.ids = ids
        self._first_size = first_size
        self._find_trace = find_trace
        self._trace: Trace | None = None

    @property
    def segments(self) -> list[int]:
        """0 for the tokens of the first text, 1 for those of the second."""
        return [0] * self._first_size + [1] * (len(self.ids) - self._first_size)

    @property
    def pieces(self) -> list[str]:
        """The pieces; characters that the vocabulary lacks appear unchanged."""
        return self._traced().pieces

    @property
    def offsets(self) -> list[Span]:
        """The (start, end) of each token in the original string."""
        return [(start, end) for start, end in self.offset_array.tolist()]

    @property
    def offset_array(self) -> Spans:
        """The offsets as an array, shape (tokens, 2): a twentieth of the memory of the list."""
        return self._traced().offsets

    def __len__(self) -> int:
        return len(self.ids)

    def __repr__(self) -> str:
        shown = ", ".join(map(str, self.ids[:8])) + (", …" if len(self.ids) > 8 else "")
        return f"Encoding({len(self.ids)} ids: {shown})"

    def _traced(self) -> Trace:
        if self._trace is None:
            self._trace = self._find_trace()
        return self._trace
