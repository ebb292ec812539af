"""Distillation: masked words and sentence order, and what a teacher makes of the same text."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from litebert.config import DistilConfig, TrainConfig
from litebert.nn import AlbertForPretraining, Batch
from litebert.nn.model import PretrainingOutput
from litebert.objectives import Loader, PretrainingBatch, longest_first, prefetch
from litebert.tasks.base import Loss, device_of
from litebert.tasks.pretraining import Pretraining, PretrainingWork, micro_batches
from litebert.tasks.surface import Surface
from litebert.tasks.teacher import Alignment, Reading, Teacher, align, pooled
from litebert.tokenizer import Tokenizer


@dataclass(frozen=True)
class Lesson:
    """Masked pairs or plain texts, with what the teacher made of the same text unmasked.

    `pretraining` is None for plain texts, which train vectors and states alone.
    """

    batch: Batch
    pretraining: PretrainingWork | None
    alignment: Alignment
    reading: Reading
    share: float
    """Of the step's tokens."""
    step_texts: int


class Distillation:
    """The task of distillation; see tasks.base.Task.

    A step has masked pairs (masked LM, sentence order, hidden states) and plain short texts (hidden
    states, one vector a text). The teacher reads the text without masks: at a masked position
    the student must guess the state that the hidden word would have (as data2vec, 2202.03555).
    """

    def __init__(
        self,
        network: AlbertForPretraining,
        *,
        tokenizer: Tokenizer,
        teacher: Teacher,
        open_pairs: Callable[[], Loader],
        open_texts: Callable[[], Loader],
        held_out: Sequence[PretrainingBatch],
        held_out_texts: Sequence[PretrainingBatch],
        train: TrainConfig,
        distil: DistilConfig,
    ) -> None:
        self.network = network
        self._teacher, self._surface, self._distil = teacher, Surface(tokenizer), distil
        self._open = (open_pairs, open_texts)
        self._train, self._held_out_texts = train, held_out_texts
        self._pretraining = Pretraining(
            network, open_loader=open_pairs, held_out=held_out, train=train
        )
        depth = len(network.albert.plan)
        self._steps = tuple(range(1, depth + 1))
        self._layers = [round(step * teacher.num_layers / depth) for step in self._steps]

    @property
    def sum_names(self) -> tuple[str, ...]:
        """The sums of pretraining, then the teacher's."""
        return (*self._pretraining.sum_names, "hidden_error", "lessons", "vector_error", "texts")

    def batches(self, start: int, stop: int) -> Iterator[Sequence[Lesson]]:
        """Yield the lessons of each step: pairs first, then texts."""
        steps, workers = range(start, stop), self._train.loader_workers
        both = (prefetch(opened, steps, workers=workers) for opened in self._open)
        for pairs, texts in zip(*both, strict=True):
            num_tokens = int(pairs.offsets[-1] + texts.offsets[-1])
            yield [
                self.lesson(longest_first(pairs), num_tokens, has_masks=True),
                self.lesson(longest_first(texts), num_tokens, has_masks=False),
            ]

    def lesson(self, batch: PretrainingBatch, num_tokens: int, *, has_masks: bool) -> Lesson:
        """Let the teacher read a batch; without `has_masks` the student sees it plain, too."""
        device = device_of(self.network)
        ids = batch.ids.copy()
        ids[batch.masked_positions] = batch.masked_ids
        texts, spans = self._surface.read(ids, batch.offsets)
        theirs, their_spans = self._teacher.encode(texts)
        if not has_masks:
            batch = replace(batch, ids=ids)
        (work,) = micro_batches(batch, None, device)
        return Lesson(
            batch=work.batch,
            pretraining=work if has_masks else None,
            alignment=align(spans, their_spans),
            reading=self._teacher.read(theirs.to(device), self._layers),
            share=len(ids) / num_tokens,
            step_texts=len(texts),
        )

    def loss(self, lesson: Lesson) -> Loss:
        """Return one lesson's share of the step's loss."""
        albert, weights = self.network.albert, self._distil
        _, *states = albert.states(lesson.batch)
        hidden = self._hidden_error(states, lesson)
        total = weights.hidden * lesson.share * hidden
        sums = torch.zeros(len(self.sum_names), dtype=torch.float64, device=hidden.device)
        sums[6:8] = torch.stack([hidden.detach() * lesson.share, hidden.new_tensor(lesson.share)])
        if (work := lesson.pretraining) is not None:
            loss = self._pretraining.loss_of(self._logits(states[-1], work), work)
            total = total + weights.pretraining * loss.total
            sums[:6] = loss.sums
        else:
            vectors = _vector_error(pooled(states[-1].float(), lesson.batch), lesson.reading)
            total = total + weights.vectors * vectors
            sums[8:] = torch.stack([vectors.detach() * lesson.step_texts, hidden.new_tensor(lesson.step_texts)])
        return Loss(total, sums)

    def _logits(self, hidden: Tensor, work: PretrainingWork) -> PretrainingOutput:
        network, albert = self.network, self.network.albert
        masked, first = hidden[work.masked_positions], hidden[work.batch.first_tokens]
        return PretrainingOutput(
            network.masked_lm(masked, albert.embedding.word.weight),
            network.sentence_order(albert.pool(first)),
        )

    def _hidden_error(self, states: Sequence[Tensor], lesson: Lesson) -> Tensor:
        """Return the relative squared error of the states, the last counting as all others."""
        keep = torch.from_numpy(np.flatnonzero(lesson.alignment.has_target))
        errors = []
        for ours, theirs in zip(states, lesson.reading.states, strict=True):
            target = lesson.alignment.means(theirs)[keep]
            errors.append(1 - F.cosine_similarity(ours[keep].float(), target, dim=-1).mean())
        return (torch.stack(errors[:-1]).mean() + errors[-1]) / 2

    def measures(self, sums: Sequence[float]) -> dict[str, float]:
        """Return pretraining's measures and the two errors against the teacher."""
        values = self._pretraining.measures(sums[:6])
        hidden, lessons, vector, texts = sums[6:]
        values["hidden_error"] = hidden / (lessons or 1.0)
        values["vector_error"] = vector / (texts or 1.0)
        return values

    @torch.no_grad()
    def evaluate(self) -> dict[str, float]:
        """Measure as pretraining does, and against the teacher on held-out plain texts."""
        values = self._pretraining.evaluate()
        self.network.eval()
        sums = np.zeros(len(self.sum_names))
        for batch in self._held_out_texts:
            lesson = self.lesson(longest_first(batch), int(batch.offsets[-1]), has_masks=False)
            sums += self.loss(lesson).sums.numpy()
        self.network.train()
        measured = self.measures(sums.tolist())
        return values | {name: measured[name] for name in ("hidden_error", "vector_error")}

    def num_tokens(self, lesson: Lesson) -> int:
        """Count the real tokens that the student reads."""
        return sum(lesson.batch.lengths)


def _vector_error(vectors: Tensor, reading: Reading) -> Tensor:
    """Return 1 - cosine to the teacher's vectors, plus how far pairs of texts are from its angles.

    The second term compares all pairs of texts of the batch, which is what similarity search sees.
    """
    ours = F.normalize(vectors, dim=-1)
    theirs = F.normalize(reading.vectors.float(), dim=-1)
    apart = 1 - (ours * theirs).sum(-1).mean()
    return apart + 5 * (ours @ ours.T - theirs @ theirs.T).square().mean()
