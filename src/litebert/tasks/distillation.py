"""Distillation: masked words and sentence order, and what a teacher makes of the same text."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from litebert.config import DistilConfig, TrainConfig
from litebert.nn import AlbertForPretraining, Batch, PretrainingOutput
from litebert.objectives import Loader, PretrainingBatch, longest_first, prefetch
from litebert.tasks.base import Loss, device_of
from litebert.tasks.pretraining import Pretraining, PretrainingWork, micro_batches
from litebert.tasks.surface import Surface
from litebert.tasks.teacher import Alignment, Reading, Teacher, align, pool


@dataclass(frozen=True)
class Lesson:
    """Masked pairs or plain texts, with what the teacher made of the same text unmasked.

    `pretraining` is None for plain texts, which train hidden states and vectors alone. `share` is
    the lesson's share of the step's tokens.
    """

    batch: Batch
    pretraining: PretrainingWork | None
    alignment: Alignment
    reading: Reading
    share: float


class Distillation:
    """The task of distillation; see tasks.base.Task.

    A step has masked pairs (masked LM, sentence order, hidden states) and short plain texts (hidden
    states, one vector a text). The teacher reads the text without masks: at a masked position the
    student must guess the state that the hidden word would have (as data2vec, 2202.03555).

    Hidden states are compared by squared error relative to the teacher's size, vectors by cosine.
    """

    def __init__(
        self,
        pretraining: Pretraining,
        *,
        teacher: Teacher,
        surface: Surface,
        open_pairs: Callable[[], Loader],
        open_texts: Callable[[], Loader],
        held_out_texts: Sequence[PretrainingBatch],
        train: TrainConfig,
        distil: DistilConfig,
    ) -> None:
        self._pretraining, self._teacher, self._surface = pretraining, teacher, surface
        self._open = (open_pairs, open_texts)
        self._held_out_texts, self._train, self._distil = held_out_texts, train, distil
        depth = len(self.network.albert.plan)
        self._layers = [round(step * teacher.num_layers / depth) for step in range(1, depth + 1)]

    @property
    def network(self) -> AlbertForPretraining:
        """The student."""
        return self._pretraining.network

    @property
    def sum_names(self) -> tuple[str, ...]:
        """The sums of pretraining, then the teacher's."""
        return (*self._pretraining.sum_names, "hidden_error", "lessons", "vector_error", "texts")

    def batches(self, start: int, stop: int) -> Iterator[Sequence[Lesson]]:
        """Yield the lessons of each step: pairs, then texts."""
        steps, workers = range(start, stop), self._train.loader_workers
        both = (prefetch(opened, steps, workers=workers) for opened in self._open)
        for pairs, texts in zip(*both, strict=True):
            num_tokens = int(pairs.offsets[-1] + texts.offsets[-1])
            yield [
                self._lesson(pairs, num_tokens, is_masked=True),
                self._lesson(texts, num_tokens, is_masked=False),
            ]

    def loss(self, work: Lesson) -> Loss:
        """Return one lesson's share of the step's loss."""
        _, *states = self.network.albert.states(work.batch)
        hidden = self._hidden_error(states, work)
        total = self._distil.hidden * work.share * hidden
        sums = [hidden * work.share, hidden.new_tensor(work.share)]
        if work.pretraining is not None:
            logits = self._logits(states[-1], work.pretraining)
            pretraining = self._pretraining.loss_of(work.pretraining, logits)
            total = total + self._distil.pretraining * pretraining.total
            sums = [*pretraining.sums, *sums, *hidden.new_zeros(2)]
        else:
            vectors = pool(states[-1].float(), work.batch, self._teacher.pooling)
            error = _vector_error(vectors, work.reading.vectors)
            total = total + self._distil.vectors * error
            zeros = hidden.new_zeros(len(self._pretraining.sum_names))
            sums = [*zeros, *sums, error * len(vectors), hidden.new_tensor(len(vectors))]
        return Loss(total, torch.stack([value.detach().double() for value in sums]))

    def measures(self, sums: Sequence[float]) -> dict[str, float]:
        """Return pretraining's measures and the two errors against the teacher."""
        *pretraining, hidden, lessons, vector, texts = sums
        return self._pretraining.measures(pretraining) | {
            "hidden_error": hidden / (lessons or 1.0),
            "vector_error": vector / (texts or 1.0),
        }

    @torch.no_grad()
    def evaluate(self) -> dict[str, float]:
        """Measure as pretraining does, and against the teacher on held-out plain texts."""
        values = self._pretraining.evaluate()
        self.network.eval()
        sums = torch.zeros(len(self.sum_names), dtype=torch.float64)
        for batch in self._held_out_texts:
            lesson = self._lesson(batch, int(batch.offsets[-1]), is_masked=False)
            sums += self.loss(lesson).sums.cpu()
        self.network.train()
        measured = self.measures(sums.tolist())
        return values | {name: measured[name] for name in ("hidden_error", "vector_error")}

    def num_tokens(self, work: Lesson) -> int:
        """Count the real tokens that the student reads."""
        return sum(work.batch.lengths)

    def _lesson(self, batch: PretrainingBatch, num_tokens: int, *, is_masked: bool) -> Lesson:
        """Let the teacher read a batch; the student sees it masked, or plain as the teacher."""
        device = device_of(self.network)
        batch = longest_first(batch)
        ids = batch.ids.copy()
        ids[batch.masked_positions] = batch.masked_ids
        texts, spans = self._surface.read(ids, batch.offsets)
        theirs, their_spans = self._teacher.encode(texts)
        (work,) = micro_batches(batch if is_masked else replace(batch, ids=ids), None, device)
        return Lesson(
            batch=work.batch,
            pretraining=work if is_masked else None,
            alignment=align(spans, their_spans),
            reading=self._teacher.read(theirs.to(device), self._layers),
            share=len(ids) / num_tokens,
        )

    def _logits(self, hidden: Tensor, work: PretrainingWork) -> PretrainingOutput:
        network, albert = self.network, self.network.albert
        return PretrainingOutput(
            network.masked_lm(hidden[work.masked_positions], albert.embedding.word.weight),
            network.sentence_order(albert.pool(hidden[work.batch.first_tokens])),
        )

    def _hidden_error(self, states: Sequence[Tensor], work: Lesson) -> Tensor:
        """Return the mean relative error of the states; the last counts as all others together."""
        keep = torch.from_numpy(np.flatnonzero(work.alignment.has_target)).to(states[0].device)
        errors = [
            (ours[keep].float() - target[keep]).square().sum() / target[keep].square().sum()
            for ours, target in zip(
                states, map(work.alignment.means, work.reading.states), strict=True
            )
        ]
        return (torch.stack(errors[:-1]).mean() + errors[-1]) / 2 if errors[1:] else errors[0]


def _vector_error(ours: Tensor, theirs: Tensor) -> Tensor:
    """Return the mean cosine distance to the teacher's vectors; both are (texts, hidden)."""
    return 1 - F.cosine_similarity(ours, theirs.float(), dim=-1).mean()
