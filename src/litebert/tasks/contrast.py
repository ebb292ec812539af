"""Masked words and a contrastive loss: each half of a chunk must find the other in its batch."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor
from torch.nn import functional as F

from litebert.fast.moving import mean_by_sequence
from litebert.nn.heads import PretrainingOutput
from litebert.tasks.base import Loss
from litebert.tasks.pretraining import Pretraining, PretrainingWork

TEMPERATURE = 0.05
"""The temperature of the cosines, as in SimCSE (arXiv 2104.08821, section 3)."""


class Contrast(Pretraining):
    """Sequences with the same label belong together; their vectors are means of the last states.

    The logits of the sentence head are replaced by cosines of each sequence with all others, so
    `sentence_order_accuracy` is how often the nearest sequence is the right one.
    """

    def logits(self, work: PretrainingWork) -> PretrainingOutput:
        """Return masked-LM logits, and cosines of all sequences, (sequences, sequences)."""
        hidden = self.network.albert(work.batch)
        table = self.network.albert.embedding.word.weight
        vectors = F.normalize(mean_by_sequence(hidden.float(), work.batch))
        cosines = (vectors @ vectors.T / TEMPERATURE).fill_diagonal_(-torch.inf)
        return PretrainingOutput(
            masked_lm=self.network.masked_lm(hidden[work.masked_positions], table), sentence_order=cosines
        )

    def loss_of(self, work: PretrainingWork, logits: PretrainingOutput) -> Loss:
        """Return the loss; the label of a sequence is the index of its other half."""
        labels = work.sentence_labels
        assert labels is not None
        return super().loss_of(replace(work, sentence_labels=_partners(labels)), logits)


def _partners(labels: Tensor) -> Tensor:
    """Return for each sequence the index of the other one with its label.

    >>> _partners(torch.tensor([7, 3, 3, 7])).tolist()
    [3, 2, 1, 0]
    """
    order = labels.argsort(stable=True).view(-1, 2)
    partners = torch.empty_like(labels)
    partners[order[:, 0]], partners[order[:, 1]] = order[:, 1], order[:, 0]
    return partners
