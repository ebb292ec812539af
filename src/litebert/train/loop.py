"""The training loop, for any task: load, resume, step, evaluate, save, log."""

import math
import time
from dataclasses import dataclass
from typing import Generic

from litebert.config import FinetuneConfig, PretrainConfig, TrainConfig
from litebert.errors import LitebertError
from litebert.files import sync_file
from litebert.folder import ModelFolder
from litebert.optim import (
    MomentOptimizer,
    build_schedule,
    state_tensors,
    use_average,
)
from litebert.runs import METRICS_FILE, RunFolder
from litebert.tasks.task import Task, Work
from litebert.train.beginning import settings_of_other_version
from litebert.train.checkpoint import Checkpoints, RunProgress
from litebert.train.clock import Clock
from litebert.train.log import RunLog
from litebert.train.pace import Pace
from litebert.train.run import write_model
from litebert.train.session import Session
from litebert.train.step import FIRST_SCALE, StepResult, count, training_step

# more steps than any run takes: the clock may decide which step is the last
NO_END = 1 << 40


@dataclass(frozen=True)
class Trainee(Generic[Work]):
    """What is trained: a task with its network, the optimizer, and the model, which is
    the network with all that is written beside it.
    """

    task: Task[Work]
    optimizer: MomentOptimizer
    model: ModelFolder


def train(
    trainee: Trainee[Work],
    config: PretrainConfig | FinetuneConfig,
    log: RunLog,
    *,
    key_measure: str | None = None,
    pace: Pace | None = None,
) -> bool:
    """Train to the last step, or until a stop is requested; return whether the last
    step was reached.

    With a `key_measure`, the first model with its highest value is written to the run's
    `best`. A `pace` may change the number of threads.
    """
    settings = config.train
    session = log.session
    task = trainee.task
    checkpoints = _open_checkpoints(trainee, settings, session)
    # The steps of the schedule are planned. A run by the clock takes more or fewer, each
    # of which advances the schedule by `progress.stride`.
    schedule = build_schedule(
        config.optim,
        total_steps=settings.steps,
        is_by_clock=settings.minutes is not None,
    )
    progress = _restore(trainee, checkpoints, config, log)
    # After the checkpoint, which says how much of its time the run has spent.
    clock = Clock.of_run(settings, session, progress)
    if clock is not None:
        log.ends = clock.ends
    steps_left = progress.steps_left(settings.steps)
    log.begin(progress.step, progress.step + steps_left)
    best = BestModel.of_run(trainee, log, key_measure)
    if progress.step == 0 and settings.eval_at_start:
        log.evaluation(progress.step, best.evaluate)

    # The batches begin at the step of the checkpoint: each is a function of its number,
    # so nothing is replayed.
    batches = iter(task.batches(progress.step, NO_END))
    is_stopping = False
    while steps_left and not is_stopping:
        # ---- the step
        begun = time.monotonic()
        works = next(batches)  # this process's share of a batch, in micro-batches
        # Not the step: by the clock, a step may advance the schedule by more or less.
        rate = schedule(min(settings.steps - 1, int(progress.position)))
        result = training_step(
            task,
            works,
            trainee.optimizer,
            step=progress.step,
            learning_rate=rate,
            clip_norm=config.optim.clip_norm,
            seed=settings.seed,
            world=session.world,
            loss_scale=progress.loss_scale,
        )
        count(progress, result, config, log)
        if pace is not None:
            pace.count(progress.step, time.monotonic() - begun)
        steps_left = progress.steps_left(settings.steps)

        # ---- reports and evaluations, always after the last step
        log.advance(progress.step, progress.step + steps_left)
        if not steps_left or progress.step % settings.log_every == 0:
            _report_window(task, progress, result, rate, log)
        if not steps_left or progress.step % settings.eval_every == 0:
            log.evaluation(progress.step, best.evaluate)
        # After the evaluation, whose time the clock must know.
        if clock is not None and steps_left:
            clock.adjust(progress, log.evaluation_seconds)

        # ---- checkpoints
        # After a step that counts as skipped, the run neither stops nor saves: the
        # checkpoint before it stays the newest.
        is_stopping = session.should_stop() and not progress.skipped_in_a_row
        is_due = (
            not steps_left or is_stopping or progress.step % settings.save_every == 0
        )
        if is_due and not progress.skipped_in_a_row and session.world.is_first:
            _save(trainee, checkpoints, progress, session)
    if pace is not None and not steps_left:
        pace.conclude(progress.step)
    return not steps_left


def _open_checkpoints(
    trainee: Trainee[Work], settings: TrainConfig, session: Session
) -> Checkpoints:
    """Return the checkpoints of a run, whose disk must have room for them."""
    checkpoints = Checkpoints(
        session.folder / "checkpoints",
        settings.keep_checkpoints,
        settings.keep_every,
        trainee.model,
    )
    if session.world.is_first:  # the only one that writes
        parameters = trainee.task.network.parameters()
        checkpoints.require_disk(sum(p.numel() for p in parameters))
    return checkpoints


def _restore(
    trainee: Trainee[Work],
    checkpoints: Checkpoints,
    config: PretrainConfig | FinetuneConfig,
    log: RunLog,
) -> RunProgress:
    """Load the newest good checkpoint, if there is one, in all processes; return the
    progress that it had, or that of a new run.
    """
    network = trainee.task.network
    optimizer = trainee.optimizer
    world = log.session.world
    problems = list[LitebertError]()
    # Only the first process reads the disk, which others may not share. They receive
    # the progress, then weights and moments.
    restored = world.from_first(
        lambda: checkpoints.restore_latest(network, optimizer, problems)
    )
    world.copy_first_([*network.parameters(), *state_tensors(optimizer).values()])
    for problem in problems:
        log.say(f"skipped a damaged checkpoint\n{problem}", is_warning=True)
    if problems and restored is None:
        log.say(
            "no undamaged checkpoint is left: training starts again from scratch",
            is_warning=True,
        )
    if restored is not None:
        _note_other_version(config, log)
        return RunProgress.model_validate(restored)
    progress = RunProgress()
    # bf16 has the range of float32, so that only fp16 needs a scale
    if config.train.precision == "fp16":
        progress.loss_scale = FIRST_SCALE
    return progress


def _note_other_version(config: PretrainConfig | FinetuneConfig, log: RunLog) -> None:
    """Say if another version of litebert began a run that is resumed."""
    if not log.session.world.is_first:
        return
    changed = settings_of_other_version(RunFolder(log.session.folder), config)
    if changed:
        log.say(f"another version of litebert began this run: {'; '.join(changed)}")


def _save(
    trainee: Trainee[Work],
    checkpoints: Checkpoints,
    progress: RunProgress,
    session: Session,
) -> None:
    """Write a checkpoint, after the log that belongs to it is on disk: both survive a
    power cut.
    """
    # A resumed run drops rows of the log after its checkpoint, but cannot make up rows
    # that are lost before it.
    metrics = session.folder / METRICS_FILE
    if metrics.exists():
        sync_file(metrics)
    checkpoints.save(trainee.task.network, trainee.optimizer, progress)


def _report_window(
    task: Task[Work],
    progress: RunProgress,
    result: StepResult,
    rate: float,
    log: RunLog,
) -> None:
    """Log the means since the last report, if a step counted, and begin again."""
    if progress.window:  # empty if all steps since then were skipped
        rates = {"learning_rate": rate}
        if result.is_finite:
            rates["gradient_norm"] = result.gradient_norm
        measures = task.measures(progress.window)
        log.training(progress.step, progress.window_tokens, measures, rates)
    progress.window = ()  # saved with checkpoints, so that no step is left out
    progress.window_tokens = 0


@dataclass
class BestModel(Generic[Work]):
    """Evaluates, and keeps the first model with the highest value of the key measure,
    if there is one, in the run's `best`.
    """

    trainee: Trainee[Work]
    log: RunLog
    key_measure: str | None
    value: float = -math.inf  # the highest so far

    @classmethod
    def of_run(
        cls, trainee: Trainee[Work], log: RunLog, key_measure: str | None
    ) -> "BestModel[Work]":
        """Return it with the highest value in the log, which a resumed run has."""
        best = cls(trainee, log, key_measure)
        if key_measure and log.session.world.is_first:
            for row in RunFolder(log.session.folder).evaluations:
                best.value = max(best.value, row.values.get(key_measure, -math.inf))
        return best

    def evaluate(self) -> dict[str, float]:
        """Return the measures of the optimizer's average of the weights, if it keeps
        one; write the model if it is the best.
        """
        session = self.log.session
        with use_average(self.trainee.optimizer):
            measures = self.trainee.task.evaluate()
            value = measures.get(self.key_measure or "", -math.inf)
            # false for NaN, too; of equal models, the first stays
            is_better = self.value < value < math.inf
            if is_better and session.world.is_first:
                self.value = value
                write_model(session.folder / "best", self.trainee.model)
        return measures
