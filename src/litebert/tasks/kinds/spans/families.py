"""The kinds of task that answer with spans of a text: SQuAD 1.1, SQuAD 2.0 with the
official head, and SQuAD 2.0 with a linear head.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from litebert.config import HeadConfig
from litebert.metrics import (
    score_answer,
    squad1_measures,
    squad2_measures,
    threshold_measures,
)
from litebert.nn import AlbertForTask, Batch
from litebert.runs import AnswerRow
from litebert.tasks.kinds.family import NEVER, Family, Feature, Output
from litebert.tasks.kinds.spans.answers import (
    EMPTY,
    NO_SPAN,
    Candidates,
    ProposedSpan,
    SpanAnswer,
    answers_by_id,
    likeliest,
    spans_of,
    tune_threshold,
)
from litebert.tasks.kinds.spans.head import score_spans
from litebert.tasks.kinds.spans.windows import SpanExample, SpanFeature, cut_windows
from litebert.tokenizer import Tokenizer

_BEST_OF_WINDOW = 200  # spans kept of all spans of a window


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
    key_measure: ClassVar[str] = "f1"
    # what is proposed where no span is possible
    nothing: ClassVar[ProposedSpan] = EMPTY
    # A null score says how likely it is that a window has no answer; here, each has one.
    # This is the null score of a question without any window.
    null_without_windows: ClassVar[float | None] = None

    # ---- learning ----------------------------------------------------------------

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
        """Yield the features one by one."""
        return cut_windows(
            examples,
            tokenizer,
            max_length=max_length,
            max_query_length=self.max_query_length,
            doc_stride=self.doc_stride,
            training=training,
        )

    def losses(self, network: AlbertForTask, batch: Batch, targets: Tensor) -> Tensor:
        """Return the mean of both cross entropies, of start and of end, over all
        positions.
        """
        start, end, _ = targets.view(-1, 3).T  # (windows,) each
        width = max(batch.lengths)
        logits = batch.to_padded(network(batch).float(), width=width)
        tokens = torch.ones_like(batch.ids, dtype=torch.bool)
        is_token = batch.to_padded(tokens, width=width)  # (windows, width)
        # (windows, width, 2): padding is never a start or an end
        scores = logits.masked_fill(~is_token[..., None], NEVER)
        start_loss = F.cross_entropy(scores[..., 0], start, reduction="none")
        end_loss = F.cross_entropy(scores[..., 1], end, reduction="none")
        return (start_loss + end_loss) / 2

    # ---- answering ---------------------------------------------------------------

    def outputs(self, network: AlbertForTask, batch: Batch) -> list[Output]:
        """Return the candidates of each window."""
        logits = network(batch).float().cpu().numpy()  # (tokens, 2)
        outputs = list[Output]()
        boundaries = np.cumsum(batch.lengths)[:-1]
        for window in np.split(logits, boundaries):
            start, end = window.T  # (width,) each
            starts = likeliest(start, self.num_starts)
            outputs.append(self.candidates(starts, start[starts], end[None]))
        return outputs

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
        is_possible = (length >= 1) & (length <= self.max_answer_length)
        possible: Candidates = rows[is_possible]
        return possible

    def answer(
        self,
        example: SpanExample,
        windows: Sequence[Feature],
        outputs: Sequence[Output],
        /,
    ) -> SpanAnswer:
        spans = spans_of(example.context, zip(windows, outputs, strict=True))
        nulls = list[float]()  # of the windows
        if self.has_nulls:
            nulls = [float(output[0, 2]) for output in outputs]
        return self._answer(spans, nulls)

    @property
    def has_nulls(self) -> bool:
        """Whether row 0 of the outputs of each window is a null score."""
        return self.null_without_windows is not None

    def nulls_of(self, answers: Sequence[SpanAnswer]) -> list[float]:
        """Return the null scores of answers, as they are in the outputs."""
        scores = [answer.null_score for answer in answers]
        return [score for score in scores if score is not None]

    def _answer(
        self, best_first: Iterable[ProposedSpan], nulls: Sequence[float]
    ) -> SpanAnswer:
        """Keep the first span of each text and the lowest null score; probabilities are
        the softmax of scores.
        """
        kept = dict[str, ProposedSpan]()
        for span in best_first:
            if len(kept) == self.n_best:
                break
            kept.setdefault(span.text, span)
        spans = list(kept.values()) or [self.nothing]
        powers = [math.exp(span.score - spans[0].score) for span in spans]
        total = sum(powers)
        n_best = list[ProposedSpan]()
        for span, power in zip(spans, powers, strict=True):
            n_best.append(replace(span, probability=power / total))
        null_score = min(nulls, default=self.null_without_windows)
        return SpanAnswer(tuple(n_best), null_score, self.null_threshold)

    def merge(self, answers: Sequence[SpanAnswer]) -> SpanAnswer:
        """Return the answer to a question, given the answers from parts of its
        windows.
        """
        spans = sorted(self._proposals(answers), key=lambda span: -span.score)
        return self._answer(spans, self.nulls_of(answers))

    def averaged(self, answers: Sequence[SpanAnswer], /) -> SpanAnswer:
        """Return the answer of an ensemble (paper 4.9; squad_utils.py L1330).

        The scores of a span are averaged over the models that propose it, null scores
        over all.
        """
        proposals = dict[tuple[int, int], list[ProposedSpan]]()
        for span in self._proposals(answers):
            proposals.setdefault((span.start, span.stop), []).append(span)
        spans = sorted(map(_mean_of, proposals.values()), key=lambda span: -span.score)
        nulls = self.nulls_of(answers)
        mean_null = [sum(nulls) / len(nulls)] if nulls else []
        return self._answer(spans, mean_null)

    def _proposals(self, answers: Sequence[SpanAnswer]) -> Iterator[ProposedSpan]:
        for answer in answers:
            for span in answer.n_best:
                if span != self.nothing:
                    yield span

    # ---- measuring ---------------------------------------------------------------

    def measures(
        self, examples: Sequence[SpanExample], answers: Sequence[SpanAnswer], /
    ) -> dict[str, float]:
        """Return `exact` and `f1` in percent, as evaluate-v1.1.py does."""
        by_id = answers_by_id(examples, answers)
        measured = squad1_measures(by_id.gold, by_id.texts)
        return {name: measured[name] for name in ("exact", "f1")}

    def constant(
        self, _: Sequence[SpanExample], examples: Sequence[SpanExample], /
    ) -> list[SpanAnswer]:
        """Answer nothing: no span is more common than another."""
        nothing = SpanAnswer((NO_SPAN,), self.null_without_windows, self.null_threshold)
        return [nothing] * len(examples)

    def texts(self, example: SpanExample, /) -> tuple[str, ...]:
        return (example.context, example.question)

    def labels(self, example: SpanExample, /) -> tuple[str, ...]:
        if example.answers is None:
            return ()
        return ("answered",) if example.answers else ("unanswerable",)

    # ---- showing -----------------------------------------------------------------

    def shown(self, example: SpanExample, /) -> str:
        return example.question

    def expected(self, example: SpanExample, /) -> str | None:
        if example.answers is None:
            return None
        return " | ".join(dict.fromkeys(answer.text for answer in example.answers))

    def rows(
        self, examples: Sequence[SpanExample], answers: Sequence[SpanAnswer], /
    ) -> list[AnswerRow]:
        return super().rows(examples, tune_threshold(examples, answers))

    def in_words(
        self, example: SpanExample, answer: SpanAnswer, /
    ) -> tuple[str, float | None, float | None]:
        """Return the answer, the probability of it or of "no answer", and its F1."""
        texts = [gold.text for gold in example.answers or ()] or [""]
        f1 = score_answer(texts, answer.text).f1
        return answer.text, answer.confidence, f1


def _mean_of(same: Sequence[ProposedSpan]) -> ProposedSpan:
    """Return the same span, as several models propose it, with the means of its
    scores.
    """
    scores = [(span.start_score, span.end_score) for span in same]
    start_score, end_score = np.mean(scores, axis=0).tolist()
    return replace(same[0], start_score=start_score, end_score=end_score)


# ---- SQuAD 2.0 -----------------------------------------------------------------------


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
    null_without_windows: ClassVar[float | None] = 1e6  # squad_utils.py L1262

    def losses(self, network: AlbertForTask, batch: Batch, targets: Tensor) -> Tensor:
        """Return half the sum of three cross entropies: start, end given the right
        start, "no answer".
        """
        start, end, is_impossible = targets.view(-1, 3).T  # (windows,) each
        spans = score_spans(network, batch, start[:, None])
        # log-probabilities, (windows, 1)
        start_likelihood = spans.start.gather(1, start[:, None])
        end_likelihood = spans.end[:, 0].gather(1, end[:, None])
        likelihood = (start_likelihood + end_likelihood)[:, 0]
        no_answer = F.binary_cross_entropy_with_logits(
            spans.no_answer, is_impossible.to(spans.no_answer), reduction="none"
        )
        return (no_answer - likelihood) / 2

    def outputs(self, network: AlbertForTask, batch: Batch) -> list[Output]:
        """Return the candidates of each window; row 0, a start at [CLS] and so not a
        candidate, is the null score.
        """
        spans = score_spans(network, batch, self.num_starts)
        start_scores = spans.start.gather(1, spans.chosen)
        parts = (spans.chosen, start_scores, spans.end, spans.no_answer)
        on_host = [part.cpu().numpy() for part in parts]
        outputs = list[Output]()
        for starts, of_starts, of_ends, null_score in zip(*on_host, strict=True):
            candidates = self.candidates(starts, of_starts, of_ends)
            outputs.append(_with_null(null_score, candidates))
        return outputs

    def measures(
        self, examples: Sequence[SpanExample], answers: Sequence[SpanAnswer], /
    ) -> dict[str, float]:
        """Return the measures of evaluate-v2.0.py, in percent, and the threshold
        used.
        """
        by_id = answers_by_id(examples, answers)
        tuned = threshold_measures(by_id.gold, by_id.texts, by_id.nulls)
        threshold = self.null_threshold
        nulls: dict[str, float] | None = None
        if threshold is None:
            threshold = tuned["best_f1_threshold"]
            # the official script measures its curves only where it tunes the threshold
            nulls = by_id.nulls
        texts = dict[str, str]()
        for key, text in by_id.texts.items():
            is_given = by_id.nulls[key] < threshold
            texts[key] = text if is_given else ""
        measured = squad2_measures(by_id.gold, texts, nulls)
        measures = {**measured, **tuned, "threshold": threshold}
        return {name: measures[name] for name in measures if not name.endswith("total")}


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
        logits = network(batch).float().cpu().numpy()  # (tokens, 2)
        is_question = (batch.segments == 0).cpu().numpy()  # (tokens,)
        boundaries = np.cumsum(batch.lengths)[:-1]
        windows = np.split(logits, boundaries)
        questions = np.split(is_question, boundaries)
        outputs = list[Output]()
        for scores, of_question in zip(windows, questions, strict=True):
            # the pieces of the context, without the last [SEP]
            first = int(of_question.sum())
            start, end = scores[first:-1].T
            starts = likeliest(start, self.num_starts)
            candidates = self.candidates(starts, start[starts], end[None])
            scores_of_spans = candidates[:, 2:].sum(1)  # (candidates,)
            best = candidates[likeliest(scores_of_spans, _BEST_OF_WINDOW)]
            best[:, :2] += first
            outputs.append(_with_null(scores[0].sum(), best))
        return outputs

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


def _with_null(null_score: float, candidates: Candidates) -> Candidates:
    """Put the null score of a window before its candidates, as the score of a start at
    [CLS].
    """
    null = np.array([[0, 0, null_score, 0]], dtype=np.float32)
    return np.concatenate([null, candidates])


def answers_with_spans(head: HeadConfig) -> SpanAnswering:
    """Return the kind of task of a head that answers with spans."""
    if head.kind == "question-answering" and not head.always_answers:
        return NullableSpanAnswering(head)
    family: SpanAnswering = head.family()
    return family
