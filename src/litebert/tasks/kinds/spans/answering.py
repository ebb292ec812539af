"""SQuAD 1.1: every question is answered by a span of its context, with a linear head."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from litebert.config import HeadConfig
from litebert.metrics import best, squad1_measures, word_f1
from litebert.nn import AlbertForTask, Batch
from litebert.tasks.kinds.family import NEVER, AnswerRow, CheckItem, Feature, Output
from litebert.tasks.kinds.spans.decode import (
    EMPTY,
    NO_SPAN,
    SpanAnswer,
    average_spans,
    candidates,
    likeliest,
    merge_spans,
    proposals,
)
from litebert.tasks.kinds.spans.example import SpanExample
from litebert.tasks.kinds.spans.threshold import answered, given_texts, gold, labelled
from litebert.tasks.kinds.spans.windows import SpanFeature, span_windows
from litebert.tokenizer import Tokenizer

LINEAR = HeadConfig(kind="question-answering")
Windows = Sequence[tuple[SpanFeature, Output]]


@dataclass(frozen=True)
class SpanAnswering:
    """The family of SQuAD 1.1 (squad_utils.py L708-1026); see tasks.kinds.family.Family.

    Lengths are in pieces; in each window the `num_starts` likeliest starts are paired with the
    `num_ends` likeliest ends.
    """

    head: HeadConfig = LINEAR
    max_query_length: int = 64
    doc_stride: int = 128
    max_answer_length: int = 30
    n_best: int = 20
    num_starts: int = 20
    num_ends: int = 20

    def features(
        self, examples: Sequence[SpanExample], tokenizer: Tokenizer, *, max_length: int, training: bool
    ) -> list[Feature]:
        """Cut each example into windows; see windows.py."""
        return list(self.windows(examples, tokenizer, max_length=max_length, training=training))

    def windows(
        self, examples: Sequence[SpanExample], tokenizer: Tokenizer, *, max_length: int, training: bool = False
    ) -> Iterator[SpanFeature]:
        """Yield the features one by one, so that those of a long context need not fit in memory."""
        return span_windows(
            examples,
            tokenizer,
            max_length=max_length,
            max_query_length=self.max_query_length,
            doc_stride=self.doc_stride,
            training=training,
        )

    def losses(self, network: AlbertForTask, batch: Batch, targets: Tensor) -> Tensor:
        """Return the mean of both cross entropies, of start and of end, over all positions."""
        start, end, _ = targets.view(-1, 3).T
        logits = padded(batch, network(batch).float(), fill=NEVER)  # (windows, width, 2)
        of_start = F.cross_entropy(logits[..., 0], start, reduction="none")
        of_end = F.cross_entropy(logits[..., 1], end, reduction="none")
        return (of_start + of_end) / 2

    def outputs(self, network: AlbertForTask, batch: Batch) -> list[Output]:
        """Return the likeliest candidates of each window."""
        logits = network(batch).float().cpu().numpy()
        places = np.cumsum(batch.lengths)[:-1]
        return [self._candidates(*window.T) for window in np.split(logits, places)]

    def answers(
        self, examples: Sequence[SpanExample], features: Sequence[Feature], outputs: Sequence[Output], /
    ) -> list[SpanAnswer]:
        """Merge the windows of each question."""
        windows: list[list[tuple[SpanFeature, Output]]] = [[] for _ in examples]
        for feature, output in zip(features, outputs, strict=True):
            assert isinstance(feature, SpanFeature), "windows come from features()"
            windows[feature.example].append((feature, output))
        return [self._answer(*pair) for pair in zip(examples, windows, strict=True)]

    def measures(self, examples: Sequence[SpanExample], answers: Sequence[SpanAnswer], /) -> dict[str, float]:
        """Return `exact` and `f1` in percent, as evaluate-v1.1.py does."""
        questions, given = labelled(examples, answers)
        return without_totals(squad1_measures(gold(questions), answered(questions, given, None)))

    def constant(self, _: Sequence[SpanExample], examples: Sequence[SpanExample], /) -> list[SpanAnswer]:
        """Answer nothing: no span is commoner than another."""
        return [SpanAnswer("", (NO_SPAN,)) for _ in examples]

    def item(self, example: SpanExample, /) -> CheckItem:
        """Return what a data check examines."""
        texts = (example.question, example.context)
        if example.answers is None:
            return CheckItem(texts, example.context)
        labels = ("answered" if example.answers else "unanswerable",)
        answer = " | ".join(one.text for one in example.answers)
        return CheckItem(texts, example.context, labels=labels, answer=answer)

    def rows(self, examples: Sequence[SpanExample], answers: Sequence[SpanAnswer], /) -> list[AnswerRow]:
        """Return each question with right and given answers; `score` is F1."""
        given = given_texts(examples, answers)
        return [_row(*each) for each in zip(examples, answers, given, strict=True)]

    def averaged(self, answers: Sequence[Sequence[SpanAnswer]], /) -> list[SpanAnswer]:
        """Return the answers of an ensemble: scores are averaged, span by span."""
        return [self._averaged(of_one) for of_one in zip(*answers, strict=True)]

    def merged(self, answers: Sequence[SpanAnswer]) -> SpanAnswer:
        """Return the answer to a question, given the answers from parts of its windows."""
        found = merge_spans(answers, n_best=self.n_best, nothing=EMPTY)
        return SpanAnswer(found[0].text, found)

    def _candidates(self, start: NDArray[np.float32], end: NDArray[np.float32]) -> Output:
        starts, ends = likeliest(start, self.num_starts), likeliest(end, self.num_ends)
        return candidates(starts, start[starts], ends[None], end[ends][None], max_answer_length=self.max_answer_length)

    def _answer(self, example: SpanExample, windows: Windows) -> SpanAnswer:
        found = proposals(example.context, windows, n_best=self.n_best, nothing=EMPTY)
        return SpanAnswer(found[0].text, found)

    def _averaged(self, answers: Sequence[SpanAnswer]) -> SpanAnswer:
        found, _ = average_spans(answers, n_best=self.n_best, nothing=EMPTY)
        return SpanAnswer(found[0].text, found)


def without_totals(measures: dict[str, float]) -> dict[str, float]:
    """Return measures without the numbers of questions."""
    return {name: value for name, value in measures.items() if not name.endswith("total")}


def padded(batch: Batch, values: Tensor, *, fill: float) -> Tensor:
    """Lay per-token values out as a rectangle with `fill` where there is no token."""
    width = max(batch.lengths)
    is_token = batch.to_padded(torch.ones_like(batch.ids, dtype=torch.bool), width=width)
    rows = batch.to_padded(values, width=width)
    return rows.masked_fill(~is_token.view(*is_token.shape, *[1] * (rows.ndim - 2)), fill)


def _row(example: SpanExample, answer: SpanAnswer, text: str) -> AnswerRow:
    wanted = None if example.answers is None else [one.text for one in example.answers] or [""]
    distinct = None if wanted is None else " | ".join(dict.fromkeys(wanted))
    return AnswerRow(
        id=example.id,
        text=example.question,
        expected=distinct,
        answer=text,
        confidence=_confidence(answer, is_answered=bool(text)),
        score=None if wanted is None else best(word_f1, wanted, text),
    )


def _confidence(answer: SpanAnswer, *, is_answered: bool) -> float:
    """Return the probability of the answer, or of "no answer"."""
    if answer.null_score is None:
        return answer.n_best[0].probability
    answerable = 1 / (1 + math.exp(min(answer.null_score, 700.0)))
    return answer.n_best[0].probability * answerable if is_answered else 1 - answerable
