"""The training loop and its step, for any task: resume, step, report, evaluate, stop, save; and how long a run is."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import torch
from pydantic import BaseModel

from litebert import rng
from litebert.config import FinetuneConfig, OptimConfig, PretrainConfig, TrainConfig
from litebert.distributed.world import ALONE, World
from litebert.errors import LitebertError, NonFiniteError
from litebert.fast.steps import exact_dtype
from litebert.files import Json, read_json, write_json
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
from litebert.train.log import BestModel, RunLog
from litebert.train.run import Interruption

FIRST_SCALE, STEPS_PER_SCALE = 2.0**15, 2_000
"""The loss scale in fp16 at first, and the finite steps after which it is doubled."""
TREND, DIVERGED = 0.9, 2.0
"""The share of the running mean of the losses that a step keeps; how far above the first loss it is a divergence."""
NO_END = 1 << 40
"""More steps than any run takes: the pace decides which step is the last."""
CLOCK_FILE = "clock.json"
MIN_STEPS = 20
"""A run by the clock takes at least this many steps."""
LOOKS, RECENT = 50, 10
"""The most times that the clock is compared with the plan, and how many of the last comparisons give the pace."""


class Knot(BaseModel):
    """From `step` on, each step advances the schedule from `position` by `stride`."""

    step: int = 0
    position: float = 0.0
    stride: float = 1.0


class Clock(BaseModel):
    """clock.json: the time spent so far, and every change of the stride."""

    seconds: float = 0.0
    knots: list[Knot] = [Knot()]


@dataclass
class Pace:
    """How long a run is: its planned steps or, with `seconds`, what ends on time however fast the machine is.

    By the clock, the stride through the schedule is adjusted after every 2 % of the time, so that the schedule ends
    when the time is up: warm-up, plateau and decay keep their shares of the time. Each stride is written to disk before
    use: a resumed run repeats them.
    """

    folder: Path
    seconds: float | None
    planned: int
    begun: float = 0.0
    now: Callable[[], float] = time.monotonic
    clock: Clock = field(default_factory=Clock)
    world: World = ALONE
    _seen: deque[tuple[float, int]] = field(default_factory=lambda: deque(maxlen=RECENT))

    @classmethod
    def open(cls, folder: Path, train: TrainConfig, *, begun: float, world: World = ALONE) -> Pace:
        """Continue the clock of a run, or start one; all processes use the first one's clock."""
        if train.minutes is None:
            return cls(folder, None, train.steps)
        path = folder / CLOCK_FILE
        found = world.from_first(lambda: read_json(path, command=f"ls {folder}") if path.exists() else {})
        clock = Clock.model_validate(found)
        begun = world.of_first(begun) - clock.seconds
        return cls(folder, train.minutes * 60, train.steps, begun, clock=clock, world=world)

    @property
    def ends(self) -> float | None:
        """When the time is up."""
        return None if self.seconds is None else self.begun + self.seconds

    def position(self, step: int) -> int:
        """Return the step of the schedule that this step corresponds to."""
        return min(self.planned - 1, int(self._position(step)))

    def is_last(self, step: int) -> bool:
        """Return whether the run is over after this many steps."""
        return step >= self.total(step)

    def total(self, step: int) -> int:
        """Return the step at which the schedule ends with the stride at `step`."""
        knot = self._knot(step)
        return knot.step + max(1, round((self.planned - knot.position) / knot.stride))

    def look(self, step: int, seconds_to_end: float) -> None:
        """Adjust the stride after 2 % of the time, by the pace of the last 20 %; the end of a run takes time, too."""
        if self.seconds is None:
            return
        now = self.world.of_first(self.now())
        if not self._seen:
            self._seen.append((now, step))
        (since, first), (latest, _) = self._seen[0], self._seen[-1]
        is_repeated = step <= self.clock.knots[-1].step
        if self.is_last(step) or is_repeated or step == first or now - latest < self.seconds / LOOKS:
            return
        self._seen.append((now, step))
        # The rest of the plan is spread over the steps that fit the rest of the time.
        left = self.seconds - (now - self.begun) - self.world.of_first(seconds_to_end)
        steps = max(1, MIN_STEPS - step, round(left * (step - first) / (now - since)))
        position = self._position(step)
        self.clock.knots.append(Knot(step=step, position=position, stride=(self.planned - position) / steps))
        self.record()

    def record(self) -> None:
        """Write the time spent and the strides to clock.json."""
        if self.seconds is None:
            return
        self.clock.seconds = self.world.of_first(self.now()) - self.begun
        if self.world.is_first:
            write_json(self.folder / CLOCK_FILE, self.clock.model_dump(mode="json"))

    def _position(self, step: int) -> float:
        knot = self._knot(step)
        return knot.position + (step - knot.step) * knot.stride

    def _knot(self, step: int) -> Knot:
        return next(knot for knot in reversed(self.clock.knots) if knot.step <= step)


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
        pace = Pace.open(folder, train, begun=time.monotonic() if begun is None else begun, world=world)
        log.ends = pace.ends
        optimizer = build_optimizer(optim, network.named_parameters(), rate_scales=rate_scales)
        schedule = build_schedule(optim, total_steps=train.steps)
        return cls(network, optimizer, schedule, pace, train, optim, checkpoints, log, world)


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


def run_steps(
    trainer: Trainer, task: Task[Work], progress: RunProgress, stopping: Interruption | BestModel
) -> RunProgress:
    """Train from `progress` to the last step; return where it ended, early if that was requested."""
    train, pace, log, world = trainer.train, trainer.pace, trainer.log, trainer.world

    def evaluate() -> None:
        with averaged(trainer.optimizer):  # the optimizer's average of the weights, if it keeps one
            log.evaluation(progress.step, task.evaluate)

    def should_stop() -> bool:  # all processes after the same step, whichever of them got the signal
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

    The loss is multiplied by `loss_scale` and its gradients are divided by it, so that small ones survive in fp16; with
    a power of two that is exact. With several processes, `works` are this one's share. Gradients are summed once per
    step: that of a shared block is complete only at the end of the backward pass, so none is sent earlier.
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
