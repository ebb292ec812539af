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
    # of the losses of heads; a head that is not listed counts once
    weights: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        accelerate(self.network.albert)
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
        train = self.train
        world = self.world
        early = self.early
        made = prefetch(
            self.open_loader,
            steps,
            rank=world.rank,
            world_size=world.size,
            workers=train.loader_workers,
        )
        for step, batch in zip(steps, made, strict=True):
            # the depth depends only on the step, so a run that was stopped resumes
            # exactly
            is_early = early.depth is not None and step < round(
                early.depth_share * train.steps
            )
            full = self.network.config.num_steps
            self.network.albert.depth = (
                min(early.depth or full, full) if is_early else full
            )
            yield list(
                micro_batches(
                    batch, train.micro_batch_size, device_of(self.network), world
                )
            )

    def loss(
        self, work: PretrainingWork, logits: dict[str, Tensor] | None = None
    ) -> Loss:
        """Return this micro-batch's share of the weighted sum of all heads' losses;
        `logits` may be given.
        """
        if logits is None:
            logits = self.network(work.batch, work.masked_positions)
        totals = list[Tensor]()
        sums = list[Tensor | None]()
        for name, head in self.heads.items():
            loss = head.loss(logits[name], work)
            sums.append(None if loss is None else loss.sums)
            if loss is not None:
                weight = self.weights.get(name, 1.0)
                totals.append(loss.total if weight == 1 else weight * loss.total)
        known = [values for values in sums if values is not None]
        nothing = torch.zeros_like(known[0])
        total = sum(totals[1:], totals[0])
        return Loss(
            total, torch.cat([nothing if values is None else values for values in sums])
        )

    def measures(self, sums: Sequence[float]) -> dict[str, float]:
        """Return mean losses and accuracies in [0, 1] of the heads that were
        measured.
        """
        values = dict[str, float]()
        for number, head in enumerate(self.heads.values()):
            loss, correct, count = sums[3 * number : 3 * number + 3]
            if count or number == 0:
                of_loss, of_accuracy = head.measures
                values |= {
                    of_loss.name: loss / (count or 1.0),
                    of_accuracy.name: correct / (count or 1.0),
                }
        return values

    @torch.no_grad()
    def evaluate(self) -> dict[str, float]:
        """Measure on the held-out sequences; the baseline always predicts the most
        common token.

        `mask_token_*` count only positions that show [MASK]: elsewhere the answer is
        visible (kept pieces) or hidden behind a random piece.
        """
        device = device_of(self.network)
        self.network.eval()
        pack(self.network.albert)
        exact = device.sum_dtype
        sums = torch.zeros(self.num_sums, dtype=exact, device=device.place)
        # of the positions that show [MASK]
        hidden = torch.zeros(3, dtype=exact, device=device.place)
        for batch in self.world.share(self.held_out):
            shows_mask = batch.ids[batch.masked_positions] == self.mask_id  # (masked,)
            done = 0  # masked tokens of the micro-batches before
            for work in micro_batches(batch, self.train.micro_batch_size, device):
                logits = self.network(work.batch, work.masked_positions)
                sums += self.loss(work, logits).sums
                more = done + len(work.masked_ids)
                if self.mask_id is not None:
                    # found on the host: a GPU would have to be waited for
                    shown = np.flatnonzero(shows_mask[done:more])
                    rows = device.copy(torch.from_numpy(shown))
                    hidden += masked_lm_objective(
                        logits["masked_lm"][rows],
                        replace(work, masked_ids=work.masked_ids[rows]),
                    ).sums
                done = more
        self.network.train()
        self.world.sum_([sums, hidden])
        measured = self.measures(sums.tolist())
        loss, correct, count = hidden.tolist()
        if count:
            measured |= {
                "mask_token_loss": loss / count,
                "mask_token_accuracy": correct / count,
            }
        ids = np.concatenate([batch.masked_ids for batch in self.held_out])
        num_commonest = np.bincount(ids, minlength=1).max()
        measured["masked_lm_baseline"] = float(num_commonest / max(1, ids.size))
        if "sentence_order_accuracy" in measured:
            # fewer than train.eval_sequences, if the held-out documents have no more or
            # some have no two sentences
            measured["sentence_order_pairs"] = sum(
                count_labels(batch.sentence_labels) for batch in self.held_out
            )
        return measured


def micro_batches(
    batch: PretrainingBatch,
    size: int | None,
    device: Device,
    world: World = ALONE,
) -> Iterator[PretrainingWork]:
    """Cut a process's share of a step into micro-batches of at most `size` sequences,
    on a device.
    """
    num_sequences = len(batch.offsets) - 1
    labels = batch.sentence_labels
    num_labelled = count_labels(labels)
    masked, labeled = (
        int(total) for total in world.totals(len(batch.masked_ids), num_labelled)
    )
    size = size or num_sequences
    for first in range(0, num_sequences, size):
        last = min(first + size, num_sequences)
        start = batch.offsets[first]
        stop = batch.offsets[last]
        inside = slice(*np.searchsorted(batch.masked_positions, [start, stop]))

        def on_device(array: Any) -> Tensor:
            return device.copy(torch.from_numpy(array))

        yield PretrainingWork(
            batch=Batch(
                ids=on_device(batch.ids[start:stop]),
                positions=on_device(batch.positions[start:stop]),
                segments=on_device(batch.segments[start:stop]),
                offsets=on_device(batch.offsets[first : last + 1] - start),
                lengths=tuple(np.diff(batch.offsets[first : last + 1]).tolist()),
            ),
            masked_positions=on_device(batch.masked_positions[inside] - start),
            masked_ids=on_device(batch.masked_ids[inside]),
            sentence_labels=None if labels is None else on_device(labels[first:last]),
            step_masked=masked,
            step_labelled=labeled,
        )


def count_labels(labels: np.ndarray | None) -> int:
    """Count the sequences that have a label of the sentence objective.

    >>> count_labels(np.array([0, 1, NO_LABEL]))
    2
    """
    if labels is None:
        return 0
    return int(np.count_nonzero(labels != NO_LABEL))
