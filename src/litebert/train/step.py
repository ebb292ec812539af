"""One optimizer step: seed, accumulate gradients, clip, check for NaN, update."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from litebert import rng
from litebert.distributed import ALONE, World
from litebert.fast.steps import exact_dtype
from litebert.optim import MomentOptimizer, clip_gradients
from litebert.tasks.base import Task, Work, device_of


@dataclass(frozen=True)
class StepResult:
    """The results of one step; the weights were updated only if `is_finite`.

    `sums` are those that the task names in `sum_names`, over `tokens` tokens of all processes.
    """

    sums: tuple[float, ...]
    tokens: int
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
    world: World = ALONE,
    loss_scale: float = 1.0,
) -> StepResult:
    """Update the weights from one batch; a loss or gradient that is not finite changes nothing.

    The loss is multiplied by `loss_scale` and its gradients are divided by it, so that small ones
    survive in fp16; with a power of two that is exact.

    With several processes, `works` are this one's share. Gradients are summed once per step: that
    of a shared block is complete only at the end of the backward pass, so none is sent earlier.
    """
    torch.manual_seed(rng.torch_seed(seed, "dropout", step, world.rank))
    device = device_of(task.network)
    exact = exact_dtype(device)
    seen = torch.zeros(len(task.sum_names) + 2, dtype=exact, device=device)
    for work in works:
        loss = task.loss(work)
        (loss.total * loss_scale).backward()  # type: ignore[no-untyped-call]
        seen[:-2] += loss.sums
        seen[-2] += loss.total.detach()
        seen[-1] += task.num_tokens(work)
    gradients = [p.grad for p in task.network.parameters() if p.grad is not None]
    world.sum_(gradients)
    world.sum_([seen])
    if loss_scale != 1:
        torch._foreach_mul_(gradients, 1 / loss_scale)
    norm = clip_gradients(task.network.parameters(), clip_norm)
    # the one place where a step waits for the device: nothing may change unless all is finite
    *sums, total, tokens, gradient_norm = torch.cat([seen, norm.to(exact)[None]]).tolist()
    is_finite = all(map(math.isfinite, (*sums, total, gradient_norm)))
    if is_finite:
        for group in optimizer.param_groups:
            group["lr"] = learning_rate * group["rate_scale"]
        optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    return StepResult(tuple(sums), int(tokens), total, gradient_norm, is_finite)
