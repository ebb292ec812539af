"""An exponential moving average of the weights, kept by the optimizer with its moments."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor
from torch.optim.optimizer import Optimizer


def follow(states: Sequence[Mapping[str, Tensor]], parameters: list[Tensor], decay: float) -> None:
    """Move each average towards its weights by 1 - d, with d = min(decay, (1 + t) / (10 + t)).

    Thus the average forgets the random start early in a run (as TensorFlow's does).
    """
    averages = [state["average"] for state in states]
    steps = [state["step"] for state in states]
    decays = [((1 + step) / (10 + step)).clamp(max=decay) for step in steps]
    moves = torch._foreach_sub(parameters, averages)
    torch._foreach_mul_(moves, [1 - each for each in decays])
    torch._foreach_add_(averages, moves)


@contextmanager
def averaged(optimizer: Optimizer) -> Iterator[None]:
    """Within the block, replace the weights by their average; restore them bit for bit after it.

    If no average is kept, nothing changes.

    >>> from litebert.optim import AdamW
    >>> weight = torch.nn.Parameter(torch.zeros(1))
    >>> optimizer = AdamW([weight], lr=1.0, weight_decay=0.0, average_decay=0.9)
    >>> weight.grad = torch.ones(1)
    >>> optimizer.step()
    >>> with averaged(optimizer):
    ...     inside = weight.item()
    >>> round(inside / weight.item(), 3)
    0.818
    """
    averages = {p: state["average"] for p, state in optimizer.state.items() if "average" in state}
    weights = {parameter: parameter.detach().clone() for parameter in averages}
    _copy(averages)
    try:
        yield
    finally:
        _copy(weights)


@torch.no_grad()
def _copy(values: Mapping[Tensor, Tensor]) -> None:
    for parameter, value in values.items():
        parameter.copy_(value)
