"""Combine the loss against labels with losses against a teacher's logits and pooled state."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
import torch
from torch import Tensor

from litebert.config import TeacherConfig
from litebert.nn import AlbertForTask, Batch
from litebert.tasks.kinds.family import Feature
from litebert.tasks.kinds.vectors import VectorHead


@runtime_checkable
class Teachable(Protocol):
    """A family that gives one row of logits per feature, whatever the vocabulary."""

    def logits(self, network: AlbertForTask, batch: Batch) -> Tensor:
        """Return a row of logits per feature."""

    def losses_of(self, logits: Tensor, targets: Tensor) -> Tensor:
        """Return the loss of each row against its label."""

    def imitation(self, logits: Tensor, wanted: Tensor, temperature: float) -> Tensor:
        """Return the loss of each row against a teacher's logits."""


@dataclass(frozen=True)
class Teaching:
    """The loss with a teacher: a share of it imitates the teacher's logits, or its state, too."""

    family: Teachable
    config: TeacherConfig

    def losses(self, network: AlbertForTask, batch: Batch, targets: Tensor, wanted: Tensor) -> Tensor:
        """Return the mixed loss of each feature, from one pass through the network.

        `wanted` has the teacher's logits of each feature, followed by the state that its head reads
        if that is learnt, too: by squared error relative to its size, as in `litebert distil`.
        """
        share, weight = self.config.weight, self.config.hidden
        state = read_by_head(network, batch) if weight else None
        if state is None:
            logits = self.family.logits(network, batch)
        else:
            head = network.head
            logits = head.logits(state) if isinstance(head, VectorHead) else head(state)
        theirs, their_state = wanted.view(len(logits), -1).tensor_split([logits.shape[-1]], dim=-1)
        imitated = self.family.imitation(logits, theirs, self.config.temperature)
        losses = (1 - share) * self.family.losses_of(logits, targets) + share * imitated
        if state is None:
            return losses
        error = (state - their_state).square().sum(-1) / their_state.square().sum(-1)
        return losses + weight * error


def read_by_head(network: AlbertForTask, batch: Batch) -> Tensor:
    """Return what the head reads for a text or a pair: the pooled [CLS], or rows of vectors."""
    if isinstance(network.head, VectorHead):
        return network.head.rows(network.albert(batch).float(), batch)
    return network.albert.pool(network.albert(batch, batch.first_tokens))


def wanted_of(features: Sequence[Feature]) -> Tensor | None:
    """Concatenate the teacher's outputs for features; None if there is no teacher."""
    parts = [feature.teacher for feature in features if feature.teacher is not None]
    return torch.from_numpy(np.concatenate(parts)) if parts else None
