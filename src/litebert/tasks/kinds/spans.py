"""Question answering by spans of a text, as in SQuAD 1.1 and 2.0 (official
squad_utils.py).

In order: the windows of a context, the head of 2.0, what an answer is, the two kinds of
task, the official threshold.
"""

import json
import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cache, cached_property, partial
from itertools import zip_longest
from typing import Any, ClassVar, NamedTuple, Self, TypeAlias

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from litebert.config import AlbertConfig, HeadConfig
from litebert.errors import LitebertError, format_count
from litebert.metrics import (
    exact_and_f1,
    squad1_measures,
    squad2_measures,
    threshold_measures,
)
from litebert.nn import AlbertForTask, Batch, LinearHead, TaskHead
from litebert.plugins import TASK_HEADS, TASK_KINDS
from litebert.reading.tables import Row
from litebert.runs import AnswerRow
from litebert.tasks.kinds.family import NEVER, Family, Feature, Output
from litebert.tasks.own.cells import list_of, number_of, text_of
from litebert.tasks.own.columns import Columns, Role
from litebert.tasks.own.guess import ColumnGuess
from litebert.tasks.own.rows import RowReading, TrainingRows
from litebert.tokenizer import Tokenizer

Candidates: TypeAlias = NDArray[np.float32]
"""Rows of (start, end, start score, end score); start and end are positions in a
window, both inclusive.
"""

_BEST_OF_WINDOW = 200  # spans kept of all spans of a window
MAX_CONTEXT = 200_000
"""The longest context in a data set, in characters: all its windows are in memory at
once.
"""


# Questions on a context, cut into windows that fit the network (squad_utils.py L134)
#
# The official code aligns pieces with characters by comparing texts, and drops
# questions where that fails. Here the tokenizer gives the characters of each piece, so
# no question is dropped.


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
    context: str, found: Iterable[tuple[str, float | None]], where: str
) -> tuple[GoldAnswer, ...]:
    """Return the right answers in a context, given their texts and starts; without a
    start, take the first match.

    `where` names the question in errors.
    """
    if len(context) > MAX_CONTEXT:
        what = f"{where} has a context that is too long for a data set"
        received = f"{len(context):,} characters"
        expected = (
            f"at most {MAX_CONTEXT:,}; `litebert answer` reads a text of any length"
        )
        advice = "split the context into chapters, each with its questions"
        raise LitebertError(
            "LB-811", what, received=received, expected=expected, next=advice
        )
    answers = []
    for text, start in found:
        begin = context.find(text) if start is None else int(start)
        stands = context[begin : begin + len(text)] if begin >= 0 else ""
        if not text.strip() or stands != text:
            what = f"{where}: the answer is not in the context where it should be"
            received = (
                repr(text) if start is None else f"{text!r}; {stands!r} is at {begin:,}"
            )
            advice = (
                "correct the start: the place of the answer's first character, from 0,"
                " not in bytes; CR LF is one"
            )
            raise LitebertError("LB-802", what, received=received, next=advice)
        answers.append(GoldAnswer(text, begin))
    return tuple(answers)


@dataclass(frozen=True, kw_only=True)
class SpanFeature(Feature):
    """One window: [CLS] question [SEP] pieces of the context [SEP].

    `target` is (start, end, is_impossible); both positions are in the window and
    inclusive. `offsets` has a row (start, end) of characters of the context for each of
    its pieces; `has_most_context` is true for pieces that have no more context in any
    other window.
    """

    offsets: NDArray[np.int32]
    has_most_context: NDArray[np.bool_]

    @property
    def first(self) -> int:
        """The position of the first piece of the context in the window."""
        return len(self.ids[0]) - 1 - len(self.offsets)


def windows_of(num_pieces: int, *, room: int, doc_stride: int) -> list[tuple[int, int]]:
    """Return where the windows of a context start and stop.

    >>> windows_of(10, room=6, doc_stride=3)
    [(0, 6), (3, 9), (6, 10)]
    """
    stride = min(room, doc_stride)
    starts = range(0, max(num_pieces - room, 0) + stride, stride) if num_pieces else ()
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


def _answer_pieces(
    example: SpanExample, offsets: NDArray[np.int32]
) -> tuple[int, int] | None:
    """Return the first and the last piece of the answer to learn, or None if there is
    none.
    """
    if example.is_impossible:
        return None
    if example.answers is None or len(example.answers) != 1:
        what = f"question {example.id} cannot be trained on"
        wanted = "one answer, or is_impossible"
        received = f"{len(example.answers or ())} answers"
        advice = "train on a file that was made for it; dev files have several answers"
        raise LitebertError(
            "LB-806", what, received=received, expected=wanted, next=advice
        )
    (answer,) = example.answers
    first = min(
        int(np.searchsorted(offsets[:, 1], answer.start, side="right")),
        len(offsets) - 1,
    )
    last = (
        int(
            np.searchsorted(offsets[:, 0], answer.start + len(answer.text), side="left")
        )
        - 1
    )
    return first, max(first, last)


# The head of SQuAD 2.0: an end depends on its start (squad_utils.py L1230-1330)


class ConditionalSpans(NamedTuple):
    """Log-probabilities of starts and of ends given each chosen start; a logit for "no
    answer".
    """

    start: Float[Tensor, "sequences width"]
    chosen: Int[Tensor, "sequences starts"]
    end: Float[Tensor, "sequences starts width"]
    no_answer: Float[Tensor, " sequences"]


class ConditionalSpanHead(nn.Module):
    """Score each token as a start, each pair of start and token as an end, and
    answerability.
    """

    def __init__(self, config: AlbertConfig, _head: HeadConfig) -> None:
        super().__init__()
        size = config.hidden_size
        self.start = nn.Linear(size, 1)
        self.end_hidden = nn.Linear(2 * size, size)  # of a token and a start, joined
        self.end_norm = nn.LayerNorm(size, eps=config.layer_norm_eps)
        self.end = nn.Linear(size, 1)
        self.answer_hidden = nn.Linear(2 * size, size)
        self.answer = nn.Linear(size, 1, bias=False)
        self.dropout = nn.Dropout(config.classifier_dropout_prob)

    def end_token(self, hidden: Tensor) -> Tensor:
        """Apply the half of `end_hidden` that reads a token."""
        return F.linear(
            hidden, self.end_hidden.weight.chunk(2, dim=1)[0], self.end_hidden.bias
        )

    def end_start(self, hidden: Tensor) -> Tensor:
        """Apply the half of `end_hidden` that reads a start."""
        return F.linear(hidden, self.end_hidden.weight.chunk(2, dim=1)[1])

    def forward(
        self,
        hidden: Float[Tensor, "sequences width hidden"],
        allowed: Bool[Tensor, "sequences width"],
        starts: Int[Tensor, "sequences starts"] | int,
    ) -> ConditionalSpans:
        """Score ends for the given starts; if `starts` is a number, for that many of
        the likeliest starts, best first.

        `allowed` is true on [CLS] and on the context. An export calls this with its own
        layers as `self`.
        """
        start = (
            self.start(hidden).squeeze(-1).masked_fill(~allowed, NEVER).log_softmax(-1)
        )
        chosen = start.topk(starts).indices if isinstance(starts, int) else starts
        index = chosen.unsqueeze(-1).expand(-1, -1, hidden.shape[-1])
        # W [token, start] as two products: each token is multiplied only once.
        # (sequences, starts, hidden)
        at_starts = self.end_start(hidden.gather(1, index))
        mixed = torch.tanh(self.end_token(hidden)[:, None] + at_starts[:, :, None])
        end = self.end(self.end_norm(mixed)).squeeze(-1)  # (sequences, starts, width)
        end = end.masked_fill(~allowed[:, None], NEVER).log_softmax(-1)
        summed = (start.exp().unsqueeze(-1) * hidden).sum(1)  # (sequences, hidden)
        answer = torch.tanh(self.answer_hidden(torch.cat([summed, hidden[:, 0]], -1)))
        return ConditionalSpans(
            start, chosen, end, self.answer(self.dropout(answer)).squeeze(-1)
        )


def score_spans(
    network: AlbertForTask, batch: Batch, starts: Tensor | int
) -> ConditionalSpans:
    """Apply a conditional head to a batch, laid out as a rectangle; a very narrow one
    has fewer starts.
    """
    width = max(batch.lengths)
    is_context = (batch.segments == 1).index_fill(0, batch.offsets[1:] - 1, False)
    # [CLS] is "no answer"
    allowed = batch.to_padded(is_context | (batch.positions == 0), width=width)
    hidden = batch.to_padded(network.albert(batch), width=width)
    number = min(starts, width) if isinstance(starts, int) else starts
    spans: ConditionalSpans = network.head(hidden.float(), allowed, number)
    return spans


# What an answer is (squad_utils.py L870-1600)


@dataclass(frozen=True, slots=True)
class ProposedSpan:
    """A proposed answer: its characters in the context, and its scores.

    Scores are logits from a linear head and log-probabilities from a conditional one;
    `probability` is its share among the proposals of its question.
    """

    text: str
    start: int
    stop: int
    start_score: float
    end_score: float
    probability: float = 1.0

    @property
    def score(self) -> float:
        """What proposals are ranked by."""
        return self.start_score + self.end_score


EMPTY = ProposedSpan("empty", 0, 0, 0.0, 0.0)
"""The answer for SQuAD 1.1 if no span is possible (squad_utils.py L957)."""
NO_SPAN = ProposedSpan("", 0, 0, -1e6, -1e6)
"""The answer for SQuAD 2.0 if no span is possible (squad_utils.py L1389)."""


@dataclass(frozen=True)
class SpanAnswer:
    """The answer to one question: its proposals, best first.

    `null_score` is the logit of "no answer"; if it reaches `threshold` (by default,
    even odds), no answer is given. A conditional head gives it; with a linear head, it
    is the score of [CLS], `null_span_score`, minus that of the best proposal.
    """

    n_best: tuple[ProposedSpan, ...]
    null_score: float | None = None
    threshold: float | None = None
    null_span_score: float | None = None

    @property
    def text(self) -> str:
        """The answer, empty if none is given."""
        best = self.n_best[0].text
        threshold = self.threshold or 0.0
        if self.null_score is None or self.null_score < threshold:
            return best
        # between equal scores of a linear head, the span is taken
        is_tie = self.null_span_score is not None and self.null_score == threshold
        return best if is_tie else ""


def spans_of(
    context: str, windows: Iterable[tuple[Feature, Candidates]]
) -> Iterator[ProposedSpan]:
    """Yield the candidates of all windows on a context, best first.

    A candidate counts only in the window that has the most context around its start.
    """
    tables = [np.zeros((0, 4))]
    for window, rows in windows:
        assert isinstance(window, SpanFeature)
        places = rows[:, :2].astype(np.int64) - window.first
        # A span that starts in the question or at [CLS] is not in the context.
        is_inside = (places[:, 0] >= 0) & (places[:, 1] < len(window.offsets))
        places = places[is_inside]
        scores = rows[is_inside, 2:]
        counts = window.has_most_context[places[:, 0]]
        first, last = places[counts].T
        characters = np.stack(
            [window.offsets[first, 0], window.offsets[last, 1]], axis=1
        )
        tables.append(
            np.concatenate([characters, scores[counts]], axis=1).astype(np.float64)
        )
    found = np.concatenate(tables)
    for start, stop, start_score, end_score in found[
        np.argsort(-found[:, 2:].sum(axis=1), kind="stable")
    ]:
        cut = context[int(start) : int(stop)]
        text = cut.strip()
        begin = int(start) + cut.find(text)
        yield ProposedSpan(
            text, begin, begin + len(text), float(start_score), float(end_score)
        )


# The kinds of task


@dataclass(frozen=True)
class SpanAnswering(Family[SpanExample, SpanAnswer]):
    """SQuAD 1.1: every question is answered by a span, with a linear head
    (squad_utils.py L708-1026).

    Lengths are in pieces; in each window the `num_starts` likeliest starts are paired
    with the `num_ends` likeliest ends.
    """

    head: HeadConfig = field(
        default_factory=lambda: HeadConfig(
            kind="question-answering", always_answers=True
        )
    )
    max_query_length: int = 64
    doc_stride: int = 128
    max_answer_length: int = 30
    n_best: int = 20
    num_starts: int = 20
    num_ends: int = 20
    null_threshold: float | None = None
    heads: ClassVar[tuple[str, ...]] = ("question-answering",)
    verb: ClassVar[str] = "answer"
    refusal: ClassVar[str] = ""
    baseline: ClassVar[str] = "no answer"
    nothing: ClassVar[ProposedSpan] = EMPTY
    key_measure: ClassVar[str] = "f1"
    # the null score of a question without any window
    of_no_window: ClassVar[float | None] = None

    def features(
        self,
        examples: Sequence[SpanExample],
        tokenizer: Tokenizer,
        *,
        max_length: int,
        training: bool,
    ) -> list[Feature]:
        return list(
            self.windows(examples, tokenizer, max_length=max_length, training=training)
        )

    def windows(
        self,
        examples: Sequence[SpanExample],
        tokenizer: Tokenizer,
        *,
        max_length: int,
        training: bool = False,
    ) -> Iterator[SpanFeature]:
        """Yield the features one by one, so that those of a long context need not fit
        in memory.

        Training windows without the answer are kept, with [CLS] as the target, marked
        as impossible.
        """
        # equal lists are shared
        segments = cache(
            lambda num_first, num_second: [0] * num_first + [1] * num_second
        )
        # a context has several questions: ids, and characters (pieces, 2)
        encode = cache(tokenizer.encode_arrays)
        questions = tokenizer.encode_ids([example.question for example in examples])
        for number, (example, question) in enumerate(
            zip(examples, questions, strict=True)
        ):
            context, offsets = encode(example.context)
            head = [
                tokenizer.cls_id,
                *question[: self.max_query_length],
                tokenizer.sep_id,
            ]
            room = max_length - len(head) - 1
            if room < 1:
                what = f"question {example.id} leaves no room for its context"
                received = f"task.max_length {max_length}, {1 - room} too short"
                advice = (
                    "raise task.max_length (384 is usual), or lower"
                    " task.max_query_length"
                )
                raise LitebertError("LB-807", what, received=received, next=advice)
            answer = _answer_pieces(example, offsets) if training else None
            windows = windows_of(len(context), room=room, doc_stride=self.doc_stride)
            chosen = most_context(windows, len(context))
            for window, (start, stop) in enumerate(windows):
                target = np.array([0, 0, 1]) if training else None
                if answer is not None and start <= answer[0] and answer[1] < stop:
                    target = np.array(
                        [
                            answer[0] - start + len(head),
                            answer[1] - start + len(head),
                            0,
                        ]
                    )
                yield SpanFeature(
                    ids=([*head, *context[start:stop].tolist(), tokenizer.sep_id],),
                    segments=(segments(len(head), stop - start + 1),),
                    target=target,
                    example=number,
                    offsets=offsets[start:stop],
                    has_most_context=chosen[start:stop] == window,
                )

    def losses(self, network: AlbertForTask, batch: Batch, targets: Tensor) -> Tensor:
        """Return the mean of both cross entropies, of start and of end, over all
        positions.
        """
        start, end, _ = targets.view(-1, 3).T  # (windows,) each
        width = max(batch.lengths)
        is_token = torch.ones_like(batch.ids, dtype=torch.bool)
        is_token = batch.to_padded(is_token, width=width)  # (windows, width)
        logits = batch.to_padded(network(batch).float(), width=width).masked_fill(
            ~is_token[..., None], NEVER
        )
        of_start = F.cross_entropy(logits[..., 0], start, reduction="none")
        of_end = F.cross_entropy(logits[..., 1], end, reduction="none")
        return (of_start + of_end) / 2

    def outputs(self, network: AlbertForTask, batch: Batch) -> list[Output]:
        """Return the candidates of each window."""
        # (tokens, 2)
        logits = network(batch).float().cpu().numpy()
        found = []
        for start, end in (
            window.T for window in np.split(logits, np.cumsum(batch.lengths)[:-1])
        ):
            starts = likeliest(start, self.num_starts)
            found.append(self.candidates(starts, start[starts], end[None]))
        return found

    def candidates(
        self,
        starts: NDArray[np.int64],
        start_scores: NDArray[np.float32],
        ends: NDArray[np.float32],
    ) -> Candidates:
        """Pair starts (n,) with their likeliest ends, given scores (n or 1, width),
        unless the span is too long.
        """
        chosen = likeliest(ends, self.num_ends)
        end_scores = np.take_along_axis(ends, chosen, axis=-1)  # (n or 1, num_ends)
        pairs = np.broadcast_arrays(
            starts[:, None], chosen, start_scores[:, None], end_scores
        )
        # (n * num_ends, 4)
        rows = np.stack(pairs, axis=-1).reshape(-1, 4).astype(np.float32)
        length = rows[:, 1] - rows[:, 0] + 1
        found: Candidates = rows[(length >= 1) & (length <= self.max_answer_length)]
        return found

    def answer(
        self,
        example: SpanExample,
        windows: Sequence[Feature],
        outputs: Sequence[Output],
        /,
    ) -> SpanAnswer:
        nulls = [float(output[0, 2]) for output in outputs if self.has_nulls]
        return self._answer(
            spans_of(example.context, zip(windows, outputs, strict=True)), nulls
        )

    @property
    def has_nulls(self) -> bool:
        """Whether row 0 of the outputs of each window is a null score."""
        return self.of_no_window is not None

    def nulls_of(self, answers: Sequence[SpanAnswer]) -> list[float]:
        """Return the null scores of answers, as they are in the outputs."""
        return [each.null_score for each in answers if each.null_score is not None]

    def _answer(
        self, best_first: Iterable[ProposedSpan], nulls: Sequence[float]
    ) -> SpanAnswer:
        """Keep the first span of each text and the lowest null score; probabilities are
        the softmax of scores.
        """
        kept: dict[str, ProposedSpan] = {}
        for span in best_first:
            if len(kept) == self.n_best:
                break
            kept.setdefault(span.text, span)
        spans = list(kept.values()) or [self.nothing]
        powers = [math.exp(span.score - spans[0].score) for span in spans]
        n_best = [
            replace(span, probability=power / sum(powers))
            for span, power in zip(spans, powers, strict=True)
        ]
        return SpanAnswer(
            tuple(n_best), min(nulls, default=self.of_no_window), self.null_threshold
        )

    def merge(self, answers: Sequence[SpanAnswer]) -> SpanAnswer:
        """Return the answer to a question, given the answers from parts of its
        windows.
        """
        spans = [
            span for each in answers for span in each.n_best if span != self.nothing
        ]
        nulls = self.nulls_of(answers)
        return self._answer(sorted(spans, key=lambda span: -span.score), nulls)

    def averaged(self, answers: Sequence[SpanAnswer], /) -> SpanAnswer:
        """Return the answer of an ensemble (paper 4.9; squad_utils.py L1330).

        The scores of a span are averaged over the models that propose it, null scores
        over all.
        """
        proposed: dict[tuple[int, int], list[ProposedSpan]] = {}
        for span in (
            span for each in answers for span in each.n_best if span != self.nothing
        ):
            proposed.setdefault((span.start, span.stop), []).append(span)
        spans = []
        for same in proposed.values():
            start_score, end_score = np.mean(
                [(span.start_score, span.end_score) for span in same], axis=0
            ).tolist()
            spans.append(replace(same[0], start_score=start_score, end_score=end_score))
        nulls = self.nulls_of(answers)
        return self._answer(
            sorted(spans, key=lambda span: -span.score),
            [sum(nulls) / len(nulls)] if nulls else [],
        )

    def measures(
        self, examples: Sequence[SpanExample], answers: Sequence[SpanAnswer], /
    ) -> dict[str, float]:
        """Return `exact` and `f1` in percent, as evaluate-v1.1.py does."""
        wanted, found, _ = answers_by_id(examples, answers)
        measured = squad1_measures(wanted, found)
        return {name: measured[name] for name in ("exact", "f1")}

    def constant(
        self, _: Sequence[SpanExample], examples: Sequence[SpanExample], /
    ) -> list[SpanAnswer]:
        """Answer nothing: no span is more common than another."""
        return [
            SpanAnswer((NO_SPAN,), self.of_no_window, self.null_threshold)
            for _ in examples
        ]

    def shown(self, example: SpanExample, /) -> str:
        return example.question

    def expected(self, example: SpanExample, /) -> str | None:
        if example.answers is None:
            return None
        return " | ".join(dict.fromkeys(one.text for one in example.answers))

    def rows(
        self, examples: Sequence[SpanExample], answers: Sequence[SpanAnswer], /
    ) -> list[AnswerRow]:
        return super().rows(examples, tune_threshold(examples, answers))

    def in_words(
        self, example: SpanExample, answer: SpanAnswer, /
    ) -> tuple[str, float | None, float | None]:
        """Return the answer, the probability of it or of "no answer", and its F1."""
        text = answer.text
        confidence = answer.n_best[0].probability
        if answer.null_score is not None:
            answerable = 1 / (1 + math.exp(min(answer.null_score, 700.0)))
            confidence = confidence * answerable if text else 1 - answerable
        return (
            text,
            confidence,
            exact_and_f1([one.text for one in example.answers or ()] or [""], text)[1],
        )

    def texts(self, example: SpanExample, /) -> tuple[str, ...]:
        return (example.context, example.question)

    def labels(self, example: SpanExample, /) -> tuple[str, ...]:
        return (
            ()
            if example.answers is None
            else ("answered" if example.answers else "unanswerable",)
        )


@dataclass(frozen=True)
class ConditionalSpanAnswering(SpanAnswering):
    """SQuAD 2.0: an end depends on its start, and a question may have no answer
    (squad_utils.py L1230-1733).

    At a null score of `null_threshold` or more, no answer is given. If it is None, it
    is tuned on the answers that are measured, as in the official evaluation; where
    right answers are not known, even odds decide.
    """

    head: HeadConfig = field(
        default_factory=lambda: HeadConfig(kind="conditional-question-answering")
    )
    num_starts: int = 5
    num_ends: int = 5
    heads: ClassVar[tuple[str, ...]] = ("conditional-question-answering",)
    reading: ClassVar[Any] = None
    nothing: ClassVar[ProposedSpan] = NO_SPAN
    of_no_window: ClassVar[float | None] = 1e6  # squad_utils.py L1262

    def losses(self, network: AlbertForTask, batch: Batch, targets: Tensor) -> Tensor:
        """Return half the sum of three cross entropies: start, end given the right
        start, "no answer".
        """
        start, end, is_impossible = targets.view(-1, 3).T
        spans = score_spans(network, batch, start[:, None])
        likelihood = spans.start.gather(1, start[:, None]) + spans.end[:, 0].gather(
            1, end[:, None]
        )
        wanted = is_impossible.to(spans.no_answer)
        no_answer = F.binary_cross_entropy_with_logits(
            spans.no_answer, wanted, reduction="none"
        )
        return (no_answer - likelihood[:, 0]) / 2

    def outputs(self, network: AlbertForTask, batch: Batch) -> list[Output]:
        """Return the candidates of each window; row 0, a start at [CLS] and so not a
        candidate, is the null score.
        """
        spans = score_spans(network, batch, self.num_starts)
        start_scores = spans.start.gather(1, spans.chosen)
        on_host = (
            part.cpu().numpy()
            for part in (spans.chosen, start_scores, spans.end, spans.no_answer)
        )
        found = []
        for starts, of_starts, of_ends, null_score in zip(*on_host, strict=True):
            null = np.array([[0, 0, null_score, 0]], dtype=np.float32)
            found.append(
                np.concatenate([null, self.candidates(starts, of_starts, of_ends)])
            )
        return found

    def measures(
        self, examples: Sequence[SpanExample], answers: Sequence[SpanAnswer], /
    ) -> dict[str, float]:
        """Return the measures of evaluate-v2.0.py, in percent, and the threshold
        used.
        """
        wanted, found, nulls = answers_by_id(examples, answers)
        of_best = threshold_measures(wanted, found, nulls)
        threshold = (
            of_best["best_f1_threshold"]
            if self.null_threshold is None
            else self.null_threshold
        )
        kept = {
            key: text if nulls[key] < threshold else "" for key, text in found.items()
        }
        measured = (
            squad2_measures(
                wanted, kept, nulls if self.null_threshold is None else None
            )
            | of_best
        )
        shares = {
            name: value
            for name, value in measured.items()
            if not name.endswith("total")
        }
        return shares | {"threshold": threshold}


@dataclass(frozen=True)
class NullableSpanAnswering(SpanAnswering):
    """SQuAD 2.0 with a linear head, as most published models have it: no answer is
    given where [CLS] scores higher, as start and end, than every span.

    The null score of a question is the lowest of its windows. So do the original BERT
    code (run_squad.py) and transformers (handle_impossible_answer), which compares all
    spans, not only those of the likeliest starts and ends.
    """

    head: HeadConfig = field(
        default_factory=lambda: HeadConfig(kind="question-answering")
    )
    num_starts: int = 512
    num_ends: int = 512
    nothing: ClassVar[ProposedSpan] = NO_SPAN

    @property
    def has_nulls(self) -> bool:
        return True

    def outputs(self, network: AlbertForTask, batch: Batch) -> list[Output]:
        """Return the candidates of each window, the best ones only; row 0 is the score
        of [CLS].
        """
        # (tokens, 2)
        logits = network(batch).float().cpu().numpy()
        is_question = (batch.segments == 0).cpu().numpy()  # (tokens,)
        boundaries = np.cumsum(batch.lengths)[:-1]
        found = []
        for scores, of_question in zip(
            np.split(logits, boundaries), np.split(is_question, boundaries), strict=True
        ):
            null = np.array([[0, 0, scores[0].sum(), 0]], dtype=np.float32)
            # the pieces of the context, without the last [SEP]
            first = int(of_question.sum())
            start, end = scores[first:-1].T
            starts = likeliest(start, self.num_starts)
            candidates = self.candidates(starts, start[starts], end[None])
            best = candidates[likeliest(candidates[:, 2:].sum(1), _BEST_OF_WINDOW)]
            best[:, :2] += first
            found.append(np.concatenate([null, best]))
        return found

    def nulls_of(self, answers: Sequence[SpanAnswer]) -> list[float]:
        scores = [answer.null_span_score for answer in answers]
        return [score for score in scores if score is not None]

    def _answer(
        self, best_first: Iterable[ProposedSpan], nulls: Sequence[float]
    ) -> SpanAnswer:
        answer = super()._answer(best_first, ())
        if not nulls:  # a context without a word
            return replace(answer, null_score=-NO_SPAN.score)
        null = min(nulls)
        best = answer.n_best[0].score
        return replace(answer, null_score=null - best, null_span_score=null)


def answers_with_spans(head: HeadConfig) -> SpanAnswering:
    """Return the kind of task of a head that answers with spans."""
    if head.kind == "question-answering" and not head.always_answers:
        return NullableSpanAnswering(head)
    kind: type[SpanAnswering] = head.task_kind
    return kind(head)


def likeliest(scores: NDArray[np.floating], number: int) -> NDArray[np.int64]:
    """Return the indices of the highest scores along the last axis, best first; ties
    keep their order.
    """
    return np.argsort(-scores, axis=-1, kind="stable")[..., :number]


# The official answers to submit
#
# The official evaluation (squad_utils.py L1693) tunes the threshold for "no answer" on
# the answers that it measures, does not answer the very question that set it (tuned
# with `>`, applied with `<`), and takes a null score above 1.0 as "no answer", tuned or
# not.


def tune_threshold(
    examples: Sequence[SpanExample], answers: Sequence[SpanAnswer]
) -> Sequence[SpanAnswer]:
    """Return answers as in the official files; a threshold that is not set is tuned if
    right answers are known.
    """
    wanted, found, nulls = answers_by_id(examples, answers)
    if not (wanted and nulls) or answers[0].threshold is not None:
        return answers
    threshold = threshold_measures(wanted, found, nulls)["best_f1_threshold"]
    return [replace(answer, threshold=threshold) for answer in answers]


def gold(examples: Sequence[SpanExample]) -> dict[str, list[str]]:
    """Return the right answers by question, where they are known."""
    return {
        each.id: [one.text for one in each.answers]
        for each in examples
        if each.answers is not None
    }


def answers_by_id(
    examples: Sequence[SpanExample], answers: Sequence[SpanAnswer]
) -> tuple[dict[str, list[str]], dict[str, str], dict[str, float]]:
    """Return by question: the right answers, where they are known; the best proposal;
    the null score.
    """
    by_id = {
        example.id: answer for example, answer in zip(examples, answers, strict=True)
    }
    found = {key: answer.n_best[0].text for key, answer in by_id.items()}
    return (
        gold(examples),
        found,
        {key: a.null_score for key, a in by_id.items() if a.null_score is not None},
    )


# ---- a user's own questions ----------------------------------------------------------


class SpanRows(RowReading[SpanExample, SpanAnswer]):
    """Questions that a span of a context answers or, as in SQuAD 2.0, none does;
    `labels` has a name for "no answer" if some have none.
    """

    what: ClassVar[str] = "spans"
    roles: ClassVar[tuple[Role, ...]] = (
        "question",
        "context",
        "answers",
        "start",
        "id",
    )
    learned: ClassVar[tuple[Role, ...]] = ("answers", "start")

    @classmethod
    def are_like(cls, guess: ColumnGuess) -> bool:
        if not guess.usual("question") or not guess.usual("context"):
            return False
        answers = guess.usual("answers")
        if not answers or guess.usual("start"):
            return bool(guess.usual("start"))
        cells = guess.cells(answers[0])
        if "answer_start" in str(cells):
            return True
        contexts = guess.cells(guess.usual("context")[0])
        return _stand_in(cells, contexts)

    @classmethod
    def guess(cls, guess: ColumnGuess) -> None:
        guess.find_usual(cls.roles)
        for role in ("question", "context"):
            if not guess.found[role]:
                guess.require_one(role, [])

    @classmethod
    def settle(cls, training: TrainingRows) -> tuple[Self, str]:
        counts = Counter[str]()
        reading = cls(training.columns, "question-answering")
        for row in training.rows():
            answers = _answers(row, training.columns)
            counts["without an answer"] += not answers
            context = text_of(training.columns.cell(row, "context")) or ""
            for text, start in answers:
                counts[locate_answer(context, text, start).doubt] += 1
        note = "questions; all are answered"
        num_empty = counts["without an answer"]
        if num_empty:
            reading = cls(training.columns, "question-answering", ("unanswerable",))
            note = f"questions; {num_empty:,} without an answer"
        if counts[SEVERAL_PLACES]:
            number = format_count(counts[SEVERAL_PLACES], "answer")
            note += (
                f"; warning: {number} without a start in several places of the context:"
                " the first is taken"
            )
        if counts[ELSEWHERE]:
            number = format_count(counts[ELSEWHERE], "answer")
            note += f"; {number} not where the start says: found by the text"
        return reading, note

    @cached_property
    def family(self) -> SpanAnswering:
        return ConditionalSpanAnswering() if self.labels else SpanAnswering()

    def example(
        self, id: str, row: Row, place: str, *, is_labelled: bool
    ) -> SpanExample:
        """Turn a row into an example; an empty list of answers means that there is
        none.
        """
        question, context = (
            self.text(row, role, place) for role in ("question", "context")
        )
        if not is_labelled:
            return SpanExample(id, question, context, None)
        located = list[tuple[str, float | None]]()
        for text, start in _answers(row, self.columns):
            located.append((text, locate_answer(context, text, start).start))
        answers = gold_answers(context, located, place)
        return SpanExample(id, question, context, answers)

    def lacks_label(self, _: Row) -> bool:
        """Return False: a question without an answer is labeled as unanswerable."""
        return False

    def group(self, example: SpanExample) -> tuple[str, str]:
        return example.context, str(example.is_impossible)


def _stand_in(answers: Sequence[object], contexts: Sequence[object]) -> bool:
    """Return whether more than two different answers stand in their contexts, and
    nearly all do.
    """
    pairs = zip(map(text_of, answers), map(text_of, contexts), strict=True)
    filled = [(text, context) for text, context in pairs if text and context]
    standing = [text for text, context in filled if text in context]
    return len(set(standing)) > 2 and len(standing) >= 0.9 * len(filled)


ELSEWHERE = "elsewhere"
SEVERAL_PLACES = "several places"


class Located(NamedTuple):
    """Where an answer of a user's own begins in its context, and what is doubtful about
    it: "" or one of the two names above. An answer that is not there keeps its start.
    """

    start: float | None
    doubt: str = ""


def locate_answer(context: str, text: str, start: float | None) -> Located:
    """Find an answer in its context: where its start says, or else by its text.

    Programs that count in units of UTF-16, in bytes or with other line ends give starts
    that are not ours; then the nearest place counts that is a whole word, if there is
    one. Without a start, the first such place counts.

    >>> locate_answer("The 40 rooms cost 4 euros.", "4", None)
    Located(start=18, doubt='')
    """
    is_there = start is not None and start >= 0 and context.startswith(text, int(start))
    if is_there or not text.strip():
        return Located(start)
    word = re.escape(text)
    places = [match.start() for match in re.finditer(rf"(?<!\w){word}(?!\w)", context)]
    if not places:  # a part of a word, or of a text without spaces
        places = [match.start() for match in re.finditer(word, context)]
    if not places:
        return Located(start)
    if start is None:
        doubt = SEVERAL_PLACES if len(places) > 1 else ""
        return Located(places[0], doubt)
    # the same place in the units of other programs: UTF-16 and UTF-8
    starts = [start]
    for place in places:
        before = context[:place]
        if start in (len(before.encode("utf-16-le")) // 2, len(before.encode())):
            starts = [place]
    return Located(min(places, key=lambda place: abs(place - starts[0])), ELSEWHERE)


def _answers(row: Row, columns: Columns) -> list[tuple[str, float | None]]:
    """Return the right answers in a row, each with the character where it starts, if
    the row has it.
    """
    cell = columns.cell(row, "answers")
    start = columns.cell(row, "start")
    if isinstance(cell, str) and cell.lstrip().startswith("{"):
        with suppress(ValueError, RecursionError):  # a text may begin with a brace, too
            cell = json.loads(cell)
    if isinstance(cell, Mapping):
        start = cell.get("answer_start")
        cell = cell.get("text")
    members = list_of(cell)
    texts = [cell] if members is None else members
    objects = [member for member in texts if isinstance(member, Mapping)]
    pairs = [(member.get("text"), member.get("answer_start")) for member in objects]
    if not pairs:
        starts = list_of(start) or [start]
        pairs = list(zip_longest(texts, starts[: len(texts)]))
    answers = list[tuple[str, float | None]]()
    for text_cell, start_cell in pairs:
        text = text_of(text_cell)
        if text is not None:
            answers.append((text, number_of(start_cell)))
    return answers


# ---- the records ---------------------------------------------------------------------

SpanAnswering.reading = SpanRows
TASK_HEADS.add(
    "question-answering",
    TaskHead(
        make=partial(LinearHead, has_dropout=False),
        num_outputs=2,
        purpose="finds answers in a text (SQuAD 1.1)",
        pipeline="question-answering",
        class_name="QuestionAnswering",
        is_in_transformers=True,
        layers={"dense": "qa_outputs"},
        variable="cls/squad/output_weights",
        # unlike official classifiers (squad_utils.py L708)
        logits=("start_logits", "end_logits"),
    ),
)
TASK_HEADS.add(
    "conditional-question-answering",
    TaskHead(
        make=ConditionalSpanHead,
        num_outputs=1,
        purpose="finds answers in a text, or says that there is none (SQuAD 2.0)",
        pipeline="question-answering",
        class_name="ConditionalQuestionAnswering",
        # transformers has no such head: these are the official variables
        # (squad_utils.py L1230), in every family
        layers={
            "start": "start_logits.dense",
            "end_hidden": "end_logits.dense_0",
            "end_norm": "end_logits.LayerNorm",
            "end": "end_logits.dense_1",
            "answer_hidden": "answer_class.dense_0",
            "answer": "answer_class.dense_1",
        },
        variable="start_logits/dense/kernel",
    ),
)
TASK_KINDS.add("question-answering", SpanAnswering)
# no name of users' own tasks: `SpanRows` chooses it if a question has no answer
TASK_KINDS.add("conditional-question-answering", ConditionalSpanAnswering)
