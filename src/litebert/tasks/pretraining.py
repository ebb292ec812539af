"""Pretraining: masked LM and sentence order, weighted equally (run_pretraining.py L177)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from litebert import rng
from litebert.config import EarlyConfig, ElasticConfig, TrainConfig
from litebert.distributed import ALONE, World
from litebert.fast import accelerate, pack
from litebert.fast.steps import exact_dtype
from litebert.nn import AlbertForPretraining, Batch
from litebert.nn.batch import moved
from litebert.nn.heads import PretrainingOutput
from litebert.objectives import NO_LABEL, Batches, PretrainingBatch, longest_first, prefetch
from litebert.tasks.base import Loss, device_of, summed
from litebert.tasks.masked_loss import masked_loss

Select: TypeAlias = Callable[[PretrainingBatch], PretrainingBatch]
"""Chooses the sequences of a step, when the network has the weights that the step will change."""

EPSILON = 1e-5
"""Added to the number of masked tokens, as upstream (run_pretraining.py L337)."""


@dataclass(frozen=True)
class PretrainingWork:
    """A micro-batch and the totals of its step, so that shares of the loss add up."""

    batch: Batch
    masked_positions: Tensor
    masked_ids: Tensor
    sentence_labels: Tensor | None
    step_masked: int
    step_sequences: int


class Pretraining:
    """The task of pretraining; see tasks.base.Task."""

    sum_names: tuple[str, ...] = (
        "masked_loss",
        "masked_correct",
        "masked",
        "sentence_loss",
        "sentence_correct",
        "sentences",
    )

    def __init__(
        self,
        network: AlbertForPretraining,
        *,
        open_loader: Callable[[], Batches] | None = None,
        held_out: Sequence[PretrainingBatch],
        train: TrainConfig,
        early: EarlyConfig | None = None,
        elastic: ElasticConfig | None = None,
        select: Select | None = None,
        mask_id: int | None = None,
        world: World = ALONE,
    ) -> None:
        accelerate(network)
        self.network, self.world = network, world
        self._open_loader, self._held_out, self._train = open_loader, held_out, train
        self._early, self._mask_id = early or EarlyConfig(), mask_id
        self._elastic, self._select = elastic or ElasticConfig(), select
        self._deepest = network.albert.depth

    def batches(self, start: int, stop: int) -> Iterator[Sequence[PretrainingWork]]:
        """Yield the micro-batches of each step on the network's device; set the network's depth."""
        assert self._open_loader is not None, "a task without a loader only evaluates"
        steps, device = range(start, stop), device_of(self.network)
        made = prefetch(
            self._open_loader,
            steps,
            rank=self.world.rank,
            world_size=self.world.size,
            workers=self._train.loader_workers,
        )
        for step, batch in zip(steps, made, strict=True):
            full = self.network.config.num_steps
            self._deepest = depth_at(step, self._early, self._train.steps, full)
            self.network.albert.depth = elastic_depth(step, self._elastic, self._deepest, seed=self._train.seed)
            chosen = batch if self._select is None else self._select(batch)
            whole = whole_step(chosen, self.world)
            yield list(micro_batches(chosen, self._train.micro_batch_size, device, whole))

    def loss(self, work: PretrainingWork) -> Loss:
        """Return this micro-batch's share of masked-LM + sentence-order loss."""
        return self.loss_of(work, self.logits(work))

    def logits(self, work: PretrainingWork) -> PretrainingOutput:
        """Return the logits of both heads for a micro-batch."""
        output: PretrainingOutput = self.network(work.batch, work.masked_positions)
        return output

    def loss_of(self, work: PretrainingWork, logits: PretrainingOutput) -> Loss:
        """Return the loss of logits that are already computed."""
        masked = masked_loss(logits.masked_lm, work.masked_ids)
        total = masked / (work.step_masked + EPSILON)
        sums = [masked, _correct(logits.masked_lm, work.masked_ids), _count(work.masked_ids)]
        if work.sentence_labels is not None:
            has_label = work.sentence_labels != NO_LABEL
            labels, order = work.sentence_labels[has_label], logits.sentence_order[has_label]
            sentence = F.cross_entropy(order, labels, reduction="sum")
            total = total + sentence / work.step_sequences
            sums += [sentence, _correct(order, labels), _count(labels)]
        else:
            sums += [torch.zeros_like(masked)] * 3
        return Loss(total, summed(sums))

    def measures(self, sums: Sequence[float]) -> dict[str, float]:
        """Return mean losses and accuracies in [0, 1]; sentence order only if it is trained."""
        by_name = dict(zip(self.sum_names, sums, strict=True))
        masked = by_name["masked"] or 1.0
        values = {
            "masked_lm_loss": by_name["masked_loss"] / masked,
            "masked_lm_accuracy": by_name["masked_correct"] / masked,
        }
        if sentences := by_name["sentences"]:
            values["sentence_order_loss"] = by_name["sentence_loss"] / sentences
            values["sentence_order_accuracy"] = by_name["sentence_correct"] / sentences
        return values

    @torch.no_grad()
    def evaluate(self) -> dict[str, float]:
        """Measure on the held-out sequences; the baseline always answers the commonest token.

        `mask_token_*` count only positions that show [MASK]: elsewhere the answer is visible (kept
        pieces) or hidden behind a random piece.
        """
        device = device_of(self.network)
        self.network.albert.depth = self._deepest
        self.network.eval()
        pack(self.network.albert)
        exact = exact_dtype(device)
        sums = torch.zeros(len(self.sum_names), dtype=exact, device=device)
        hidden = torch.zeros(3, dtype=exact, device=device)
        for batch in self.world.share(self._held_out):
            for work in micro_batches(batch, self._train.micro_batch_size, device):
                logits = self.logits(work)
                sums += self.loss_of(work, logits).sums
                if self._mask_id is not None:
                    hidden += self._mask_token_sums(work, logits.masked_lm)
        self.network.train()
        self.world.sum_([sums, hidden])
        return (
            self.measures(sums.tolist())
            | self._mask_token_measures(hidden.tolist())
            | {"masked_lm_baseline": commonest_share(self._held_out)}
        )

    def _mask_token_sums(self, work: PretrainingWork, logits: Tensor) -> Tensor:
        """Return the loss, the correct answers and the number of positions that show [MASK]."""
        is_hidden = work.batch.ids[work.masked_positions] == self._mask_id
        logits, labels = logits[is_hidden].float(), work.masked_ids[is_hidden]
        loss = F.cross_entropy(logits, labels, reduction="sum")
        return summed([loss, _correct(logits, labels), _count(labels)])

    def _mask_token_measures(self, sums: Sequence[float]) -> dict[str, float]:
        loss, correct, count = sums
        if not count:
            return {}
        return {"mask_token_loss": loss / count, "mask_token_accuracy": correct / count}

    def num_tokens(self, work: PretrainingWork) -> int:
        """Count the tokens of a micro-batch; there is no padding."""
        return sum(work.batch.lengths)


@dataclass(frozen=True)
class WholeStep:
    """The totals of a step over all processes, by which the losses are divided."""

    masked: int
    sequences: int


def whole_step(batch: PretrainingBatch, world: World = ALONE) -> WholeStep:
    """Return the totals of a step, of which `batch` is this process's share."""
    masked, sequences = len(batch.masked_ids), len(batch.offsets) - 1
    return WholeStep(*map(int, world.totals(masked, sequences)))


def micro_batches(
    batch: PretrainingBatch, size: int | None, device: torch.device, whole: WholeStep | None = None
) -> Iterator[PretrainingWork]:
    """Cut a batch into micro-batches of at most `size` sequences, longest first, on a device."""
    num_sequences = len(batch.offsets) - 1
    whole = whole or whole_step(batch)
    batch = longest_first(batch)
    for first in range(0, num_sequences, size or num_sequences):
        last = min(first + (size or num_sequences), num_sequences)
        start, stop = batch.offsets[first], batch.offsets[last]
        masked = slice(*np.searchsorted(batch.masked_positions, [start, stop]))
        labels = batch.sentence_labels
        yield PretrainingWork(
            batch=Batch(
                ids=moved(torch.from_numpy(batch.ids[start:stop]), device),
                positions=moved(torch.from_numpy(batch.positions[start:stop]), device),
                segments=moved(torch.from_numpy(batch.segments[start:stop]), device),
                offsets=moved(torch.from_numpy(batch.offsets[first : last + 1] - start), device),
                lengths=tuple(np.diff(batch.offsets[first : last + 1]).tolist()),
            ),
            masked_positions=moved(torch.from_numpy(batch.masked_positions[masked] - start), device),
            masked_ids=moved(torch.from_numpy(batch.masked_ids[masked]), device),
            sentence_labels=None if labels is None else moved(torch.from_numpy(labels[first:last]), device),
            step_masked=whole.masked,
            step_sequences=whole.sequences,
        )


def commonest_share(batches: Iterable[PretrainingBatch]) -> float:
    """Return the accuracy of always answering the commonest masked token."""
    ids = np.concatenate([batch.masked_ids for batch in batches])
    return float(np.bincount(ids).max() / ids.size)


def depth_at(step: int, early: EarlyConfig, total_steps: int, full: int) -> int:
    """Return how many steps of the network a training step applies.

    >>> [depth_at(step, EarlyConfig(depth=2), 10, 6) for step in range(5)]
    [2, 2, 2, 6, 6]
    """
    is_early = early.depth is not None and step < round(early.depth_share * total_steps)
    return min(early.depth or full, full) if is_early else full


def elastic_depth(step: int, elastic: ElasticConfig, deepest: int, *, seed: int) -> int:
    """Return the depth of a training step: the deepest for half of them, a random one otherwise.

    >>> elastic = ElasticConfig(least_depth=2)
    >>> [elastic_depth(step, elastic, 6, seed=1) for step in range(8)]
    [6, 6, 6, 6, 6, 2, 5, 6]
    """
    least = min(elastic.least_depth or deepest, deepest)
    if least == deepest or rng.uniform(seed, "is-deepest", step) < 0.5:
        return deepest
    return int(rng.integers(seed, "elastic-depth", least, deepest - 1, step))


def _correct(logits: Tensor, labels: Tensor) -> Tensor:
    """Count the rows whose largest logit, the first of equal ones, is the label's.

    On a CPU argmax is ten times as slow as amax, so it is computed only for rows that may count.
    """
    logits = logits.detach()
    if not logits.is_cuda:
        own = logits.gather(-1, labels[:, None]).squeeze(-1)
        candidates = (own == logits.amax(-1)).nonzero().squeeze(-1)
        logits, labels = logits[candidates], labels[candidates]
    return (logits.argmax(-1) == labels).sum()


def _count(labels: Tensor) -> Tensor:
    return torch.full((), len(labels), device=labels.device)  # no copy from the host
