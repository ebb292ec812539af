"""Decode scores of starts and ends into answers from the context (squad_utils.py L870-1600).

A candidate is a row (start, end, start score, end score); start and end are positions in a window,
both inclusive.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from litebert.tasks.kinds.spans.windows import SpanFeature

Candidates = NDArray[np.float32]


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
NO_WINDOW = 1e6
"""The null score of a question without any window (squad_utils.py L1262)."""
EVEN_ODDS = 0.0
"""The null score, a logit, at which "no answer" has probability one half."""


@dataclass(frozen=True)
class SpanAnswer:
    """The answer to one question, empty if none is given, and the proposals, best first.

    `null_score` (conditional head) is the logit of "no answer"; at `threshold` or more, if one was
    set, no answer is given.
    """

    text: str
    n_best: tuple[ProposedSpan, ...]
    null_score: float | None = None
    threshold: float | None = None


def kept_text(answer: SpanAnswer, threshold: float | None) -> str:
    """Return the best proposal, or "" if the null score reaches the threshold (None: never)."""
    is_answered = threshold is None or answer.null_score is None or answer.null_score < threshold
    return answer.n_best[0].text if is_answered else ""


def likeliest(scores: NDArray[np.floating], number: int) -> NDArray[np.int64]:
    """Return the indices of the highest scores along the last axis, best first; ties keep order.

    >>> likeliest(np.array([1.0, 3.0, 3.0, 2.0]), 3).tolist()
    [1, 2, 3]
    """
    best: NDArray[np.int64] = np.argsort(-scores, axis=-1, kind="stable")[..., :number]
    return best


def candidates(
    starts: NDArray[np.int64],
    start_scores: NDArray[np.floating],
    ends: NDArray[np.int64],
    end_scores: NDArray[np.floating],
    *,
    max_answer_length: int,
) -> Candidates:
    """Pair starts (n,) with their ends (n or 1, m), in order; spans that are too long are omitted.

    >>> starts, ends = np.array([4, 2]), np.array([[3, 9]])
    >>> candidates(starts, np.zeros(2), ends, np.zeros((1, 2)), max_answer_length=6)[:, :2].tolist()
    [[4.0, 9.0], [2.0, 3.0]]
    """
    pairs = np.broadcast_arrays(starts[:, None], ends, start_scores[:, None], end_scores)
    rows = np.stack(pairs, axis=-1).reshape(-1, 4).astype(np.float32)
    length = rows[:, 1] - rows[:, 0] + 1
    chosen: Candidates = rows[(length >= 1) & (length <= max_answer_length)]
    return chosen


def proposals(
    context: str, windows: Iterable[tuple[SpanFeature, Candidates]], *, n_best: int, nothing: ProposedSpan
) -> tuple[ProposedSpan, ...]:
    """Return the best spans of all windows on a context, or `nothing`.

    A span counts only in the window that has the most context around its start.
    """
    tables = [np.zeros((0, 4)), *(_in_context(*pair) for pair in windows)]
    rows = np.concatenate(tables)
    best_first = rows[np.argsort(-rows[:, 2:].sum(axis=1), kind="stable")]
    return _shared(_distinct(_span(context, row) for row in best_first), n_best, nothing)


def merge_spans(answers: Sequence[SpanAnswer], *, n_best: int, nothing: ProposedSpan) -> tuple[ProposedSpan, ...]:
    """Return the best proposals of several parts of a context, or `nothing`."""
    spans = [span for answer in answers for span in answer.n_best if not _is(span, nothing)]
    return _shared(_distinct(sorted(spans, key=lambda span: -span.score)), n_best, nothing)


def average_spans(
    answers: Sequence[SpanAnswer], *, n_best: int, nothing: ProposedSpan
) -> tuple[tuple[ProposedSpan, ...], float | None]:
    """Return proposals and null score of an ensemble (paper 4.9; squad_utils.py L1330).

    The scores of a span are averaged over the models that propose it, null scores over all.
    """
    proposed: dict[tuple[int, int], list[ProposedSpan]] = {}
    for answer in answers:
        for span in answer.n_best:
            if not _is(span, nothing):
                proposed.setdefault((span.start, span.stop), []).append(span)
    spans = [
        replace(
            same[0],
            start_score=sum(span.start_score for span in same) / len(same),
            end_score=sum(span.end_score for span in same) / len(same),
        )
        for same in proposed.values()
    ]
    nulls = [answer.null_score for answer in answers if answer.null_score is not None]
    best_first = sorted(spans, key=lambda span: -span.score)
    kept = _shared(_distinct(best_first), n_best, nothing)
    return kept, sum(nulls) / len(nulls) if nulls else None


def _is(span: ProposedSpan, nothing: ProposedSpan) -> bool:
    return replace(span, probability=1.0) == nothing


def _in_context(window: SpanFeature, rows: Candidates) -> NDArray[np.float64]:
    """Turn positions in a window into characters (start, stop) of the context."""
    places = rows[:, :2].astype(np.int64) - window.first
    # A start in the question or at [CLS] is not a span of the context.
    is_inside = (places[:, 0] >= 0) & (places[:, 1] < len(window.offsets))
    places, scores = places[is_inside], rows[is_inside, 2:]
    counts = window.has_most_context[places[:, 0]]
    first, last = places[counts].T
    characters = np.stack([window.offsets[first, 0], window.offsets[last, 1]], axis=1)
    return np.concatenate([characters, scores[counts]], axis=1).astype(np.float64)


def _span(context: str, row: NDArray[np.float64]) -> ProposedSpan:
    start, stop = int(row[0]), int(row[1])
    text = context[start:stop].strip()
    start += context[start:stop].find(text)
    return ProposedSpan(text, start, start + len(text), float(row[2]), float(row[3]))


def _distinct(best_first: Iterable[ProposedSpan]) -> Iterator[ProposedSpan]:
    """Yield the first span of each text."""
    seen: set[str] = set()
    for span in best_first:
        if span.text not in seen:
            seen.add(span.text)
            yield span


def _shared(best_first: Iterable[ProposedSpan], n_best: int, nothing: ProposedSpan) -> tuple[ProposedSpan, ...]:
    """Keep the `n_best` spans; their probabilities are the softmax of their scores."""
    kept = list(islice(best_first, n_best)) or [nothing]
    powers = [math.exp(span.score - kept[0].score) for span in kept]
    return tuple(replace(span, probability=power / sum(powers)) for span, power in zip(kept, powers, strict=True))
