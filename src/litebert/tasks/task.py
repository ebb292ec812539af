"""What a network is trained for: the interface between a task and the trainer, which
knows nothing else of pretraining, fine-tuning and distillation.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import torch
from torch import Tensor

from litebert.device import device_at
from litebert.nn import Batch, Network


@dataclass(frozen=True)
class MicroBatch:
    """The sequences that a loss is computed from at once; each task adds what else its
    loss needs.
    """

    batch: Batch


Work = TypeVar("Work", bound=MicroBatch)


@dataclass(frozen=True)
class Loss:
    """One micro-batch's share of the step's loss, and sums to report.

    The shares of all micro-batches of a step add up to the loss of the whole batch, so
    gradient accumulation changes only the use of memory. `sums` (`Task.num_sums`,)
    become measures.
    """

    total: Tensor
    sums: Tensor


class Task(ABC, Generic[Work]):
    """What a network is trained for; `num_sums` is the number of entries of
    `Loss.sums`.
    """

    network: Network
    num_sums: int

    @abstractmethod
    def batches(self, start: int, stop: int) -> Iterator[Sequence[Work]]:
        """Yield the micro-batches of the steps start, ... stop - 1, on the network's
        device; any start is allowed.
        """

    @abstractmethod
    def loss(self, work: Work) -> Loss:
        """Return this micro-batch's share of the loss of its step."""

    @abstractmethod
    def measures(self, sums: Sequence[float]) -> dict[str, float]:
        """Turn sums into measures by name: mean losses, accuracies."""

    @abstractmethod
    def evaluate(self) -> dict[str, float]:
        """Measure the network on held-out data; leave it in training mode."""


def stack_sums(*values: Tensor) -> Tensor:
    """Return values as `Loss.sums`, in a dtype precise enough to be summed over a
    run.
    """
    exact = device_at(values[0].device).sum_dtype
    return torch.stack([value.detach().to(exact) for value in values])
