"""The training loop and its step, for any task: load, resume, step, evaluate, save, log; and how long a run is."""

import math
import operator
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch

from litebert import rng
from litebert.config import FinetuneConfig, PretrainConfig
from litebert.distributed import ALONE, World
from litebert.errors import LitebertError, NonFiniteError
from litebert.fast.steps import exact_dtype
from litebert.files import sync_file
from litebert.optim import MomentOptimizer, averaged, build_schedule, clip_gradients, state_tensors
from litebert.runs import METRICS_FILE, read_metrics
from litebert.tasks.pretraining import Task, Work
from litebert.tokenizer import Tokenizer
from litebert.train.checkpoint import Checkpoints, RunProgress
from litebert.train.run import BestModel, RunLog

FIRST_SCALE, STEPS_PER_SCALE = 2.0**15, 2_000
"""The loss scale in fp16 at first, and the finite steps after which it is doubled."""
TREND, DIVERGED = 0.9, 2.0
"""The share of the running mean of the losses that a step keeps; how far above the first loss it is a divergence."""
NO_END = 1 << 40
"""More steps than any run takes: the clock may decide which step is the last."""
MIN_STEPS = 20
"""A run by the clock takes at least this many steps."""
LOOKS, RECENT = 50, 10
"""The most times that the clock is compared with the plan, and how many of the last comparisons give the pace."""


# ---- the loop -------------------------------------------------------------------------------------------------------


def train(
    task: Task[Work],
    config: PretrainConfig | FinetuneConfig,
    log: RunLog,
    optimizer: MomentOptimizer,
    tokenizer: Tokenizer,
    best: BestModel | None = None,
) -> bool:
    """Train to the last step, or to where a stop is requested; tell whether that was the last."""
    settings, optim, network, session = config.train, config.optim, task.network, log.session
    folder, world = session.folder, session.world
    checkpoints = Checkpoints(folder / "checkpoints", settings.keep_checkpoints, settings.keep_every, tokenizer)
    if world.is_first:
        checkpoints.require_disk(sum(p.numel() for p in network.parameters()))
    schedule = build_schedule(optim, total_steps=settings.steps, is_by_clock=settings.minutes is not None)

    # The newest good checkpoint, if there is one; the other processes receive what the first has read.
    problems = list[LitebertError]()
    found = world.from_first(lambda: checkpoints.restore_latest(network, optimizer, problems))
    if world.size > 1:
        world.copy_first_([*network.parameters(), *state_tensors(optimizer).values()])
    for problem in problems:
        log.say(f"passed over a damaged checkpoint\n{problem}", is_warning=True)
    if problems and found is None:
        log.say("no undamaged checkpoint is left: training starts again from nothing", is_warning=True)
    progress = RunProgress.model_validate(found or {"loss_scale": FIRST_SCALE if settings.precision == "fp16" else 1.0})
    clock = None
    if settings.minutes is not None:
        seconds = 60 * settings.minutes
        clock = Clock(seconds, settings.steps, session.begun + seconds - progress.seconds, world)
        log.ends = clock.ends
    left = progress.steps_left(settings.steps)
    log.begin(progress.step, progress.step + left)
    if best and progress.step and world.is_first:
        for row in read_metrics(folder):
            best(row, is_written=True)

    def evaluate() -> None:
        with averaged(optimizer):  # the optimizer's average of the weights, if it keeps one
            log.evaluation(progress.step, task.evaluate)

    if progress.step == 0 and settings.eval_at_start:
        evaluate()
    batches = iter(task.batches(progress.step, NO_END))
    is_stopping = progress.step > 0 and session.should_stop()  # resumed after a stop that was already saved
    while left and not is_stopping:
        works = next(batches)
        rate = schedule(min(settings.steps - 1, int(progress.position)))
        result = training_step(
            task,
            works,
            optimizer,
            step=progress.step,
            learning_rate=rate,
            clip_norm=optim.clip_norm,
            seed=settings.seed,
            world=world,
            loss_scale=progress.loss_scale,
        )
        count(progress, result, config, log)
        left = progress.steps_left(settings.steps)
        log.advance(progress.step, progress.step + left)
        if not left or progress.step % settings.log_every == 0:
            if progress.window:  # the means since the last report
                rates = {"learning_rate": rate}
                if result.is_finite:
                    rates["gradient_norm"] = result.gradient_norm
                log.training(progress.step, progress.window_tokens, task.measures(progress.window), rates)
            progress.window, progress.window_tokens = (), 0
        if not left or progress.step % settings.eval_every == 0:
            evaluate()
        if clock and left:
            clock.adjust(progress, log.evaluation_seconds)
        is_stopping = session.should_stop()
        # After a step that was skipped, the checkpoint before it stays the last one.
        is_due = not left or is_stopping or progress.step % settings.save_every == 0
        if is_due and not progress.skipped_in_a_row and world.is_first:
            if (folder / METRICS_FILE).exists():  # its rows survive a power cut, too
                sync_file(folder / METRICS_FILE)
            checkpoints.save(network, optimizer, progress)
    return not left


def count(progress: RunProgress, result: "StepResult", config: PretrainConfig | FinetuneConfig, log: RunLog) -> None:
    """Add a step to the progress; note a skipped one and a divergence; stop after too many skipped in a row."""
    advice = f"start a run with optim.learning_rate={config.optim.learning_rate / 3:.1e}"
    progress.step, progress.position = progress.step + 1, progress.position + progress.stride
    if config.train.precision == "fp16":  # halve the scale if a gradient overflowed, double it after many steps
        progress.scaled_steps += 1
        if not result.is_finite:
            progress.loss_scale, progress.scaled_steps = max(1.0, progress.loss_scale / 2), 0
        elif progress.scaled_steps == STEPS_PER_SCALE:
            progress.loss_scale, progress.scaled_steps = progress.loss_scale * 2, 0
    if not result.is_finite:  # its values must not enter the means
        progress.skipped_in_a_row += 1
        seen = f"loss {result.loss:.4g}, gradient norm {result.gradient_norm}"
        log.note(progress.step, f"step {progress.step} skipped: {seen}")
        if progress.skipped_in_a_row > config.train.max_skipped_steps:
            raise NonFiniteError(
                "LB-503",
                f"{progress.skipped_in_a_row} steps in a row had a loss or gradient that is not finite",
                received=f"{seen} at step {progress.step}",
                expected="finite numbers; the last checkpoint is complete and untouched",
                next=advice,
            )
        return
    progress.skipped_in_a_row, zeros = 0, (0.0,) * len(result.sums)
    progress.window_tokens += result.tokens
    progress.window = tuple(map(operator.add, progress.window or zeros, result.sums))
    if progress.first_loss is None or progress.trend is None:
        progress.first_loss = progress.trend = result.loss
    else:
        # one bad batch is no divergence: a running mean of the losses is compared with the first loss
        progress.trend = TREND * progress.trend + (1 - TREND) * result.loss
    if progress.trend <= DIVERGED * max(1.0, progress.first_loss):
        progress.diverged = None
    elif progress.diverged is None:
        progress.diverged = progress.step
        losses = f"about {progress.trend:,.4g} at step {progress.step}, the first was {progress.first_loss:.4g}"
        rest = f"{advice} under another --name; the last checkpoint from before this stays"
        log.note(progress.step, f"warning: training diverges: the loss is {losses}; {rest}", is_warning=True)


# ---- the step -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class StepResult:
    """The results of one step over all processes; the weights were updated only if `is_finite`."""

    sums: tuple[float, ...]  # of the task, `Task.num_sums`
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
    parameters = list(task.network.parameters())
    seen = parameters[0].new_zeros(task.num_sums + 2, dtype=exact_dtype(parameters[0].device))  # sums, loss, tokens
    for work in works:
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
    norm = clip_gradients(parameters, clip_norm)
    # the one place where a step waits for the device: nothing may change unless all is finite
    *sums, total, tokens, gradient_norm = torch.cat([seen, norm.to(seen.dtype)[None]]).tolist()
    is_finite = all(map(math.isfinite, (*sums, total, gradient_norm)))
    if is_finite:
        for group in optimizer.param_groups:
            group["lr"] = learning_rate * group["rate_scale"]
        optimizer.step()
    optimizer.zero_grad(set_to_none=True)  # the memory of the gradients serves the next forward pass
    return StepResult(tuple(sums), int(tokens), total, gradient_norm, is_finite)


# ---- a run by the clock ---------------------------------------------------------------------------------------------


@dataclass
class Clock:
    """Ends a run with its time, however fast the machine is: a step may be more or less than one of the schedule.

    Its stride through the schedule is adjusted after every 2 % of the time, so that the schedule ends when the time is
    up: warm-up, plateau and decay keep their shares of the time. All processes use the clock of the first.
    """

    seconds: float
    planned: int  # steps of the schedule
    ends: float
    world: World = ALONE
    now: Callable[[], float] = time.monotonic
    _seen: deque[tuple[float, int]] = field(default_factory=lambda: deque(maxlen=RECENT))  # the time left, the step

    def adjust(self, progress: RunProgress, seconds_to_end: float) -> None:
        """Set the time spent and the stride, by the pace of the last 20 % of the time; the end of a run takes some."""
        left, step = self.world.of_first(self.ends - self.now()), progress.step
        progress.seconds = self.seconds - left
        if not self._seen:
            self._seen.append((left, step))
        (left_before, before), (left_then, _) = self._seen[0], self._seen[-1]
        if step == before or left_then - left < self.seconds / LOOKS:
            return
        self._seen.append((left, step))
        # the rest of the schedule is spread over the steps that fit the rest of the time
        rest, pace = left - self.world.of_first(seconds_to_end), (step - before) / (left_before - left)
        progress.stride = (self.planned - progress.position) / max(1, MIN_STEPS - step, round(rest * pace))
