"""Hard example mining: of the sequences drawn for a step, train on those of the largest loss.

The choice is a function of the step's number and of the weights, so a stopped run resumes exactly.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from litebert.nn import AlbertForPretraining
from litebert.objectives import PretrainingBatch, longest_first, of_sequences
from litebert.tasks.base import device_of
from litebert.tasks.pretraining import PretrainingWork, micro_batches


@torch.no_grad()
def hardest(
    network: AlbertForPretraining,
    batch: PretrainingBatch,
    keep: int,
    *,
    micro_batch_size: int | None = None,
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
        losses = losses + F.cross_entropy(
            logits.sentence_order.float(), work.sentence_labels, reduction="none"
        )
    return losses
