"""The task of pretraining: batches, the sum of the losses of all heads, evaluation."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from litebert.config import EarlyConfig, TrainConfig
from litebert.device import Device, device_of
from litebert.distributed import ALONE, World
from litebert.fast import accelerate, pack
from litebert.nn import AlbertForPretraining, Batch
from litebert.objectives import NO_LABEL, Loader, PretrainingBatch, prefetch
from litebert.plugins import PRETRAINING_HEADS
from litebert.rng import Ints
from litebert.tasks.heads import PretrainingHead, PretrainingWork, masked_lm_objective
from litebert.tasks.task import Loss, Task


@dataclass(eq=False)
class Pretraining(Task[PretrainingWork]):
    """The task of pretraining; without a loader it only evaluates."""

    network: AlbertForPretraining
    held_out: Sequence[PretrainingBatch]
    train: TrainConfig
    open_loader: Callable[[], Loader] | None = None
    early: EarlyConfig = field(default_factory=EarlyConfig)
    mask_id: int | None = None
    world: World = ALONE
    # of the loss of each head, by its name; 1 for heads that are not listed
    weights: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        accelerate(self.network.albert)
        # of each head: the loss, the right answers, and how many were predicted
        self.num_sums = 3 * len(self.network.heads)

    @property
    def heads(self) -> dict[str, PretrainingHead]:
        """The heads of the network, by name."""
        return {name: PRETRAINING_HEADS[name] for name in self.network.heads}

    def batches(self, start: int, stop: int) -> Iterator[Sequence[PretrainingWork]]:
        """Yield the micro-batches of each step on the network's device; set the
        network's depth.
        """
        assert self.open_loader is not None
        steps = range(start, stop)
        prepared = prefetch(
            self.open_loader,
            steps,
            rank=self.world.rank,
            world_size=self.world.size,
            workers=self.train.loader_workers,
        )
        device = device_of(self.network)
        size = self.train.micro_batch_size
        for step, batch in zip(steps, prepared, strict=True):
            # Only the step decides on the depth, so a run that was stopped resumes
            # exactly.
            self.network.albert.depth = self._depth_at(step)
            yield list(micro_batches(batch, size, device, self.world))

    def _depth_at(self, step: int) -> int:
        """Return how many steps of the network a training step uses: `early.depth` at
        first, then all.
        """
        full = self.network.config.num_steps
        early = self.early
        num_early = round(early.depth_share * self.train.steps)  # training steps
        if early.depth is None or step >= num_early:
            return full
        return min(early.depth, full)

    def loss(
        self, work: PretrainingWork, logits: dict[str, Tensor] | None = None
    ) -> Loss:
        """Return this micro-batch's share of the weighted sum of all heads' losses;
        `logits` may be given.
        """
        by_head = logits
        if by_head is None:
            by_head = self.network(work.batch, work.masked_positions)
        totals = list[Tensor]()
        sums = dict[str, Tensor]()  # (3,) each
        for name, head in self.heads.items():
            loss = head.loss(by_head[name], work)
            if loss is None:  # this micro-batch has nothing for the head
                continue
            sums[name] = loss.sums
            total = loss.total
            weight = self.weights.get(name, 1.0)
            if weight != 1:  # a product with 1 would be one more kernel in every step
                total = weight * total
            totals.append(total)
        # for heads without a loss here; masked LM, which all networks have, has one
        nothing = torch.zeros_like(next(iter(sums.values())))
        all_sums = [sums.get(name, nothing) for name in self.heads]
        return Loss(sum(totals[1:], totals[0]), torch.cat(all_sums))

    def measures(self, sums: Sequence[float]) -> dict[str, float]:
        """Return mean losses and accuracies in [0, 1] of the heads that were
        measured.
        """
        values = dict[str, float]()
        for number, head in enumerate(self.heads.values()):
            start = 3 * number
            loss, correct, count = sums[start : start + 3]
            # The first head is shown even if nothing was counted, as zeros.
            if count or number == 0:
                loss_measure, accuracy_measure = head.measures
                values[loss_measure.name] = loss / (count or 1.0)
                values[accuracy_measure.name] = correct / (count or 1.0)
        return values

    @torch.no_grad()
    def evaluate(self) -> dict[str, float]:
        """Measure on the held-out sequences; the baseline always predicts the most
        common token.

        `mask_token_*` count only positions that show [MASK]: elsewhere the answer is
        visible (kept pieces) or hidden behind a random piece.
        """
        self.network.eval()
        pack(self.network.albert, is_repeatable=True)
        sums, mask_sums = self._held_out_sums()
        self.network.train()
        self.world.sum_([sums, mask_sums])
        measured = self.measures(sums.tolist())
        loss, correct, count = mask_sums.tolist()
        if count:
            measured["mask_token_loss"] = loss / count
            measured["mask_token_accuracy"] = correct / count
        measured["masked_lm_baseline"] = _share_of_commonest(self.held_out)
        if "sentence_order_accuracy" in measured:
            # fewer than train.eval_sequences, if the held-out documents have no more or
            # some have no two sentences
            counts = [count_labels(batch.sentence_labels) for batch in self.held_out]
            measured["sentence_order_pairs"] = sum(counts)
        return measured

    def _held_out_sums(self) -> tuple[Tensor, Tensor]:
        """Return the sums of all heads over this process's share of the held-out
        sequences, (num_sums,), and the loss, the right answers and the number of the
        positions that show [MASK], (3,).
        """
        device = device_of(self.network)
        # Over all batches, and then over all processes: float64 where the device has it.
        sums = torch.zeros(self.num_sums, dtype=device.sum_dtype, device=device.place)
        mask_sums = torch.zeros(3, dtype=device.sum_dtype, device=device.place)
        for batch in self.world.share(self.held_out):
            shows_mask = batch.ids[batch.masked_positions] == self.mask_id  # (masked,)
            first = 0  # of the micro-batch, among the masked tokens of the batch
            for work in micro_batches(batch, self.train.micro_batch_size, device):
                logits = self.network(work.batch, work.masked_positions)
                sums += self.loss(work, logits).sums
                last = first + len(work.masked_ids)
                if self.mask_id is not None:
                    # Looked up on the host: a GPU would have to be waited for.
                    rows = np.flatnonzero(shows_mask[first:last])
                    mask_sums += _sums_at(rows, work, logits["masked_lm"], device)
                first = last
        return sums, mask_sums


def _sums_at(
    rows: Ints, work: PretrainingWork, logits: Tensor, device: Device
) -> Tensor:
    """Return the sums of masked LM, (3,), over some of the masked tokens."""
    places = device.copy(torch.from_numpy(rows))
    part = replace(work, masked_ids=work.masked_ids[places])
    return masked_lm_objective(logits[places], part).sums


def _share_of_commonest(batches: Sequence[PretrainingBatch]) -> float:
    """Return the share of the masked tokens that the most common one has."""
    ids = np.concatenate([batch.masked_ids for batch in batches])
    num_commonest = np.bincount(ids, minlength=1).max()
    return float(num_commonest / max(1, ids.size))


def micro_batches(
    batch: PretrainingBatch,
    size: int | None,
    device: Device,
    world: World = ALONE,
) -> Iterator[PretrainingWork]:
    """Cut a process's share of a step into micro-batches of at most `size` sequences,
    on a device.
    """
    labels = batch.sentence_labels
    # Losses are means over the whole step, whatever the micro-batches and processes: so
    # each needs to know how much all of them predict together.
    totals = world.totals(len(batch.masked_ids), count_labels(labels))
    step_masked, step_labeled = (int(total) for total in totals)

    def on_device(array: Any) -> Tensor:
        return device.copy(torch.from_numpy(array))

    num_sequences = len(batch.offsets) - 1
    at_once = size or num_sequences
    for first in range(0, num_sequences, at_once):
        last = min(first + at_once, num_sequences)
        # Sequences lie end to end: their tokens are one slice, and so are their masked
        # positions, which ascend.
        offsets = batch.offsets[first : last + 1]  # (sequences + 1,)
        start = offsets[0]
        stop = offsets[-1]
        masked = slice(*np.searchsorted(batch.masked_positions, [start, stop]))
        sentence_labels = None if labels is None else on_device(labels[first:last])
        yield PretrainingWork(
            batch=Batch(
                ids=on_device(batch.ids[start:stop]),
                positions=on_device(batch.positions[start:stop]),
                segments=on_device(batch.segments[start:stop]),
                offsets=on_device(offsets - start),
                lengths=tuple(np.diff(offsets).tolist()),
            ),
            masked_positions=on_device(batch.masked_positions[masked] - start),
            masked_ids=on_device(batch.masked_ids[masked]),
            sentence_labels=sentence_labels,
            step_masked=step_masked,
            step_labeled=step_labeled,
        )


def count_labels(labels: np.ndarray | None) -> int:
    """Count the sequences that have a label of the sentence objective.

    >>> count_labels(np.array([0, 1, NO_LABEL]))
    2
    """
    if labels is None:
        return 0
    return int(np.count_nonzero(labels != NO_LABEL))
