"""SQuAD 2.0: an end depends on its start, and a question may have no answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from litebert.config import HeadConfig
from litebert.nn import AlbertForTask, Batch
from litebert.tasks.kinds.family import Output
from litebert.tasks.kinds.spans.answering import SpanAnswering, Windows, padded, without_totals
from litebert.tasks.kinds.spans.decode import (
    EVEN_ODDS,
    NO_SPAN,
    NO_WINDOW,
    ProposedSpan,
    SpanAnswer,
    average_spans,
    candidates,
    kept_text,
    likeliest,
    merge_spans,
    proposals,
)
from litebert.tasks.kinds.spans.example import SpanExample
from litebert.tasks.kinds.spans.head import score_spans
from litebert.tasks.kinds.spans.threshold import labelled, squad2_scores

CONDITIONAL = HeadConfig(kind="conditional-question-answering")


@dataclass(frozen=True)
class ConditionalSpanAnswering(SpanAnswering):
    """The family of SQuAD 2.0 (squad_utils.py L1230-1733); see tasks.kinds.family.Family.

    At a null score of `null_threshold` or more, no answer is given. With None, measures tune it on
    the answers that they measure, as the official evaluation does; otherwise even odds decide.
    """

    head: HeadConfig = CONDITIONAL
    num_starts: int = 5
    num_ends: int = 5
    null_threshold: float | None = None

    def losses(self, network: AlbertForTask, batch: Batch, targets: Tensor) -> Tensor:
        """Return half of three cross entropies: start, end after the right start, "no answer"."""
        start, end, is_impossible = targets.view(-1, 3).T
        spans = score_spans(network, batch, _allowed(batch), start[:, None])
        likelihood = spans.start.gather(1, start[:, None]) + spans.end[:, 0].gather(1, end[:, None])
        no_answer = F.binary_cross_entropy_with_logits(
            spans.no_answer, is_impossible.to(spans.no_answer), reduction="none"
        )
        return (no_answer - likelihood[:, 0]) / 2

    def outputs(self, network: AlbertForTask, batch: Batch) -> list[Output]:
        """Return the likeliest candidates of each window; row 0 is the null score."""
        spans = score_spans(network, batch, _allowed(batch), self.num_starts)
        start_scores = spans.start.gather(1, spans.chosen)
        on_host = (part.cpu().numpy() for part in (spans.chosen, start_scores, spans.end, spans.no_answer))
        return [self._conditional(*window) for window in zip(*on_host, strict=True)]

    def measures(self, examples: Sequence[SpanExample], answers: Sequence[SpanAnswer], /) -> dict[str, float]:
        """Return the measures of evaluate-v2.0.py, in percent, and the threshold used."""
        questions, given = labelled(examples, answers)
        return without_totals(squad2_scores(questions, given, threshold=self.null_threshold))

    def constant(self, _: Sequence[SpanExample], examples: Sequence[SpanExample], /) -> list[SpanAnswer]:
        """Give no answer to any question."""
        return [SpanAnswer("", (NO_SPAN,), NO_WINDOW, self.null_threshold) for _ in examples]

    def merged(self, answers: Sequence[SpanAnswer]) -> SpanAnswer:
        """Return the answer to a question, given the answers from parts of its windows."""
        nulls = [answer.null_score for answer in answers if answer.null_score is not None]
        found = merge_spans(answers, n_best=self.n_best, nothing=NO_SPAN)
        return self._decided(found, min(nulls, default=NO_WINDOW))

    def _conditional(
        self,
        starts: NDArray[np.int64],
        start_scores: NDArray[np.float32],
        end_scores: NDArray[np.float32],
        null_score: np.float32,
    ) -> Output:
        ends = likeliest(end_scores, self.num_ends)  # (starts, ends)
        rows = candidates(
            starts,
            start_scores,
            ends,
            np.take_along_axis(end_scores, ends, axis=-1),
            max_answer_length=self.max_answer_length,
        )
        return np.concatenate([np.array([[0, 0, null_score, 0]], dtype=np.float32), rows])

    def _answer(self, example: SpanExample, windows: Windows) -> SpanAnswer:
        null_score = min((float(output[0, 2]) for _, output in windows), default=NO_WINDOW)
        spans = [(window, output[1:]) for window, output in windows]
        found = proposals(example.context, spans, n_best=self.n_best, nothing=NO_SPAN)
        return self._decided(found, null_score)

    def _averaged(self, answers: Sequence[SpanAnswer]) -> SpanAnswer:
        found, null_score = average_spans(answers, n_best=self.n_best, nothing=NO_SPAN)
        return self._decided(found, null_score)

    def _decided(self, found: tuple[ProposedSpan, ...], null_score: float | None) -> SpanAnswer:
        threshold = EVEN_ODDS if self.null_threshold is None else self.null_threshold
        answer = SpanAnswer(found[0].text, found, null_score, self.null_threshold)
        return replace(answer, text=kept_text(answer, threshold))


def _allowed(batch: Batch) -> Tensor:
    """Mark where answers may start and end: in the context, and at [CLS] for "no answer"."""
    is_context = (batch.segments == 1).index_fill(0, batch.offsets[1:] - 1, False)
    return padded(batch, is_context | (batch.positions == 0), fill=False)
