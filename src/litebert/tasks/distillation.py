"""Distillation: learn masked words, sentence order, and a teacher's states of the same text."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from litebert.config import DistilConfig, TrainConfig
from litebert.distributed import ALONE, World
from litebert.nn import AlbertForPretraining, Batch
from litebert.nn.heads import PretrainingOutput
from litebert.objectives import Batches, PretrainingBatch, longest_first, prefetch
from litebert.tasks.base import Loss, device_of, summed
from litebert.tasks.pretraining import Pretraining, PretrainingWork, micro_batches, whole_step
from litebert.tasks.surface import Surface
from litebert.tasks.teacher import Alignment, Reading, Teacher, align, pool


@dataclass(frozen=True)
class Lesson:
    """Masked pairs or plain texts, with the teacher's states for the same unmasked text.

    `pretraining` is None for plain texts, which train only hidden states and vectors. `share` is
    the lesson's share of the step's tokens; `world` are the processes that share the lesson.
    """

    batch: Batch
    pretraining: PretrainingWork | None
    alignment: Alignment
    reading: Reading
    share: float
    world: World


class Distillation:
    """The task of distillation; see tasks.base.Task.

    A step has masked pairs (masked LM, sentence order, hidden states) and short plain texts (hidden
    states, one vector per text). The teacher reads the text without masks: at a masked position the
    student must predict the state of the hidden word (as in data2vec, arXiv 2202.03555).

    Hidden states are compared by squared error relative to the teacher's size, vectors by cosine.
    """

    def __init__(
        self,
        pretraining: Pretraining,
        *,
        teacher: Teacher,
        surface: Surface,
        open_pairs: Callable[[], Batches],
        open_texts: Callable[[], Batches],
        held_out_texts: Sequence[PretrainingBatch],
        train: TrainConfig,
        distil: DistilConfig,
    ) -> None:
        self._world = pretraining.world
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
        ours = ("hidden_error", "lessons", "vector_error", "texts")
        return (*self._pretraining.sum_names, *ours)

    def batches(self, start: int, stop: int) -> Iterator[Sequence[Lesson]]:
        """Yield the lessons of each step: pairs, then texts."""
        steps, workers = range(start, stop), self._train.loader_workers
        rank, size = self._world.rank, self._world.size
        both = (prefetch(opened, steps, rank=rank, world_size=size, workers=workers) for opened in self._open)
        for pairs, texts in zip(*both, strict=True):
            sizes = self._world.totals(pairs.offsets[-1], texts.offsets[-1])
            yield [
                self._lesson(batch, size / sum(sizes), self._world, is_masked=is_masked)
                for batch, size, is_masked in zip((pairs, texts), sizes, (True, False), strict=True)
            ]

    def loss(self, work: Lesson) -> Loss:
        """Return one lesson's share of the step's loss."""
        states = list(self.network.albert.states(work.batch))[1:]
        hidden = self._hidden_error(states, work)
        total = work.share * (self._distil.hidden * hidden)
        sums = [hidden * work.share, hidden.new_full((), work.share / work.world.size)]
        nothing = hidden.new_zeros(())
        if work.pretraining is not None:
            pretraining = self._pretraining.loss_of(work.pretraining, self._logits(states[-1], work.pretraining))
            total = total + self._distil.pretraining * pretraining.total
            sums = [*pretraining.sums, *sums, nothing, nothing]
        else:
            vectors = pool(states[-1].float(), work.batch, self._teacher.pooling)
            errors = 1 - F.cosine_similarity(vectors, work.reading.vectors.float(), dim=-1)
            (num_texts,) = work.world.totals(len(errors))
            total = total + self._distil.vectors * errors.sum() / num_texts
            zeros = hidden.new_zeros(len(self._pretraining.sum_names))
            sums = [*zeros, *sums, errors.sum(), hidden.new_full((), len(errors))]
        return Loss(total, summed(sums))

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
        for batch in self._world.share(self._held_out_texts):
            sums += self.loss(self._lesson(batch, 1.0, ALONE, is_masked=False)).sums.cpu()
        self._world.sum_([sums])
        self.network.train()
        measured = self.measures(sums.tolist())
        return values | {n: value for n, value in measured.items() if n.endswith("_error")}

    def num_tokens(self, work: Lesson) -> int:
        """Count the tokens that the student reads; there is no padding."""
        return sum(work.batch.lengths)

    def _lesson(self, batch: PretrainingBatch, share: float, world: World, *, is_masked: bool) -> Lesson:
        """Let the teacher read a batch; the student gets it masked or, like the teacher, plain."""
        device = device_of(self.network)
        batch = longest_first(batch)
        ids = batch.ids.copy()
        ids[batch.masked_positions] = batch.masked_ids
        texts, spans = self._surface.read(ids, batch.offsets)
        theirs, their_spans = self._teacher.encode(texts)
        whole = whole_step(batch, world)
        shown = batch if is_masked else replace(batch, ids=ids)
        (work,) = micro_batches(shown, None, device, whole)
        alignment = align(spans, their_spans)
        return Lesson(
            batch=work.batch,
            pretraining=work if is_masked else None,
            alignment=alignment,
            reading=self._teacher.read(theirs.to(device), self._layers),
            share=share,
            world=world,
        )

    def _logits(self, hidden: Tensor, work: PretrainingWork) -> PretrainingOutput:
        return self.network.read(hidden[work.masked_positions], hidden[work.batch.first_tokens])

    def _hidden_error(self, states: Sequence[Tensor], work: Lesson) -> Tensor:
        """Return the mean relative error of the states; the last has half of the weight."""
        keep = torch.from_numpy(np.flatnonzero(work.alignment.has_target)).to(states[0].device)
        targets = [work.alignment.means(each)[keep] for each in work.reading.states]
        sizes = [target.square().sum() for target in targets]
        work.world.sum_(sizes)  # errors are relative to all texts of the lesson
        errors = [
            (ours[keep].float() - target).square().sum() / size
            for ours, target, size in zip(states, targets, sizes, strict=True)
        ]
        return (torch.stack(errors[:-1]).mean() + errors[-1]) / 2 if errors[1:] else errors[0]
