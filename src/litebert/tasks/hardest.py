"""Hard example mining: of the examples drawn for a step, train on those with the largest loss.

The choice depends only on the step's number and the weights, so a stopped run resumes exactly.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from litebert.config import MiningConfig
from litebert.distributed import World
from litebert.errors import LitebertError
from litebert.nn import AlbertForPretraining, AlbertForTask
from litebert.objectives.batch import PretrainingBatch, longest_first, of_sequences
from litebert.tasks.base import device_of
from litebert.tasks.finetuning import by_length
from litebert.tasks.kinds.family import Answer, Example, Family, Feature, joined, targets_of
from litebert.tasks.pretraining import PretrainingWork, micro_batches


@torch.no_grad()
def hardest(
    network: AlbertForPretraining, batch: PretrainingBatch, keep: int, *, micro_batch_size: int | None = None
) -> PretrainingBatch:
    """Return the `keep` sequences of a batch whose loss is largest, without dropout.

    A sequence's loss is its mean masked-LM loss plus its sentence loss, as in training.
    """
    ordered = longest_first(batch)
    network.eval()
    works = micro_batches(ordered, micro_batch_size, device_of(network))
    losses = torch.cat([sequence_losses(network, work) for work in works])
    network.train()
    rows = np.argsort(-losses.double().cpu().numpy(), kind="stable")[:keep]
    return of_sequences(ordered, np.sort(rows))


def sequence_losses(network: AlbertForPretraining, work: PretrainingWork) -> Tensor:
    """Return the loss of each sequence, shape (sequences,)."""
    logits = network(work.batch, work.masked_positions)
    masked = F.cross_entropy(logits.masked_lm.float(), work.masked_ids, reduction="none")
    own = torch.searchsorted(work.batch.offsets, work.masked_positions, right=True) - 1
    count = len(work.batch.lengths)
    sums = masked.new_zeros(count).index_add(0, own, masked)
    numbers = torch.bincount(own, minlength=count).clamp(min=1)
    losses = sums / numbers
    if work.sentence_labels is not None:
        losses = losses + F.cross_entropy(logits.sentence_order.float(), work.sentence_labels, reduction="none")
    return losses


@torch.no_grad()
def hardest_features(
    features: list[Feature], *, network: AlbertForTask, family: Family[Example, Answer], keep: int
) -> list[Feature]:
    """Return the `keep` features with the largest loss, without dropout."""
    network.eval()
    losses = np.empty(len(features))
    for numbers in by_length([feature.num_tokens for feature in features]):
        part = [features[number] for number in numbers]
        batch, targets = joined(part), targets_of(part)
        device = device_of(network)
        found = family.losses(network, batch.to(device), targets.to(device))
        losses[numbers] = found.double().cpu().numpy()
    network.train()
    return [features[row] for row in np.sort(np.argsort(-losses, kind="stable")[:keep])]


def require_alone(mining: MiningConfig, world: World) -> None:
    """Check that hard example mining runs in one process: each would see only its share.

    Raises:
        LitebertError: LB-280, there are several.
    """
    if mining.pool > 1 and world.size > 1:
        raise LitebertError(
            "LB-280",
            "several processes cannot choose the hardest sequences together",
            received=f"mining.pool={mining.pool}, {world.size} processes",
            expected="one process, or every sequence",
            next="omit mining.pool, or start without torchrun",
        )
