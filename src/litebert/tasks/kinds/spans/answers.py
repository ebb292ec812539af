"""What an answer to a question on a text is (official squad_utils.py L870-1733)."""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from litebert.metrics import threshold_measures
from litebert.tasks.kinds.family import Feature
from litebert.tasks.kinds.spans.windows import SpanExample, SpanFeature

Candidates: TypeAlias = NDArray[np.float32]
"""Rows of (start, end, start score, end score); start and end are positions in a
window, both inclusive.
"""


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
        if self._is_refused:
            return ""
        return self.n_best[0].text

    @property
    def confidence(self) -> float:
        """The probability of the answer, or of "no answer" if none is given."""
        probability = self.n_best[0].probability
        if self.null_score is None:
            return probability
        answerable = 1 / (1 + math.exp(min(self.null_score, 700.0)))
        if not self.text:
            return 1 - answerable
        return probability * answerable

    @property
    def _is_refused(self) -> bool:
        threshold = self.threshold or 0.0
        if self.null_score is None or self.null_score < threshold:
            return False
        # between equal scores of a linear head, the span is taken
        is_tie = self.null_span_score is not None and self.null_score == threshold
        return not is_tie


# ---- from the candidates of windows to spans -----------------------------------------


def likeliest(scores: NDArray[np.floating], number: int) -> NDArray[np.int64]:
    """Return the indices of the highest scores along the last axis, best first; ties
    keep their order.
    """
    return np.argsort(-scores, axis=-1, kind="stable")[..., :number]


def spans_of(
    context: str, windows: Iterable[tuple[Feature, Candidates]]
) -> Iterator[ProposedSpan]:
    """Yield the candidates of all windows on a context, best first.

    A candidate counts only in the window that has the most context around its start.
    """
    tables = [np.zeros((0, 4))]
    for window, candidates in windows:
        assert isinstance(window, SpanFeature)
        tables.append(_in_characters(window, candidates))
    spans = np.concatenate(tables)  # (candidates, 4)
    best_first = np.argsort(-spans[:, 2:].sum(axis=1), kind="stable")
    for start, stop, start_score, end_score in spans[best_first]:
        # pieces begin with the space before a word
        cut = context[int(start) : int(stop)]
        text = cut.strip()
        begin = int(start) + cut.find(text)
        yield ProposedSpan(
            text, begin, begin + len(text), float(start_score), float(end_score)
        )


def _in_characters(window: SpanFeature, candidates: Candidates) -> NDArray[np.float64]:
    """Return the candidates that count in a window, with characters of the context
    instead of positions.
    """
    places = candidates[:, :2].astype(np.int64) - window.first  # pieces of the context
    # A span that starts in the question or at [CLS] is not in the context.
    starts_inside = places[:, 0] >= 0
    ends_inside = places[:, 1] < len(window.offsets)
    is_inside = starts_inside & ends_inside
    places = places[is_inside]
    scores = candidates[is_inside, 2:]
    counts = window.has_most_context[places[:, 0]]
    first, last = places[counts].T
    starts = window.offsets[first, 0]
    stops = window.offsets[last, 1]
    characters = np.stack([starts, stops], axis=1)
    return np.concatenate([characters, scores[counts]], axis=1).astype(np.float64)


# ---- the official answers to submit --------------------------------------------------
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
    by_id = answers_by_id(examples, answers)
    is_set = bool(answers) and answers[0].threshold is not None
    if is_set or not by_id.gold or not by_id.nulls:
        return answers
    measures = threshold_measures(by_id.gold, by_id.texts, by_id.nulls)
    threshold = measures["best_f1_threshold"]
    return [replace(answer, threshold=threshold) for answer in answers]


@dataclass(frozen=True)
class AnswersById:
    """Answers by the id of their question, as the official measures read them."""

    gold: dict[str, list[str]]  # the right answers, where they are known
    texts: dict[str, str]  # the best proposals
    nulls: dict[str, float]  # the null scores, where there are any


def answers_by_id(
    examples: Sequence[SpanExample], answers: Sequence[SpanAnswer]
) -> AnswersById:
    """Return what is known of each question."""
    texts = dict[str, str]()
    nulls = dict[str, float]()
    for example, answer in zip(examples, answers, strict=True):
        texts[example.id] = answer.n_best[0].text
        if answer.null_score is not None:
            nulls[example.id] = answer.null_score
    return AnswersById(gold(examples), texts, nulls)


def gold(examples: Sequence[SpanExample]) -> dict[str, list[str]]:
    """Return the right answers by question, where they are known."""
    answers = dict[str, list[str]]()
    for example in examples:
        if example.answers is not None:
            answers[example.id] = [answer.text for answer in example.answers]
    return answers
