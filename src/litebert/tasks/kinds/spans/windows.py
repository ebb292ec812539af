"""Questions on a context, cut into windows that fit the network (official
squad_utils.py L134-620).

The official code aligns pieces with characters by comparing texts, and drops questions
where that fails. Here the tokenizer gives the characters of each piece, so no question
is dropped.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from litebert.errors import LitebertError
from litebert.tasks.kinds.family import Feature
from litebert.tokenizer import Tokenizer

MAX_CONTEXT = 200_000
"""The longest context in a data set, in characters: all its windows are in memory at
once.
"""


# ---- questions and their right answers -----------------------------------------------


@dataclass(frozen=True, slots=True)
class GoldAnswer:
    """A right answer, and the character of the context at which it starts."""

    text: str
    start: int


@dataclass(frozen=True, slots=True)
class SpanExample:
    """A question on a context; `answers` is None if unknown, empty if the question has
    none.
    """

    id: str
    question: str
    context: str
    answers: tuple[GoldAnswer, ...] | None = None

    @property
    def is_impossible(self) -> bool:
        """Whether the context does not answer the question."""
        return self.answers == ()


def gold_answers(
    context: str, answers: Iterable[tuple[str, float | None]], where: str
) -> tuple[GoldAnswer, ...]:
    """Return the right answers in a context, given their texts and starts; without a
    start, take the first match.

    `where` names the question in errors.
    """
    _refuse_long(context, where)
    return tuple(_gold_answer(context, text, start, where) for text, start in answers)


def _refuse_long(context: str, where: str) -> None:
    if len(context) <= MAX_CONTEXT:
        return
    raise LitebertError(
        "LB-811",
        f"{where} has a context that is too long for a data set",
        received=f"{len(context):,} characters",
        expected=f"at most {MAX_CONTEXT:,}; `litebert answer` reads a text of any"
        " length",
        next="split the context into chapters, each with its questions",
    )


def _gold_answer(
    context: str, text: str, start: float | None, where: str
) -> GoldAnswer:
    begin = context.find(text) if start is None else int(start)
    text_there = ""
    if begin >= 0:
        text_there = context[begin : begin + len(text)]
    if text.strip() and text_there == text:
        return GoldAnswer(text, begin)
    received = repr(text)
    if start is not None:
        received += f"; {text_there!r} is at {begin:,}"
    raise LitebertError(
        "LB-802",
        f"{where}: the answer is not in the context where it should be",
        received=received,
        next="correct the start: the place of the answer's first character, from 0,"
        " not in bytes; CR LF is one",
    )


# ---- windows of a context ------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class SpanFeature(Feature):
    """One window: [CLS] question [SEP] pieces of the context [SEP].

    `target` is (start, end, is_impossible); both positions are in the window and
    inclusive. `offsets` has a row (start, end) of characters of the context for each of
    its pieces; `has_most_context` is true for pieces that have no more context in any
    other window.
    """

    offsets: NDArray[np.int32]  # (pieces, 2)
    has_most_context: NDArray[np.bool_]  # (pieces,)

    @property
    def first(self) -> int:
        """The position of the first piece of the context in the window."""
        return len(self.ids[0]) - 1 - len(self.offsets)


def cut_windows(
    examples: Sequence[SpanExample],
    tokenizer: Tokenizer,
    *,
    max_length: int,
    max_query_length: int,
    doc_stride: int,
    training: bool = False,
) -> Iterator[SpanFeature]:
    """Yield the windows of questions one by one, since all windows of a long context
    may not fit in memory. All lengths are in pieces.

    Training windows without the answer are kept, with [CLS] as the target, marked as
    impossible.
    """
    encode = cache(tokenizer.encode_arrays)  # a context has several questions
    segments = cache(_segments)  # equal lists are one: there are many windows
    questions = tokenizer.encode_ids([example.question for example in examples])
    for number, example in enumerate(examples):
        question = questions[number][:max_query_length]
        head = [tokenizer.cls_id, *question, tokenizer.sep_id]
        room = max_length - len(head) - 1
        if room < 1:
            raise _no_room(example, max_length, room)
        context, offsets = encode(example.context)  # (pieces,), (pieces, 2)
        answer = _answer_pieces(example, offsets) if training else None
        windows = windows_of(len(context), room=room, doc_stride=doc_stride)
        best_window = most_context(windows, len(context))  # (pieces,)
        for window, (start, stop) in enumerate(windows):
            target = None
            if training:
                target = _target(answer, start, stop, len(head))
            yield SpanFeature(
                ids=([*head, *context[start:stop].tolist(), tokenizer.sep_id],),
                segments=(segments(len(head), stop - start + 1),),
                target=target,
                example=number,
                offsets=offsets[start:stop],
                has_most_context=best_window[start:stop] == window,
            )


def _segments(num_first: int, num_second: int) -> list[int]:
    return [0] * num_first + [1] * num_second


def _no_room(example: SpanExample, max_length: int, room: int) -> LitebertError:
    return LitebertError(
        "LB-807",
        f"question {example.id} leaves no room for its context",
        received=f"task.max_length {max_length}, {1 - room} too short",
        next="raise task.max_length (384 is usual), or lower task.max_query_length",
    )


def windows_of(num_pieces: int, *, room: int, doc_stride: int) -> list[tuple[int, int]]:
    """Return where the windows of a context start and stop.

    >>> windows_of(10, room=6, doc_stride=3)
    [(0, 6), (3, 9), (6, 10)]
    """
    if not num_pieces:
        return []
    stride = min(room, doc_stride)
    starts = range(0, max(num_pieces - room, 0) + stride, stride)
    return [(start, min(start + room, num_pieces)) for start in starts]


def most_context(
    windows: Sequence[tuple[int, int]], num_pieces: int
) -> NDArray[np.int32]:
    """Return for each piece the first window with the highest score for it.

    The score is the context on the shorter side plus 0.01 times the window's length
    (squad_utils.py L496).
    """
    window = np.zeros(num_pieces, dtype=np.int32)
    best = np.full(num_pieces, -np.inf)
    for number, (start, stop) in enumerate(windows):
        places = np.arange(stop - start)
        scores = np.minimum(places, places[::-1]) + 0.01 * len(places)
        is_better = scores > best[start:stop]
        best[start:stop][is_better] = scores[is_better]
        window[start:stop][is_better] = number
    return window


# ---- what a window teaches -----------------------------------------------------------


def _target(
    answer: tuple[int, int] | None, start: int, stop: int, num_before: int
) -> NDArray[np.int64]:
    """Return (start, end, is_impossible) of a window over the pieces from `start` to
    `stop`, after `num_before` tokens; an answer that is not wholly inside counts as
    impossible.
    """
    if answer is None:
        return np.array([0, 0, 1])
    first, last = answer
    if first < start or last >= stop:
        return np.array([0, 0, 1])
    return np.array([first - start + num_before, last - start + num_before, 0])


def _answer_pieces(
    example: SpanExample, offsets: NDArray[np.int32]
) -> tuple[int, int] | None:
    """Return the first and the last piece of the answer to learn, or None if there is
    none.
    """
    if example.is_impossible:
        return None
    if example.answers is None or len(example.answers) != 1:
        raise LitebertError(
            "LB-806",
            f"question {example.id} cannot be trained on",
            received=f"{len(example.answers or ())} answers",
            expected="one answer, or is_impossible",
            next="train on a file that was made for it; dev files have several answers",
        )
    (answer,) = example.answers
    starts = offsets[:, 0]
    stops = offsets[:, 1]
    # the first piece that ends after the answer's start, and the last one that begins
    # before its end
    first = int(np.searchsorted(stops, answer.start, side="right"))
    first = min(first, len(offsets) - 1)
    end = answer.start + len(answer.text)
    last = int(np.searchsorted(starts, end, side="left")) - 1
    return first, max(first, last)
