"""One ranking of the spans that answer a question in several contexts.

Within a context, probabilities are those of the kind of task. Here each context gets a
share, which depends on the kind of head, and a span's probability is its share of that.
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from litebert.answers import Results, SpanFound
from litebert.tasks.kinds.spans import (
    ConditionalSpanAnswering,
    NullableSpanAnswering,
    SpanAnswer,
    SpanAnswering,
)


def rank_spans(
    family: SpanAnswering, of_contexts: Sequence[SpanAnswer], top: int
) -> Results[SpanFound]:
    """Return the `top` likeliest spans of all contexts of a question, and an empty one
    for no answer if the model can give none.
    """
    shares, no_answer = _shares(family, of_contexts)
    spans = list[SpanFound]()
    for number, (answer, share) in enumerate(zip(of_contexts, shares, strict=True)):
        for span in answer.n_best:
            if span.stop <= span.start:
                continue
            probability = share * span.probability
            spans.append(
                SpanFound(
                    span.text, span.start, span.stop, probability, number, no_answer
                )
            )
    if no_answer is not None:
        spans.append(SpanFound("", 0, 0, no_answer, 0, no_answer))
    return Results(sorted(spans, key=lambda span: -span.probability)[:top])


def _shares(
    family: SpanAnswering, of_contexts: Sequence[SpanAnswer]
) -> tuple[list[float], float | None]:
    """Return the share of each context, and the probability that none has an answer;
    None if the model does not estimate it.
    """
    if isinstance(family, ConditionalSpanAnswering):
        return _shares_of_independent(of_contexts)
    if isinstance(family, NullableSpanAnswering):
        return _shares_with_null(family, of_contexts)
    # the softmax of the scores of the best spans
    scores = []
    for answer in of_contexts:
        of_spans = [span.score for span in answer.n_best if span.stop > span.start]
        scores.append(max(of_spans, default=-math.inf))
    return _float64(scores).softmax(0).tolist(), None


def _shares_of_independent(
    of_contexts: Sequence[SpanAnswer],
) -> tuple[list[float], float]:
    """Take contexts as independent: there is no answer if there is none in each."""
    nulls = [answer.null_score or 0.0 for answer in of_contexts]
    has_none = _float64(nulls).sigmoid()  # (contexts,)
    no_answer = float(has_none.prod())
    shares = 1 - has_none
    total = float(shares.sum()) or 1.0
    return (shares * ((1 - no_answer) / total)).tolist(), no_answer


def _shares_with_null(
    family: NullableSpanAnswering, of_contexts: Sequence[SpanAnswer]
) -> tuple[list[float], float]:
    """Return the softmax of the scores of all spans and of [CLS], which is the lowest
    of all windows, as within one context.
    """
    totals = []  # the logarithms of the sums over the spans of a context
    for answer in of_contexts:
        best = answer.n_best[0]
        totals.append(best.score - math.log(best.probability))
    null = min(family.nulls_of(of_contexts), default=math.inf)
    if null == math.inf:  # no context has a word
        null = 0.0
    no_answer, *shares = _float64([null, *totals]).softmax(0).tolist()
    return shares, no_answer


def _float64(values: Sequence[float]) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)
