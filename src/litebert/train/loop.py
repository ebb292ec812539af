"""The training loop and its step, for any task: load, resume, step, report, evaluate, stop, save."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

import torch

from litebert import rng
from litebert.config import FinetuneConfig, OptimConfig, PretrainConfig, TrainConfig
from litebert.distributed.world import ALONE, World
from litebert.errors import LitebertError, NonFiniteError
from litebert.fast.steps import exact_dtype
from litebert.files import Json
from litebert.nn import Network
from litebert.optim import (
    MomentOptimizer,
    Schedule,
    averaged,
    build_optimizer,
    build_schedule,
    clip_gradients,
    state_tensors,
)
from litebert.tasks.base import Task, Work, device_of
from litebert.tokenizer import Tokenizer
from litebert.train.checkpoint import Checkpoints, RunProgress
from litebert.train.log import RunLog
from litebert.train.pace import FixedSteps, Minutes

FIRST_SCALE, STEPS_PER_SCALE = 2.0**15, 2_000
"""The loss scale in fp16 at first, and the finite steps after which it is doubled."""
TREND, DIVERGED = 0.9, 2.0
"""The share of the running mean of the losses that a step keeps; how far above the first loss it is a divergence."""
NO_END = 1 << 40
"""More steps than any run takes: the pace decides which step is the last."""


class Stopping(Protocol):
    """Tells whether a run should end before its last step: a signal, or an evaluation that no longer improves."""

    @property
    def is_requested(self) -> bool:
        """Whether the run should stop after this step."""


@dataclass(frozen=True)
class Trainer:
    """Everything a run needs besides its task."""

    network: Network
    optimizer: MomentOptimizer
    schedule: Schedule
    pace: FixedSteps | Minutes
    train: TrainConfig
    optim: OptimConfig
    checkpoints: Checkpoints
    log: RunLog
    world: World = ALONE

    @classmethod
    def build(
        cls,
        network: Network,
        config: PretrainConfig | FinetuneConfig,
        folder: Path,
        log: RunLog,
        *,
        begun: float | None = None,
        rate_scales: Mapping[str, float] | None = None,
        world: World = ALONE,
        tokenizer: Tokenizer | None = None,
    ) -> Trainer:
        """Return the trainer of a network in a run's folder, whose clock started at `begun` (of `time.monotonic`)."""
        train, optim = config.train, config.optim
        checkpoints = Checkpoints(folder / "checkpoints", train.keep_checkpoints, train.keep_every, tokenizer)
        if world.is_first:
            checkpoints.require_disk(sum(p.numel() for p in network.parameters()))
        pace: FixedSteps | Minutes = FixedSteps(train.steps)
        if train.minutes is not None:
            begun = time.monotonic() if begun is None else begun
            pace = Minutes.open(folder, minutes=train.minutes, planned=train.steps, begun=begun, world=world)
        log.ends = pace.ends
        return cls(
            network=network,
            optimizer=build_optimizer(optim, network.named_parameters(), rate_scales=rate_scales),
            schedule=build_schedule(optim, total_steps=train.steps),
            pace=pace,
            train=train,
            optim=optim,
            checkpoints=checkpoints,
            log=log,
            world=world,
        )


def resumed(trainer: Trainer) -> RunProgress:
    """Restore the newest good checkpoint and return its progress; say which were not used, and why."""
    network, optimizer, world, log = trainer.network, trainer.optimizer, trainer.world, trainer.log
    problems: list[LitebertError] = []

    def restore() -> Json:
        found, errors = trainer.checkpoints.restore_latest(network, optimizer)
        problems.extend(errors)
        return found.to_json() if found else None

    table = world.from_first(restore)
    if world.size > 1:  # the others receive what the first has read
        state = state_tensors(optimizer, network.named_parameters())
        world.copy_first_([*network.parameters(), *state.values()])
    for problem in problems:
        log.warn(f"passed over a damaged checkpoint\n{problem}")
    if table is None:
        if problems:
            log.warn("no undamaged checkpoint is left: training starts again from nothing")
        log.resume_at(-1)
        return RunProgress(loss_scale=FIRST_SCALE if trainer.train.precision == "fp16" else 1.0)
    progress = RunProgress.of_json(table)
    log.resume_at(progress.step)
    log.say(f"resuming from step {progress.step}")
    return progress


def run_steps(trainer: Trainer, task: Task[Work], progress: RunProgress, stopping: Stopping) -> RunProgress:
    """Train from `progress` to the last step; return where it ended, early if that was requested."""
    train, pace, log, world = trainer.train, trainer.pace, trainer.log, trainer.world

    def evaluate() -> None:
        with averaged(trainer.optimizer):  # the optimizer's average of the weights, if it keeps one
            log.evaluation(progress.step, task.evaluate)

    def should_stop() -> bool:
        # All processes stop after the same step, whichever of them got the signal.
        return bool(world.largest(int(stopping.is_requested)))

    log.begin(progress.step, pace.total(progress.step))
    if progress.step == 0 and train.eval_at_start:
        evaluate()
    batches = iter(task.batches(progress.step, NO_END))
    is_stopping = progress.step > 0 and should_stop()  # resumed after a stop that was already saved
    while not pace.is_last(progress.step) and not is_stopping:
        works = next(batches)
        rate = trainer.schedule(pace.position(progress.step))
        result = training_step(
            task,
            works,
            trainer.optimizer,
            step=progress.step,
            learning_rate=rate,
            clip_norm=trainer.optim.clip_norm,
            seed=train.seed,
            world=world,
            loss_scale=progress.loss_scale,
        )
        progress = counted_step(trainer, progress, result)
        pace.look(progress.step, log.evaluation_seconds)
        is_last = pace.is_last(progress.step)
        log.advance(progress.step, pace.total(progress.step))
        if is_last or progress.step % train.log_every == 0:
            if progress.window:  # the means since the last report
                rates = {"learning_rate": rate}
                if result.is_finite:
                    rates["gradient_norm"] = result.gradient_norm
                log.training(progress.step, progress.window_tokens, task.measures(progress.window), rates)
            progress = replace(progress, window=(), window_tokens=0)
        if is_last or progress.step % train.eval_every == 0:
            evaluate()
        is_stopping = should_stop()
        # After a step that was skipped, the checkpoint before it stays the last one.
        is_due = is_last or is_stopping or progress.step % train.save_every == 0
        if is_due and not progress.skipped_in_a_row:
            log.sync()
            pace.record()
            if world.is_first:
                trainer.checkpoints.save(trainer.network, trainer.optimizer, progress)
    return progress


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


def counted_step(trainer: Trainer, progress: RunProgress, result: StepResult) -> RunProgress:
    """Add a step to the progress; note one that was skipped or a divergence, stop after too many skipped in a row."""
    step, train, log = progress.step + 1, trainer.train, trainer.log
    if train.precision == "fp16":
        progress = rescaled(progress, result)
    if not result.is_finite:  # its values must not enter the means
        skipped = progress.skipped_in_a_row + 1
        seen = f"loss {result.loss:.4g}, gradient norm {result.gradient_norm}"
        log.note(step, f"step {step} skipped: {seen}")
        if skipped > train.max_skipped_steps:
            raise NonFiniteError(
                "LB-503",
                f"{skipped} steps in a row had a loss or gradient that is not finite",
                received=f"{seen} at step {step}",
                expected="finite numbers; the last checkpoint is complete and untouched",
                next=f"start a run with optim.learning_rate={trainer.optim.learning_rate / 3:.1e}",
            )
        return replace(progress, step=step, skipped_in_a_row=skipped)
    first = result.loss if progress.first_loss is None else progress.first_loss
    trend = first if progress.trend is None else TREND * progress.trend + (1 - TREND) * result.loss
    diverged = progress.diverged
    if trend <= DIVERGED * max(1.0, first):
        diverged = None
    elif diverged is None:
        diverged = step
        log.note(
            step,
            f"warning: training diverges: the loss is about {trend:,.4g} at step {step}, the first was {first:.4g}; "
            f"start a run with optim.learning_rate={trainer.optim.learning_rate / 3:.1e} under another --name; "
            "the last checkpoint from before this stays",
            is_warning=True,
        )
    window = progress.window or (0.0,) * len(result.sums)
    return replace(
        progress,
        step=step,
        skipped_in_a_row=0,
        window=tuple(a + b for a, b in zip(window, result.sums, strict=True)),
        window_tokens=progress.window_tokens + result.tokens,
        first_loss=first,
        trend=trend,
        diverged=diverged,
    )


def rescaled(progress: RunProgress, result: StepResult) -> RunProgress:
    """Halve the loss scale if a gradient overflowed; double it after STEPS_PER_SCALE finite steps."""
    if not result.is_finite:
        return replace(progress, loss_scale=max(1.0, progress.loss_scale / 2), scaled_steps=0)
    if progress.scaled_steps + 1 < STEPS_PER_SCALE:
        return replace(progress, scaled_steps=progress.scaled_steps + 1)
    return replace(progress, loss_scale=progress.loss_scale * 2, scaled_steps=0)
