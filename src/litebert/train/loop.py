"""The training loop."""

from __future__ import annotations

from dataclasses import dataclass, replace

from litebert.config import OptimConfig, TrainConfig
from litebert.distributed import ALONE, World
from litebert.errors import LitebertError, NonFiniteError
from litebert.files import Json
from litebert.nn import Network
from litebert.optim import MomentOptimizer, Schedule, averaged, state_tensors
from litebert.tasks.base import Task, Work
from litebert.train.checkpoint import Checkpoints, RunProgress
from litebert.train.interrupt import Stopping
from litebert.train.log import RunLog
from litebert.train.pace import Pace
from litebert.train.step import StepResult, training_step

FIRST_SCALE, STEPS_PER_SCALE = 2.0**15, 2_000
"""The loss scale in fp16 at first, and the finite steps after which it is doubled."""
_NO_END = 1 << 40
"""More steps than any run takes: the pace decides which step is the last."""


@dataclass(frozen=True)
class Trainer:
    """Everything a run needs besides its task."""

    network: Network
    optimizer: MomentOptimizer
    schedule: Schedule
    pace: Pace
    train: TrainConfig
    optim: OptimConfig
    checkpoints: Checkpoints
    log: RunLog
    world: World = ALONE


def run_steps(trainer: Trainer, task: Task[Work], progress: RunProgress, stopping: Stopping) -> RunProgress:
    """Train from `progress` to the last step; return where it ended, early after a signal."""
    train, pace, log = trainer.train, trainer.pace, trainer.log
    log.begin(progress.step, pace.total(progress.step))
    if progress.step == 0 and train.eval_at_start:
        _evaluated(trainer, task, 0)
    batches, is_stopping = iter(task.batches(progress.step, _NO_END)), False
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
            world=trainer.world,
            loss_scale=progress.loss_scale,
        )
        progress = _advanced(trainer, progress, result)
        pace.look(progress.step, log.evaluation_seconds)
        is_last = pace.is_last(progress.step)
        # All processes stop after the same step, whichever of them got the signal.
        is_stopping = bool(trainer.world.largest(int(stopping.is_requested)))
        log.advance(progress.step, pace.total(progress.step))
        if is_last or progress.step % train.log_every == 0:
            progress = _reported(trainer, task, progress, result, rate)
        if is_last or progress.step % train.eval_every == 0:
            _evaluated(trainer, task, progress.step)
        if is_last or is_stopping or progress.step % train.save_every == 0:
            _saved(trainer, progress)
    return progress


def resumed(trainer: Trainer) -> RunProgress:
    """Restore the newest good checkpoint and return its progress; report those not used."""
    found, problems = _restored(trainer)
    for problem in problems:
        trainer.log.say(f"passed over a damaged checkpoint\n{problem}")
    first_scale = FIRST_SCALE if trainer.train.precision == "fp16" else 1.0
    progress = found or RunProgress(loss_scale=first_scale)
    trainer.log.resume_at(progress.step if found else -1)
    if found:
        trainer.log.say(f"resuming from step {progress.step}")
    return progress


def _restored(trainer: Trainer) -> tuple[RunProgress | None, list[LitebertError]]:
    """Restore the newest checkpoint; other processes receive its contents from the first."""
    network, optimizer, world = trainer.network, trainer.optimizer, trainer.world
    problems: list[LitebertError] = []

    def restore() -> Json:
        found, errors = trainer.checkpoints.restore_latest(network, optimizer)
        problems.extend(errors)
        return found.to_json() if found else None

    table = world.from_first(restore)
    if world.size > 1:
        state = state_tensors(optimizer, network.named_parameters())
        world.copy_first_([*network.parameters(), *state.values()])
    return None if table is None else RunProgress.of_json(table), problems


def _evaluated(trainer: Trainer, task: Task[Work], step: int) -> None:
    """Evaluate the weights, or the optimizer's average of them, and report the measures."""
    with averaged(trainer.optimizer):
        trainer.log.evaluation(step, task.evaluate)


def _saved(trainer: Trainer, progress: RunProgress) -> None:
    """Write a checkpoint, unless the last step was skipped: then the previous one stays."""
    if progress.skipped_in_a_row:
        return
    trainer.log.sync()
    trainer.pace.record()
    if trainer.world.is_first:
        trainer.checkpoints.save(trainer.network, trainer.optimizer, progress)


def _advanced(trainer: Trainer, progress: RunProgress, result: StepResult) -> RunProgress:
    """Count the step; stop the run when too many in a row were not finite."""
    step = progress.step + 1
    skipped = 0 if result.is_finite else progress.skipped_in_a_row + 1
    seen = f"loss {result.loss:.4g}, gradient norm {result.gradient_norm}"
    if skipped:
        trainer.log.note(step, f"step {step} skipped: {seen}")
    if skipped > trainer.train.max_skipped_steps:
        raise NonFiniteError(
            "LB-503",
            f"{skipped} steps in a row had a loss or gradient that is not finite",
            received=f"{seen} at step {step}",
            expected="finite numbers; the last checkpoint is complete and untouched",
            next=f"start a run with optim.learning_rate={trainer.optim.learning_rate / 3:.1e}",
        )
    if trainer.train.precision == "fp16":
        progress = _rescaled(progress, result)
    if skipped:  # values that are not finite must not enter the means
        return replace(progress, step=step, skipped_in_a_row=skipped)
    window = progress.window or (0.0,) * len(result.sums)
    return replace(
        progress,
        step=step,
        skipped_in_a_row=0,
        window=tuple(a + b for a, b in zip(window, result.sums, strict=True)),
        window_tokens=progress.window_tokens + result.tokens,
    )


def _rescaled(progress: RunProgress, result: StepResult) -> RunProgress:
    """Halve the loss scale if a gradient overflowed; double it after STEPS_PER_SCALE steps."""
    if not result.is_finite:
        return replace(progress, loss_scale=max(1.0, progress.loss_scale / 2), scaled_steps=0)
    if progress.scaled_steps + 1 < STEPS_PER_SCALE:
        return replace(progress, scaled_steps=progress.scaled_steps + 1)
    return replace(progress, loss_scale=progress.loss_scale * 2, scaled_steps=0)


def _reported(
    trainer: Trainer, task: Task[Work], progress: RunProgress, result: StepResult, rate: float
) -> RunProgress:
    """Report the means since the last report, if there are any, and reset them."""
    if progress.window:
        norm = {"gradient_norm": result.gradient_norm} if result.is_finite else {}
        measures = task.measures(progress.window)
        rates = {"learning_rate": rate, **norm}
        trainer.log.training(progress.step, progress.window_tokens, measures, rates)
    return replace(progress, window=(), window_tokens=0)
