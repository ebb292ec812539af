"""The task of fine-tuning, for any family; each epoch draws every feature once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Generic, TypeAlias

import numpy as np
import torch
from torch import Tensor

from litebert import rng
from litebert.config import TrainConfig
from litebert.distributed.world import ALONE, World
from litebert.fast import accelerate, is_packed, pack
from litebert.nn import AlbertForTask, Batch
from litebert.nn.batch import moved
from litebert.tasks.base import Loss, device_of, summed
from litebert.tasks.kinds.family import Answer, Example, Family, Feature, Output, joined, targets_of
from litebert.tasks.kinds.teaching import Teaching, wanted_of

Select: TypeAlias = Callable[[list[Feature]], list[Feature]]
"""Chooses the features of a step, when the network has the weights that the step will change."""

TOKENS_AT_ONCE = 8_192
"""Tokens that are computed together at inference."""


@dataclass(frozen=True)
class LabelledSet(Generic[Example]):
    """Examples to evaluate on, with their features."""

    examples: Sequence[Example]
    features: Sequence[Feature]


@dataclass(frozen=True)
class FinetuningWork:
    """A micro-batch and the weight of its whole step, so that shares of the loss add up.

    `targets` lie end to end; `wanted` are the outputs of a teacher, if there is one.
    """

    batch: Batch
    targets: Tensor
    weight: float
    step_weight: float
    wanted: Tensor | None = None


class Finetuning(Generic[Example, Answer]):
    """The task of fine-tuning; see tasks.base.Task."""

    sum_names = ("loss", "weight")

    def __init__(
        self,
        network: AlbertForTask,
        family: Family[Example, Answer],
        *,
        features: Sequence[Feature],
        held_out: Mapping[str, LabelledSet[Example]],
        train: TrainConfig,
        teaching: Teaching | None = None,
        select: Select | None = None,
        pool: int = 1,
        world: World = ALONE,
    ) -> None:
        accelerate(network)
        self._world, self._select, self._pool = world, select, pool
        self.network, self.family, self._teaching = network, family, teaching
        self._features, self._held_out, self._train = features, held_out, train
        self._answers: dict[str, list[Answer]] | None = None

    def batches(self, start: int, stop: int) -> Iterator[Sequence[FinetuningWork]]:
        """Yield the micro-batches of each step; every epoch has another random order."""
        size = self._train.batch_size * self._pool
        for step in range(start, stop):
            numbers = drawn(len(self._features), step, batch_size=size, seed=self._train.seed)
            features = [self._features[number] for number in numbers]
            yield list(self._works(self._select(features) if self._select else features))

    def loss(self, work: FinetuningWork) -> Loss:
        """Return this micro-batch's share of the weighted mean loss of its step."""
        self._answers = None  # the step will change the weights
        if self._teaching is None or work.wanted is None:
            total = self.family.losses(self.network, work.batch, work.targets).sum()
        else:
            losses = self._teaching.losses(self.network, work.batch, work.targets, work.wanted)
            total = losses.sum()
        return Loss(total / work.step_weight, summed([total, total.new_full((), work.weight)]))

    def measures(self, sums: Sequence[float]) -> dict[str, float]:
        """Return the mean loss."""
        return {"loss": sums[0] / (sums[1] or 1.0)}

    def evaluate(self) -> dict[str, float]:
        """Measure on every held-out set; if there are several, names begin with the set's name."""
        measured: dict[str, float] = {}
        self._answers = {}
        for name, held_out in self._held_out.items():
            outputs = self._outputs(held_out.features)
            answers = self.family.answers(held_out.examples, held_out.features, outputs)
            self._answers[name] = answers
            prefix = f"{name}_" if len(self._held_out) > 1 else ""
            values = self.family.measures(held_out.examples, answers)
            measured |= {f"{prefix}{key}": value for key, value in values.items()}
        self.network.train()
        return measured

    def answers(self) -> dict[str, list[Answer]]:
        """Answer every held-out set, as the last evaluation did if no step has followed it."""
        return self._answers or {
            name: answer(self.network, self.family, held_out.examples, held_out.features)
            for name, held_out in self._held_out.items()
        }

    def _outputs(self, features: Sequence[Feature]) -> list[Output]:
        """Return the outputs of features; processes share the groups of similar length."""
        groups = list(by_length([feature.num_tokens for feature in features]))
        mine = self._world.share(groups)
        chosen = [features[number] for numbers in mine for number in numbers]
        found = self._world.gathered(outputs_of(self.network, self.family, chosen))
        outputs = dict[int, Output]()
        for rank, theirs in enumerate(found):
            numbers = chain.from_iterable(groups[rank :: self._world.size])
            outputs.update(zip(numbers, theirs, strict=True))
        return [outputs[number] for number in range(len(features))]

    def num_tokens(self, work: FinetuningWork) -> int:
        """Count the tokens of a micro-batch; there is no padding."""
        return sum(work.batch.lengths)

    def _works(self, features: list[Feature]) -> Iterator[FinetuningWork]:
        """Cut a step into micro-batches on the network's device, longest sequences first."""
        device = device_of(self.network)
        features.sort(key=lambda feature: -feature.num_tokens)  # memory peaks in the first one
        step_weight = sum(feature.weight for feature in features)
        features = self._world.share(features)
        size = self._train.micro_batch_size or len(features)
        for first in range(0, len(features), size):
            part = features[first : first + size]
            weight = sum(feature.weight for feature in part)
            targets = moved(targets_of(part), device)
            wanted = wanted_of(part)
            yield FinetuningWork(
                joined(part).to(device),
                targets,
                weight,
                step_weight or 1.0,
                None if wanted is None else moved(wanted, device),
            )


@torch.no_grad()
def hardest_features(
    features: list[Feature], *, network: AlbertForTask, family: Family[Example, Answer], keep: int
) -> list[Feature]:
    """Return the `keep` features with the largest loss, without dropout and without the weights of their labels."""
    network.eval()
    losses, device = np.empty(len(features)), device_of(network)
    for numbers in by_length([feature.num_tokens for feature in features]):
        part = [features[number] for number in numbers]
        weighted = family.losses(network, joined(part).to(device), targets_of(part).to(device)).float().cpu().numpy()
        weights = np.array([feature.weight for feature in part])
        losses[numbers] = np.divide(weighted, weights, out=np.zeros(len(part)), where=weights > 0)
    network.train()
    return [features[row] for row in np.sort(np.argsort(-losses, kind="stable")[:keep])]


def drawn(num_features: int, step: int, *, batch_size: int, seed: int) -> list[int]:
    """Return the indices of one step's features; each epoch visits all once, in random order.

    >>> sorted(drawn(4, 0, batch_size=2, seed=1) + drawn(4, 1, batch_size=2, seed=1))
    [0, 1, 2, 3]
    """
    samples = np.arange(step * batch_size, (step + 1) * batch_size)
    epochs, positions = np.divmod(samples, num_features)
    numbers = np.empty_like(samples)
    for epoch in np.unique(epochs):
        chosen = epochs == epoch
        numbers[chosen] = rng.permutation(seed, "features", int(epoch), num_features, positions[chosen])
    return [int(number) for number in numbers]


@torch.inference_mode()
def answer(
    network: AlbertForTask,
    family: Family[Example, Answer],
    examples: Sequence[Example],
    features: Sequence[Feature],
    *,
    progress: Callable[[int], None] | None = None,
) -> list[Answer]:
    """Answer every example.

    `progress` is called with the number of features done since its last call.
    """
    outputs = outputs_of(network, family, features, progress=progress)
    return family.answers(examples, features, outputs)


@torch.inference_mode()
def outputs_of(
    network: AlbertForTask,
    family: Family[Example, Answer],
    features: Sequence[Feature],
    *,
    progress: Callable[[int], None] | None = None,
) -> list[Output]:
    """Return the outputs of features; those of similar length are computed together."""
    network.eval()
    if not is_packed(network.albert):
        pack(network.albert)
    device = device_of(network)
    outputs: list[Output | None] = [None] * len(features)
    for numbers in by_length([feature.num_tokens for feature in features]):
        batch = joined([features[number] for number in numbers]).to(device)
        for number, output in zip(numbers, family.outputs(network, batch), strict=True):
            outputs[number] = output
        if progress is not None:
            progress(len(numbers))
    return [output for output in outputs if output is not None]


def by_length(lengths: Sequence[int]) -> Iterator[list[int]]:
    """Yield groups of indices by similar length, longest first, of at most TOKENS_AT_ONCE tokens.

    >>> list(by_length([3, 9, 5]))
    [[1, 2, 0]]
    """
    numbers: list[int] = []
    for number in sorted(range(len(lengths)), key=lengths.__getitem__, reverse=True):
        if numbers and (len(numbers) + 1) * lengths[numbers[0]] > TOKENS_AT_ONCE:
            yield numbers
            numbers = []
        numbers.append(number)
    if numbers:
        yield numbers
