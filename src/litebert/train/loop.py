"""The training loop."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from litebert.config import OptimConfig, TrainConfig
from litebert.errors import NonFiniteError
from litebert.nn import Network
from litebert.optim import MomentOptimizer, Schedule, averaged
from litebert.tasks.base import Task, Work
from litebert.train.checkpoint import Checkpoints, Progress, restore
from litebert.train.interrupt import Stopping
from litebert.train.log import RunLog
from litebert.train.step import StepResult, training_step


@dataclass(frozen=True)
class Trainer:
    """Everything a run needs besides its task."""

    network: Network
    optimizer: MomentOptimizer
    schedule: Schedule
    train: TrainConfig
    optim: OptimConfig
    checkpoints: Checkpoints
    log: RunLog


def run_steps(
    trainer: Trainer, task: Task[Work], progress: Progress, stopping: Stopping
) -> Progress:
    """Train from `progress` to the last step; return where it ended, early if asked to stop."""
    train = trainer.train
    if progress.step == 0 and train.eval_at_start:
        _evaluated(trainer, task, 0)
    for works in task.batches(progress.step, train.steps):
        rate = trainer.schedule(progress.step)
        result = training_step(
            task,
            works,
            trainer.optimizer,
            step=progress.step,
            learning_rate=rate,
            clip_norm=trainer.optim.clip_norm,
            seed=train.seed,
        )
        progress = _advanced(trainer, task, progress, works, result)
        is_last = progress.step == train.steps
        if is_last or progress.step % train.log_every == 0:
            progress = _reported(trainer, task, progress, result, rate)
        if is_last or progress.step % train.eval_every == 0:
            _evaluated(trainer, task, progress.step)
        if is_last or stopping.is_requested or progress.step % train.save_every == 0:
            trainer.checkpoints.save(trainer.network, trainer.optimizer, progress)
        if stopping.is_requested:
            break
    return progress


def resumed(trainer: Trainer) -> Progress:
    """Restore the newest whole checkpoint, naming each damaged one that was passed over."""
    path, problems = trainer.checkpoints.latest()
    for problem in problems:
        trainer.log.say(f"passed over a damaged checkpoint\n{problem}")
    progress = restore(path, trainer.network, trainer.optimizer) if path else Progress()
    trainer.log.resume_at(progress.step if path else -1)
    if path:
        trainer.log.say(f"going on from {path}")
    return progress


def _evaluated(trainer: Trainer, task: Task[Work], step: int) -> None:
    """Evaluate and report the weights, or the average that the optimizer keeps of them."""
    with averaged(trainer.optimizer):
        trainer.log.evaluation(step, task.evaluate)


def _advanced(
    trainer: Trainer,
    task: Task[Work],
    progress: Progress,
    works: Sequence[Work],
    result: StepResult,
) -> Progress:
    """Count the step; stop the run when too many in a row were not finite."""
    step = progress.step + 1
    skipped = 0 if result.is_finite else progress.skipped_in_a_row + 1
    if skipped:
        trainer.log.note(step, f"step {step} skipped: gradient norm {result.gradient_norm}")
    if skipped > trainer.train.max_skipped_steps:
        raise NonFiniteError(
            "LB-503",
            f"{skipped} steps in a row had a loss or gradient that is not finite",
            received=f"gradient norm {result.gradient_norm} at step {step}",
            expected="finite numbers; the last checkpoint is whole and untouched",
            next=f"start a run with optim.learning_rate={trainer.optim.learning_rate / 3:.1e}",
        )
    if skipped:  # what is not finite enters no mean
        return replace(progress, step=step, skipped_in_a_row=skipped)
    sums = result.sums.tolist()
    window = progress.window or (0.0,) * len(sums)
    return replace(
        progress,
        step=step,
        skipped_in_a_row=0,
        window=tuple(a + b for a, b in zip(window, sums, strict=True)),
        window_tokens=progress.window_tokens + sum(map(task.num_tokens, works)),
    )


def _reported(
    trainer: Trainer, task: Task[Work], progress: Progress, result: StepResult, rate: float
) -> Progress:
    """Report the window, if any of its steps counted, and begin a new one."""
    if progress.window:
        norm = {"gradient_norm": result.gradient_norm} if result.is_finite else {}
        measures = task.measures(progress.window)
        rates = {"learning_rate": rate, **norm}
        trainer.log.training(progress.step, progress.window_tokens, measures, rates)
    return replace(progress, window=(), window_tokens=0)
