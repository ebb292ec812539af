"""Questions on a context, cut into windows that fit the network (official squad_utils.py L134).

The official code aligns pieces with characters by comparing texts, and drops questions where that fails. Here the
tokenizer gives the characters of each piece, so no question is dropped.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from litebert.errors import LitebertError
from litebert.tasks.kinds.family import Feature
from litebert.tokenizer import Tokenizer

MAX_CONTEXT = 200_000
"""The longest context in a data set, in characters: all its windows are in memory at once."""
_BLOCK = 64
"""Windows of a context that are compared together."""


@dataclass(frozen=True, slots=True)
class GoldAnswer:
    """A right answer, and the character of the context at which it starts."""

    text: str
    start: int


@dataclass(frozen=True, slots=True)
class SpanExample:
    """A question on a context; `answers` is None if unknown, empty if the question has none.

    >>> SpanExample("q", "Who?", "Nobody knows.", ()).is_impossible
    True
    """

    id: str
    question: str
    context: str
    answers: tuple[GoldAnswer, ...] | None = None
    title: str = ""

    @property
    def is_impossible(self) -> bool:
        """Whether the context does not answer the question."""
        return self.answers == ()


def require_bounded_context(context: str, where: str) -> None:
    """Check that the windows of a context fit in memory."""
    if len(context) > MAX_CONTEXT:
        raise LitebertError(
            "LB-811",
            f"{where} has a context that is too long for a data set",
            received=f"{len(context):,} characters",
            expected=f"at most {MAX_CONTEXT:,}; `litebert answer` reads a text of any length",
            next="split the context into chapters, each with its questions",
        )


@dataclass(frozen=True, kw_only=True)
class SpanFeature(Feature):
    """One window: [CLS] question [SEP] pieces of the context [SEP].

    `target` is (start, end, is_impossible); both positions are in the window and inclusive. `offsets` has a row (start,
    end) of characters of the context for each of its pieces; `has_most_context` is true for pieces that have no more
    context in any other window.
    """

    offsets: NDArray[np.int32]
    has_most_context: NDArray[np.bool_]

    @property
    def first(self) -> int:
        """The position of the first piece of the context in the window."""
        return len(self.ids[0]) - 1 - len(self.offsets)


def span_windows(
    examples: Sequence[SpanExample],
    tokenizer: Tokenizer,
    *,
    max_length: int,
    max_query_length: int,
    doc_stride: int,
    training: bool,
) -> Iterator[SpanFeature]:
    """Yield the windows of each example, of at most `max_length` pieces, `doc_stride` apart.

    Training windows without the answer stay, and point to [CLS] as impossible.
    """
    segments = cache(lambda num_first, num_second: [0] * num_first + [1] * num_second)  # windows alike share one list
    contexts: dict[str, tuple[NDArray[np.int32], NDArray[np.int32]]] = {}  # ids, and characters (pieces, 2), by text
    questions = tokenizer.encode_ids([example.question for example in examples])
    for number, (example, question) in enumerate(zip(examples, questions, strict=True)):
        if example.context not in contexts:
            contexts[example.context] = tokenizer.encode_arrays(example.context)
        context, offsets = contexts[example.context]
        head = [tokenizer.cls_id, *question[:max_query_length], tokenizer.sep_id]
        room = max_length - len(head) - 1
        if room < 1:
            raise LitebertError(
                "LB-807",
                f"question {example.id} leaves no room for its context",
                received=f"task.max_length {max_length}, {1 - room} too short",
                expected="room for [CLS] question [SEP] context [SEP]",
                next="raise task.max_length (384 is usual), or lower task.max_query_length",
            )
        answer = _answer_pieces(example, offsets) if training else None
        windows = windows_of(len(context), room=room, doc_stride=doc_stride)
        for (start, stop), has_most_context in zip(windows, _most_context(windows), strict=True):
            target = np.array([0, 0, 1]) if training else None
            if answer is not None and start <= answer[0] and answer[1] < stop:
                target = np.array([answer[0] - start + len(head), answer[1] - start + len(head), 0])
            yield SpanFeature(
                ids=([*head, *context[start:stop].tolist(), tokenizer.sep_id],),
                segments=(segments(len(head), stop - start + 1),),
                target=target,
                example=number,
                offsets=offsets[start:stop],
                has_most_context=has_most_context,
            )


def windows_of(num_pieces: int, *, room: int, doc_stride: int) -> list[tuple[int, int]]:
    """Return where the windows of a context start and stop.

    >>> windows_of(10, room=6, doc_stride=3)
    [(0, 6), (3, 9), (6, 10)]
    """
    windows: list[tuple[int, int]] = []
    start = 0
    while start < num_pieces and (not windows or windows[-1][1] < num_pieces):
        windows.append((start, min(start + room, num_pieces)))
        start += min(room, doc_stride)
    return windows


def most_context(windows: Sequence[tuple[int, int]], num_pieces: int) -> NDArray[np.int64]:
    """Return for each piece the first window with the highest score for it.

    The score is the context on the shorter side plus 0.01 times the window's length.

    >>> most_context([(0, 6), (3, 9), (6, 10)], 10).tolist()
    [0, 0, 0, 0, 0, 1, 1, 1, 2, 2]
    """
    best = np.full(num_pieces, -np.inf)
    window = np.zeros(num_pieces, dtype=np.int64)
    for number, (start, stop) in enumerate(windows):
        places = np.arange(stop - start)
        scores = np.minimum(places, places[::-1]) + 0.01 * len(places)  # squad_utils.py L496
        is_better = scores > best[start:stop]
        best[start:stop][is_better] = scores[is_better]
        window[start:stop][is_better] = number
    return window


def _most_context(windows: Sequence[tuple[int, int]]) -> Iterator[NDArray[np.bool_]]:
    """Yield for each window which of its pieces have the most context there, comparing a block of windows at a time.

    A context of any length takes the memory of a block: `litebert answer` reads whole books.
    """
    for first in range(0, len(windows), _BLOCK):
        last = min(first + _BLOCK, len(windows))
        begin, end = windows[first][0], windows[last - 1][1]
        low, high = first, last  # extended to all windows that overlap these
        while low and windows[low - 1][1] > begin:
            low -= 1
        while high < len(windows) and windows[high][0] < end:
            high += 1
        origin = windows[low][0]
        near = [(start - origin, stop - origin) for start, stop in windows[low:high]]
        most = most_context(near, near[-1][1])
        for number in range(first - low, last - low):
            yield most[slice(*near[number])] == number


def _answer_pieces(example: SpanExample, offsets: NDArray[np.int32]) -> tuple[int, int] | None:
    """Return the first and the last piece of the answer to learn; None where there is none."""
    if example.is_impossible:
        return None
    if example.answers is None or len(example.answers) != 1:
        raise LitebertError(
            "LB-806",
            f"question {example.id} cannot be trained on",
            received=f"{len(example.answers)} answers" if example.answers else "no answers",
            expected="one answer, or is_impossible",
            next="train on a file that was made for it; dev files have several answers",
        )
    answer = example.answers[0]
    first = min(int(np.searchsorted(offsets[:, 1], answer.start, side="right")), len(offsets) - 1)
    last = int(np.searchsorted(offsets[:, 0], answer.start + len(answer.text), side="left")) - 1
    return first, max(first, last)
