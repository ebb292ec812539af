"""Cut questions and contexts into windows that fit the network (official squad_utils.py L134).

The official code aligns pieces with characters by comparing texts, and drops questions where that
fails. Here the tokenizer gives the characters of each piece, so no question is dropped.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from litebert.errors import LitebertError
from litebert.tasks.kinds.family import Feature
from litebert.tasks.kinds.spans.example import SpanExample
from litebert.tokenizer import Tokenizer

_BLOCK = 64
"""Windows of a context that are compared together."""


@dataclass(frozen=True, kw_only=True)
class SpanFeature(Feature):
    """One window: [CLS] question [SEP] pieces of the context [SEP].

    `target` is (start, end, is_impossible); both positions are in the window and inclusive.
    `offsets` has a row (start, end) of characters of the context for each of its pieces;
    `has_most_context` is true for pieces that have no more context in any other window.
    """

    offsets: NDArray[np.int32]
    has_most_context: NDArray[np.bool_]

    @property
    def first(self) -> int:
        """The position of the first piece of the context in the window."""
        return len(self.ids[0]) - 1 - len(self.offsets)


@dataclass(frozen=True)
class Context:
    """The pieces of a context, and the characters of each (start, end), int32 (pieces, 2)."""

    ids: NDArray[np.int32]
    offsets: NDArray[np.int32]

    def pieces_of(self, start: int, stop: int) -> tuple[int, int]:
        """Return the first and the last piece of the characters start, ... stop - 1."""
        last_piece = len(self.ids) - 1
        first = int(np.searchsorted(self.offsets[:, 1], start, side="right"))
        last = int(np.searchsorted(self.offsets[:, 0], stop, side="left")) - 1
        first = min(first, last_piece)
        return first, max(first, min(last, last_piece))


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

    Raises:
        LitebertError: LB-806, an example for training has several answers or unknown ones; LB-807,
            a question leaves no room for its context.
    """
    segments = cache(_segments)  # windows of the same sizes share one list
    for number, (example, question, context) in enumerate(_encoded(examples, tokenizer)):
        question = question[:max_query_length]
        room = max_length - len(question) - 3
        _require_room(room, example, max_length=max_length)
        answer = _answer(example, context) if training else None
        head = [tokenizer.cls_id, *question, tokenizer.sep_id]
        windows = windows_of(len(context.ids), room=room, doc_stride=doc_stride)
        for (start, stop), has_most_context in zip(windows, _most_context(windows), strict=True):
            yield SpanFeature(
                ids=([*head, *context.ids[start:stop].tolist(), tokenizer.sep_id],),
                segments=(segments(len(head), stop - start + 1),),
                target=_target(answer, start, stop, len(head)) if training else None,
                example=number,
                offsets=context.offsets[start:stop],
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
    """Yield for each window which of its pieces have the most context there."""
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


def _encoded(examples: Sequence[SpanExample], tokenizer: Tokenizer) -> Iterator[tuple[SpanExample, list[int], Context]]:
    """Yield examples with their encoded question and context; a context is encoded once."""
    questions = tokenizer.encode_ids([example.question for example in examples])
    contexts: dict[str, Context] = {}
    for example, question in zip(examples, questions, strict=True):
        if example.context not in contexts:
            contexts[example.context] = Context(*tokenizer.encode_arrays(example.context))
        yield example, question, contexts[example.context]


def _answer(example: SpanExample, context: Context) -> tuple[int, int] | None:
    """Return first and last piece of the answer; None where there is none."""
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
    return context.pieces_of(answer.start, answer.start + len(answer.text))


def _target(answer: tuple[int, int] | None, start: int, stop: int, first: int) -> NDArray[np.int64]:
    if answer is None or not (start <= answer[0] and answer[1] < stop):
        return np.array([0, 0, 1])
    return np.array([answer[0] - start + first, answer[1] - start + first, 0])


def _require_room(room: int, example: SpanExample, *, max_length: int) -> None:
    if room >= 1:
        return
    raise LitebertError(
        "LB-807",
        f"question {example.id} leaves no room for its context",
        received=f"task.max_length {max_length}, {1 - room} too short",
        expected="room for [CLS] question [SEP] context [SEP]",
        next="raise task.max_length (384 is usual), or lower task.max_query_length",
    )


def _segments(num_first: int, num_second: int) -> list[int]:
    return [0] * num_first + [1] * num_second
