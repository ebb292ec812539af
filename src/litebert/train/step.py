"""A training step, and what it leaves in the progress of a run: the scale of the loss,
skipped steps, means, and whether training diverges.
"""

import math
import operator
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from litebert import rng
from litebert.config import FinetuneConfig, PretrainConfig
from litebert.device import device_of
from litebert.distributed import ALONE, World
from litebert.errors import NonFiniteError
from litebert.optim import MomentOptimizer, clip_gradients
from litebert.tasks.task import Task, Work
from litebert.train.checkpoint import RunProgress
from litebert.train.log import RunLog

# The first loss scale in fp16; it doubles after so many finite steps.
FIRST_SCALE = 2.0**15
STEPS_PER_SCALE = 2_000
TREND = 0.9  # decay of the running mean of the losses
DIVERGED = 2.0  # from this multiple of the first loss on, that mean is a divergence


@dataclass(frozen=True)
class StepResult:
    """The results of one step over all processes; the weights were updated only if
    `is_finite`.
    """

    sums: tuple[float, ...]  # of the task, `Task.num_sums`
    tokens: int  # without padding
    loss: float  # of the whole step
    gradient_norm: float  # of all gradients together, before clipping
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
    """Update the weights from one batch; a loss or gradient that is not finite changes
    nothing.

    The loss is multiplied by `loss_scale` and the gradients are divided by it, so that
    small ones survive in fp16; this is exact for powers of two. With several processes,
    `works` is this one's share. Gradients are summed once per step, not earlier: that
    of a shared block is complete only at the end of the backward pass.
    """
    # Dropout depends only on the step and the process, so that a checkpoint has no state
    # of a generator.
    torch.manual_seed(rng.torch_seed(seed, "dropout", step, world.rank))
    parameters = list(task.network.parameters())
    device = device_of(task.network)
    # What the host will read, on the device: the task's sums, the loss, the tokens,
    # (num_sums + 2,). One tensor, so that it is read at once.
    totals = torch.zeros(task.num_sums + 2, dtype=device.sum_dtype, device=device.place)
    for work in works:
        # Each loss is already a share of the whole step's: gradients only add up.
        loss = task.loss(work)
        (loss.total * loss_scale).backward()  # type: ignore[no-untyped-call]
        totals[:-2] += loss.sums
        totals[-2] += loss.total.detach()
        totals[-1] += sum(work.batch.lengths)
    gradients = [p.grad for p in parameters if p.grad is not None]
    if world.size > 1:
        world.sum_(gradients)
        world.sum_([totals])
    # Unscaled before the norm: clipping is for the gradients themselves.
    if loss_scale != 1:
        torch._foreach_mul_(gradients, 1 / loss_scale)
    # of all gradients together, before clipping; () on the device
    norm = clip_gradients(parameters, clip_norm)
    # The only place where a step waits for a GPU: nothing may change unless everything
    # is finite.
    totals_and_norm = torch.cat([totals, norm.to(totals.dtype)[None]])
    *sums, total, tokens, gradient_norm = totals_and_norm.tolist()
    is_finite = all(map(math.isfinite, (*sums, total, gradient_norm)))
    if is_finite:
        for group in optimizer.param_groups:
            # a new head, for instance, may learn faster than the encoder
            group["lr"] = learning_rate * group["rate_scale"]
        optimizer.step()
    # Also after a step that changes nothing: its gradients must not enter the next one.
    # None, not zeros, frees their memory for the next forward pass.
    optimizer.zero_grad(set_to_none=True)
    return StepResult(tuple(sums), int(tokens), total, gradient_norm, is_finite)


# ---- what a step leaves --------------------------------------------------------------


def count(
    progress: RunProgress,
    result: StepResult,
    config: PretrainConfig | FinetuneConfig,
    log: RunLog,
) -> None:
    """Add a step to the progress; log a skipped step or a divergence; raise after too
    many skipped in a row.
    """
    # A skipped step counts, too: it has used up its batch.
    progress.step = progress.step + 1
    progress.position = progress.position + progress.stride
    if config.train.precision == "fp16":
        _adjust_scale(progress, result)
    if not result.is_finite:
        _skip(progress, result, config, log)
        return  # its values must not enter the means
    progress.skipped_in_a_row = 0
    log.tokens += result.tokens
    _add_to_window(progress, result)
    _watch_divergence(progress, result, config, log)


def _adjust_scale(progress: RunProgress, result: StepResult) -> None:
    """Halve the scale of the loss if a gradient overflowed, double it after many finite
    steps.
    """
    progress.scaled_steps += 1
    if not result.is_finite:
        # At a scale of 1, the values themselves overflow: no scale helps.
        progress.loss_scale = max(1.0, progress.loss_scale / 2)
        progress.scaled_steps = 0
    elif progress.scaled_steps == STEPS_PER_SCALE:
        # Powers of two only, so that scaling rounds nothing.
        progress.loss_scale = progress.loss_scale * 2
        progress.scaled_steps = 0


def _skip(
    progress: RunProgress,
    result: StepResult,
    config: PretrainConfig | FinetuneConfig,
    log: RunLog,
) -> None:
    """Log a step that changed nothing; raise after too many in a row."""
    # If only gradients overflowed, the next step may succeed with the halved scale, so
    # this one does not count.
    if progress.loss_scale == 1 or not math.isfinite(result.loss):
        progress.skipped_in_a_row += 1
    seen = f"loss {result.loss:.4g}, gradient norm {result.gradient_norm}"
    log.note(progress.step, f"step {progress.step} skipped: {seen}")
    if progress.skipped_in_a_row > config.train.max_skipped_steps:
        raise NonFiniteError(
            "LB-503",
            f"{progress.skipped_in_a_row} steps in a row had a loss or gradient that is"
            f" not finite: {seen} at step {progress.step}",
            expected="finite numbers; the last checkpoint is complete and untouched",
            next=_lower_rate(config),
        )


def _lower_rate(config: PretrainConfig | FinetuneConfig) -> str:
    rate = config.optim.learning_rate / 3
    return f"start a run with optim.learning_rate={rate:.1e}"


def _add_to_window(progress: RunProgress, result: StepResult) -> None:
    """Add the sums of a step to those since the last report."""
    before = progress.window or (0.0,) * len(result.sums)
    progress.window = tuple(map(operator.add, before, result.sums))
    progress.window_tokens += result.tokens


def _watch_divergence(
    progress: RunProgress,
    result: StepResult,
    config: PretrainConfig | FinetuneConfig,
    log: RunLog,
) -> None:
    """Warn once if the losses grow: one bad batch is no divergence, so their running
    mean is compared with the first.
    """
    if progress.first_loss is None or progress.trend is None:
        progress.first_loss = result.loss
        progress.trend = result.loss
    else:
        progress.trend = TREND * progress.trend + (1 - TREND) * result.loss
    # A first loss below 1, of a model that was trained before, would warn of noise.
    if progress.trend <= DIVERGED * max(1.0, progress.first_loss):
        progress.diverged = None  # it has recovered
    elif progress.diverged is None:
        progress.diverged = progress.step
        losses = (
            f"about {progress.trend:,.4g} at step {progress.step}, the first was"
            f" {progress.first_loss:.4g}"
        )
        advice = (
            f"{_lower_rate(config)} under another --name; the last checkpoint from"
            " before this stays"
        )
        log.note(
            progress.step,
            f"warning: training diverges: the loss is {losses}; {advice}",
            is_warning=True,
        )
