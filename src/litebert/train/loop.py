"""The training loop and its step, for any task: load, resume, step, evaluate, save,
log; and the clock, for runs of a given time.
"""

import math
import operator
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Generic

import torch

from litebert import rng
from litebert.config import FinetuneConfig, PretrainConfig, TrainConfig
from litebert.device import device_of
from litebert.distributed import ALONE, World
from litebert.errors import LitebertError, NonFiniteError
from litebert.files import sync_file
from litebert.folder import ModelFolder
from litebert.optim import (
    MomentOptimizer,
    build_schedule,
    clip_gradients,
    state_tensors,
    use_average,
)
from litebert.runs import METRICS_FILE, RunFolder
from litebert.tasks.task import Task, Work
from litebert.train.checkpoint import Checkpoints, RunProgress
from litebert.train.log import RunLog
from litebert.train.pace import Pace
from litebert.train.run import Session, changed_settings, write_model

# first loss scale in fp16; it doubles after so many finite steps
FIRST_SCALE = 2.0**15
STEPS_PER_SCALE = 2_000
TREND = 0.9  # decay of the running mean of the losses
DIVERGED = 2.0  # from this multiple of the first loss on, that mean is a divergence
# more steps than any run takes: the clock may decide which step is the last
NO_END = 1 << 40
MIN_STEPS = 20  # the fewest of a run by the clock
# comparisons of the clock with the plan in a run; how many of the latest give the pace
LOOKS = 50
RECENT = 10


# ---- the loop ------------------------------------------------------------------------


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
    schedule = build_schedule(
        config.optim,
        total_steps=settings.steps,
        is_by_clock=settings.minutes is not None,
    )
    progress = _restore(trainee, checkpoints, config, log)
    clock = Clock.of_run(settings, session, progress)
    if clock is not None:
        log.ends = clock.ends
    left = progress.steps_left(settings.steps)
    log.begin(progress.step, progress.step + left)
    best = BestModel.of_run(trainee, log, key_measure)
    if progress.step == 0 and settings.eval_at_start:
        log.evaluation(progress.step, best.evaluate)

    # The batches begin at the step of the checkpoint: each is a function of its number,
    # so nothing is replayed.
    batches = iter(task.batches(progress.step, NO_END))
    is_stopping = False
    while left and not is_stopping:
        # ---- the step
        begun = time.monotonic()
        works = next(batches)
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
        left = progress.steps_left(settings.steps)

        # ---- reports and evaluations, always after the last step
        log.advance(progress.step, progress.step + left)
        if not left or progress.step % settings.log_every == 0:
            _report_window(task, progress, result, rate, log)
        if not left or progress.step % settings.eval_every == 0:
            log.evaluation(progress.step, best.evaluate)
        if clock is not None and left:
            clock.adjust(progress, log.evaluation_seconds)

        # ---- checkpoints
        # After a step that counts as skipped, the run neither stops nor saves: the
        # checkpoint before it stays the newest.
        is_stopping = session.should_stop() and not progress.skipped_in_a_row
        is_due = not left or is_stopping or progress.step % settings.save_every == 0
        if is_due and not progress.skipped_in_a_row and session.world.is_first:
            _save(trainee, checkpoints, progress, session)
    if pace is not None and not left:
        pace.conclude(progress.step)
    return not left


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
    if session.world.is_first:
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
    # the other processes receive what the first one read
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
    is_scaled = config.train.precision == "fp16"
    return RunProgress(loss_scale=FIRST_SCALE if is_scaled else 1.0)


def _note_other_version(config: PretrainConfig | FinetuneConfig, log: RunLog) -> None:
    """Say if another version of litebert began a run that is resumed."""
    if not log.session.world.is_first:
        return
    changed = changed_settings(RunFolder(log.session.folder), config)
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
    metrics = session.folder / METRICS_FILE
    if metrics.exists():
        sync_file(metrics)
    checkpoints.save(trainee.task.network, trainee.optimizer, progress)


def _report_window(
    task: Task[Work],
    progress: RunProgress,
    result: "StepResult",
    rate: float,
    log: RunLog,
) -> None:
    """Log the means since the last report, if a step counted, and begin again."""
    if progress.window:
        rates = {"learning_rate": rate}
        if result.is_finite:
            rates["gradient_norm"] = result.gradient_norm
        measures = task.measures(progress.window)
        log.training(progress.step, progress.window_tokens, measures, rates)
    progress.window = ()
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
            is_better = self.value < value < math.inf
            if is_better and session.world.is_first:
                self.value = value
                write_model(session.folder / "best", self.trainee.model)
        return measures


# ---- what a step leaves: the scale of the loss, skipped steps, means, divergence -----


def count(
    progress: RunProgress,
    result: "StepResult",
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


def _adjust_scale(progress: RunProgress, result: "StepResult") -> None:
    """Halve the scale of the loss if a gradient overflowed, double it after many finite
    steps.
    """
    progress.scaled_steps += 1
    if not result.is_finite:
        progress.loss_scale = max(1.0, progress.loss_scale / 2)
        progress.scaled_steps = 0
    elif progress.scaled_steps == STEPS_PER_SCALE:
        # Powers of two only, so that scaling rounds nothing.
        progress.loss_scale = progress.loss_scale * 2
        progress.scaled_steps = 0


def _skip(
    progress: RunProgress,
    result: "StepResult",
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


def _add_to_window(progress: RunProgress, result: "StepResult") -> None:
    """Add the sums of a step to those since the last report."""
    before = progress.window or (0.0,) * len(result.sums)
    progress.window = tuple(map(operator.add, before, result.sums))
    progress.window_tokens += result.tokens


def _watch_divergence(
    progress: RunProgress,
    result: "StepResult",
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


# ---- the step ------------------------------------------------------------------------


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
    # Dropout depends only on the step and the process, so nothing random is saved.
    torch.manual_seed(rng.torch_seed(seed, "dropout", step, world.rank))
    parameters = list(task.network.parameters())
    device = device_of(task.network)
    # the task's sums, the loss, the tokens: (num_sums + 2,), on the device
    seen = torch.zeros(task.num_sums + 2, dtype=device.sum_dtype, device=device.place)
    for work in works:
        # Each loss is already a share of the whole step's: gradients only add up.
        loss = task.loss(work)
        (loss.total * loss_scale).backward()  # type: ignore[no-untyped-call]
        seen[:-2] += loss.sums
        seen[-2] += loss.total.detach()
        seen[-1] += sum(work.batch.lengths)
    gradients = [p.grad for p in parameters if p.grad is not None]
    if world.size > 1:
        world.sum_(gradients)
        world.sum_([seen])
    if loss_scale != 1:
        torch._foreach_mul_(gradients, 1 / loss_scale)
    # of all gradients together, before clipping; () on the device
    norm = clip_gradients(parameters, clip_norm)
    # The only place where a step waits for a GPU: nothing may change unless everything
    # is finite.
    all_seen = torch.cat([seen, norm.to(seen.dtype)[None]])
    *sums, total, tokens, gradient_norm = all_seen.tolist()
    is_finite = all(map(math.isfinite, (*sums, total, gradient_norm)))
    if is_finite:
        for group in optimizer.param_groups:
            # a new head, for instance, may learn faster than the encoder
            group["lr"] = learning_rate * group["rate_scale"]
        optimizer.step()
    # frees the gradients' memory for the next forward pass
    optimizer.zero_grad(set_to_none=True)
    return StepResult(tuple(sums), int(tokens), total, gradient_norm, is_finite)


# ---- a run by the clock --------------------------------------------------------------


@dataclass
class Clock:
    """Ends a run on time, however fast the machine is: a training step may advance the
    schedule by more or less than 1.

    This stride is adjusted after every 2 % of the time, so that the schedule ends when
    the time is up: warm-up, plateau and decay keep their shares of the time. All
    processes use the clock of the first.
    """

    seconds: float  # of the whole run
    planned: int  # steps of the schedule
    ends: float  # by `now`
    world: World = ALONE
    now: Callable[[], float] = time.monotonic
    # the latest looks, each with the time that was left and the step
    _seen: deque[tuple[float, int]] = field(
        default_factory=lambda: deque(maxlen=RECENT)
    )

    @classmethod
    def of_run(
        cls, settings: TrainConfig, session: Session, progress: RunProgress
    ) -> "Clock | None":
        """Return the clock of a run, which has already spent some of its time if it is
        resumed; None for a run of a number of steps.
        """
        if settings.minutes is None:
            return None
        seconds = 60 * settings.minutes
        end = session.begun + seconds - progress.seconds
        return cls(seconds, settings.steps, end, session.world)

    def adjust(self, progress: RunProgress, seconds_to_end: float) -> None:
        """Set the time spent, and the stride by the pace of the last 20 % of the time;
        keep `seconds_to_end` free.
        """
        left = self.world.broadcast(self.ends - self.now())  # seconds
        step = progress.step
        # saved with a checkpoint: a resumed run has only the rest of the time
        progress.seconds = self.seconds - left
        if not self._seen:
            self._seen.append((left, step))
        left_before, before = self._seen[0]  # the oldest look that counts
        left_then, _ = self._seen[-1]  # the latest
        is_too_early = left_then - left < self.seconds / LOOKS
        if step == before or is_too_early:
            return
        self._seen.append((left, step))
        # what is left of the schedule is spread over the steps that fit the time
        for_steps = left - self.world.broadcast(seconds_to_end)
        pace = (step - before) / (left_before - left)  # steps per second
        num_steps = max(1, MIN_STEPS - step, round(for_steps * pace))
        progress.stride = (self.planned - progress.position) / num_steps
