"""The plan of a fine-tuning: what it will do and need, measured on a few of its examples."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import torch

from litebert.config import FinetuneConfig, Resolved
from litebert.fast import AlbertWithExits, checkpoint_gradients
from litebert.nn import AlbertForTask
from litebert.tasks.finetuning import Finetuning, FinetuningWork
from litebert.tasks.kinds.family import Feature
from litebert.train.estimate import Estimate, process_bytes, scaled
from litebert.train.prepared import Prepared, prepare
from litebert.train.run import choose_device, dtype_of

_PROBED = 8
"""Features in the larger of two probes, at most."""


@dataclass(frozen=True)
class FinetunePlan:
    """A run that has not begun: its settings and data, and what it will need."""

    prepared: Prepared
    needs: Estimate

    @property
    def tokens_per_step(self) -> float:
        """The mean number of tokens in a step; there is no padding."""
        return _mean_tokens(self.prepared.features) * self.prepared.config.train.batch_size


def plan_finetuning(resolved: Resolved[FinetuneConfig], folder: Path) -> FinetunePlan:
    """Prepare a run and time two small batches of typical length; writes nothing."""
    prepared = prepare(resolved, folder)
    return FinetunePlan(prepared, _estimate(prepared))


def _estimate(prepared: Prepared) -> Estimate:
    train, device = prepared.config.train, choose_device(prepared.config.train.device)
    before = process_bytes(device)
    family = prepared.dataset.family
    kind = AlbertWithExits if train.exits else AlbertForTask
    network = kind(prepared.network_config, family.head, dtype=dtype_of(train)).to(device)
    if train.gradient_checkpointing:
        checkpoint_gradients(network.albert)
    at_once = train.micro_batch_size or train.batch_size
    large = min(_PROBED, max(2, at_once))
    probes = [_probe(prepared, network, number) for number in (max(1, large // 2), large)]
    mean = _mean_tokens(prepared.features)
    longest = max(feature.num_tokens for feature in prepared.features)
    task = Finetuning(network, family, features=prepared.features, held_out={}, train=train)
    return scaled(
        task,
        probes,
        train=train,
        optim=prepared.config.optim,
        tokens_per_step=mean * train.batch_size,
        tokens_at_once=min(longest, 2 * mean) * at_once,
        bytes_before=before,
    )


def _probe(prepared: Prepared, network: AlbertForTask, number: int) -> FinetuningWork:
    """Return a micro-batch of features with the same spread of lengths as the data."""
    by_length = sorted(prepared.features, key=lambda feature: feature.num_tokens)
    places = torch.linspace(0, len(by_length) - 1, number + 2)[1:-1].round().int().tolist()
    train = prepared.config.train.model_copy(update={"batch_size": number, "micro_batch_size": None})
    task = Finetuning(
        network,
        prepared.dataset.family,
        features=[replace(by_length[place]) for place in places],
        held_out={},
        train=train,
    )
    return next(task.batches(0, 1))[0]


def _mean_tokens(features: list[Feature]) -> float:
    return sum(feature.num_tokens for feature in features) / len(features)
