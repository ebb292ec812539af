"""A loss from a teacher's logits beside the labels."""

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


@runtime_checkable
class Teachable(Protocol):
    """A family with one row of logits a feature, for any vocabulary."""

    def logits(self, network: AlbertForTask, batch: Batch) -> Tensor:
        """Return a row of logits a feature."""

    def losses_of(self, logits: Tensor, targets: Tensor) -> Tensor:
        """Return the loss of each row against its label."""

    def imitation(self, logits: Tensor, wanted: Tensor, temperature: float) -> Tensor:
        """Return the loss of each row against a teacher's logits."""


@dataclass(frozen=True)
class Teaching:
    """How the teacher's logits enter the loss: with a share, at a temperature."""

    family: Teachable
    config: TeacherConfig

    def losses(
        self, network: AlbertForTask, batch: Batch, targets: Tensor, wanted: Tensor
    ) -> Tensor:
        """Return the mixed loss of each feature, from one pass through the network."""
        logits = self.family.logits(network, batch)
        share = self.config.weight
        imitated = self.family.imitation(logits, wanted.view_as(logits), self.config.temperature)
        return (1 - share) * self.family.losses_of(logits, targets) + share * imitated


def wanted_of(features: Sequence[Feature]) -> Tensor | None:
    """Lay the teacher's logits of features end to end; None: there is no teacher."""
    parts = [feature.teacher for feature in features if feature.teacher is not None]
    return torch.from_numpy(np.concatenate(parts)) if parts else None
