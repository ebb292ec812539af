"""One optimizer step: seed, accumulate, clip, look, update."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from litebert import rng
from litebert.optim import MomentOptimizer, clip_gradients
from litebert.tasks.base import Task, Work, device_of


@dataclass(frozen=True)
class StepResult:
    """What one step saw: sums to report, loss, gradient norm, and whether the weights changed."""

    sums: Tensor
    loss: float
    gradient_norm: float
    is_finite: bool


def training_step(
    task: Task[Work],
    works: Sequence[Work],
    optimizer: MomentOptimizer,
    *,
    step: int,
    learning_rate: float,
    clip_norm: float,
    seed: int,
) -> StepResult:
    """Update the weights from one batch; a loss or gradient that is not finite changes nothing."""
    torch.manual_seed(rng.torch_seed(seed, "dropout", step))
    device = device_of(task.network)
    sums = torch.zeros(len(task.sum_names), dtype=torch.float64, device=device)
    total = torch.zeros((), dtype=torch.float64, device=device)
    for work in works:
        loss = task.loss(work)
        loss.total.backward()  # type: ignore[no-untyped-call]
        sums += loss.sums
        total += loss.total.detach()
    norm = clip_gradients(task.network.parameters(), clip_norm)
    seen, total_loss, gradient_norm = torch.stack([sums.sum(), total, norm.double()]).tolist()
    is_finite = all(map(math.isfinite, (seen, total_loss, gradient_norm)))
    if is_finite:
        for group in optimizer.param_groups:
            group["lr"] = learning_rate * group["rate_scale"]
        optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    return StepResult(sums, total_loss, gradient_norm, is_finite)
