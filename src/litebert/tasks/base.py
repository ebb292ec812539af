"""What the trainer knows of a task: batches by step, micro-batches, a loss, an evaluation, measures."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import torch
from torch import Tensor, nn

from litebert.fast.steps import exact_dtype
from litebert.nn import Batch, Network


@dataclass(frozen=True)
class MicroBatch:
    """What a task calculates a loss from at once; a task adds what else its loss needs."""

    batch: Batch


Work = TypeVar("Work", bound=MicroBatch)


@dataclass(frozen=True)
class Loss:
    """One micro-batch's share of the step's loss, and sums to report.

    The shares of all micro-batches of a step add up to the loss of the whole batch, so gradient
    accumulation changes memory and nothing else. `sums` (`Task.num_sums`,) become measures.
    """

    total: Tensor
    sums: Tensor


@dataclass(frozen=True)
class Measure:
    """A number that pretraining reports: `name` in metrics.jsonl, `short` in a line of the log.

    The report draws it under `title` with `caption`; as a percentage if it `is_share`. `chance` is its value without
    any learning, or the name of the measure that has it.
    """

    name: str
    short: str = ""
    title: str = ""
    caption: str = "Lower is better."
    is_share: bool = False
    chance: float | str | None = None


class Task(ABC, Generic[Work]):
    """What a network is trained for; `num_sums` is the number of entries of `Loss.sums`."""

    network: Network
    num_sums: int

    @abstractmethod
    def batches(self, start: int, stop: int) -> Iterator[Sequence[Work]]:
        """Yield the micro-batches of the steps start, ... stop - 1, on the network's device; any start is allowed."""

    @abstractmethod
    def loss(self, work: Work) -> Loss:
        """Return this micro-batch's share of the loss of its step."""

    @abstractmethod
    def measures(self, sums: Sequence[float]) -> dict[str, float]:
        """Turn sums into measures by name: mean losses, accuracies."""

    @abstractmethod
    def evaluate(self) -> dict[str, float]:
        """Measure the network on held-out data; leave it in training mode."""


def summed(values: Sequence[Tensor]) -> Tensor:
    """Return values as `Loss.sums`, in a dtype precise enough to be summed over a run."""
    exact = exact_dtype(values[0].device)
    return torch.stack([value.detach().to(exact) for value in values])


def device_of(network: nn.Module) -> torch.device:
    """Return where a network's parameters are."""
    return next(network.parameters()).device
