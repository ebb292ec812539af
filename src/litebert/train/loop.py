"""The training loop and its step, for any task: load, resume, step, evaluate, save,
log.

Two more parts: the clock, for runs of a given time; and the estimate of the time,
memory and disk that a run needs.
"""

import math
import operator
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from statistics import median
from typing import Literal

import torch
from torch import Tensor

from litebert import rng
from litebert.config import FinetuneConfig, PretrainConfig
from litebert.distributed import ALONE, World, world_size
from litebert.errors import LitebertError, NonFiniteError
from litebert.fast import DTYPES, checkpoint_gradients, sum_dtype
from litebert.files import sync_file
from litebert.folder import ModelFolder
from litebert.nn import AlbertForPretraining, Batch, device_of
from litebert.optim import (
    MomentOptimizer,
    build_optimizer,
    build_schedule,
    clip_gradients,
    state_tensors,
    use_average,
)
from litebert.runs import METRICS_FILE, Run
from litebert.tasks.heads import PretrainingWork
from litebert.tasks.pretraining import Pretraining
from litebert.tasks.task import Task, Work
from litebert.train.checkpoint import Checkpoints, RunProgress
from litebert.train.pace import Pace
from litebert.train.run import RunLog, memory_bytes, threads, write_model

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


def train(
    task: Task[Work],
    config: PretrainConfig | FinetuneConfig,
    log: RunLog,
    optimizer: MomentOptimizer,
    model: ModelFolder,
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
    optim = config.optim
    network = task.network
    session = log.session
    folder = session.folder
    world = session.world
    checkpoints = Checkpoints(
        folder / "checkpoints",
        settings.keep_checkpoints,
        settings.keep_every,
        model,
    )
    if world.is_first:
        checkpoints.require_disk(sum(p.numel() for p in network.parameters()))
    schedule = build_schedule(
        optim, total_steps=settings.steps, is_by_clock=settings.minutes is not None
    )

    # The newest good checkpoint, if there is one; the other processes receive what the
    # first one read.
    problems = list[LitebertError]()
    found = world.from_first(
        lambda: checkpoints.restore_latest(network, optimizer, problems)
    )
    world.copy_first_([*network.parameters(), *state_tensors(optimizer).values()])
    for problem in problems:
        log.say(f"skipped a damaged checkpoint\n{problem}", is_warning=True)
    if problems and found is None:
        log.say(
            "no undamaged checkpoint is left: training starts again from scratch",
            is_warning=True,
        )
    progress = RunProgress.model_validate(
        found or {"loss_scale": FIRST_SCALE if settings.precision == "fp16" else 1.0}
    )
    clock = None
    if settings.minutes is not None:
        seconds = 60 * settings.minutes
        clock = Clock(
            seconds, settings.steps, session.begun + seconds - progress.seconds, world
        )
        log.ends = clock.ends
    left = progress.steps_left(settings.steps)
    log.begin(progress.step, progress.step + left)

    # the highest value of the key measure so far; a resumed run finds it in its log
    key = key_measure or ""
    before = Run(folder).evaluations if key_measure and world.is_first else ()
    best = max((row.values.get(key, -math.inf) for row in before), default=-math.inf)

    def evaluate() -> dict[str, float]:
        nonlocal best
        # the optimizer's average of the weights, if it keeps one
        with use_average(optimizer):
            measures = task.evaluate()
            value = measures.get(key, -math.inf)
            if world.is_first and best < value < math.inf:
                best = value
                write_model(folder / "best", model)
        return measures

    if progress.step == 0 and settings.eval_at_start:
        log.evaluation(progress.step, evaluate)
    batches = iter(task.batches(progress.step, NO_END))
    is_stopping = False
    while left and not is_stopping:
        begun = time.monotonic()
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
        if pace is not None:
            pace.count(progress.step, time.monotonic() - begun)
        left = progress.steps_left(settings.steps)
        log.advance(progress.step, progress.step + left)
        if not left or progress.step % settings.log_every == 0:
            if progress.window:  # the means since the last report
                rates = {"learning_rate": rate}
                if result.is_finite:
                    rates["gradient_norm"] = result.gradient_norm
                log.training(
                    progress.step,
                    progress.window_tokens,
                    task.measures(progress.window),
                    rates,
                )
            progress.window = ()
            progress.window_tokens = 0
        if not left or progress.step % settings.eval_every == 0:
            log.evaluation(progress.step, evaluate)
        if clock and left:
            clock.adjust(progress, log.evaluation_seconds)
        # After a step that counts as skipped, no run stops or saves: the checkpoint
        # before it stays the newest.
        is_stopping = session.should_stop() and not progress.skipped_in_a_row
        is_due = not left or is_stopping or progress.step % settings.save_every == 0
        if is_due and not progress.skipped_in_a_row and world.is_first:
            if (folder / METRICS_FILE).exists():  # its rows survive a power cut, too
                sync_file(folder / METRICS_FILE)
            checkpoints.save(network, optimizer, progress)
    if pace is not None and not left:
        pace.conclude(progress.step)
    return not left


def count(
    progress: RunProgress,
    result: "StepResult",
    config: PretrainConfig | FinetuneConfig,
    log: RunLog,
) -> None:
    """Add a step to the progress; log a skipped step or a divergence; raise after too
    many skipped in a row.
    """
    advice = (
        f"start a run with optim.learning_rate={config.optim.learning_rate / 3:.1e}"
    )
    progress.step = progress.step + 1
    progress.position = progress.position + progress.stride
    # halve the scale if a gradient overflowed, double it after many steps
    if config.train.precision == "fp16":
        progress.scaled_steps += 1
        if not result.is_finite:
            progress.loss_scale = max(1.0, progress.loss_scale / 2)
            progress.scaled_steps = 0
        elif progress.scaled_steps == STEPS_PER_SCALE:
            progress.loss_scale = progress.loss_scale * 2
            progress.scaled_steps = 0
    if not result.is_finite:  # its values must not enter the means
        # If only gradients overflowed, the next step may succeed with the halved scale,
        # so this one is not counted.
        progress.skipped_in_a_row += progress.loss_scale == 1 or not math.isfinite(
            result.loss
        )
        seen = f"loss {result.loss:.4g}, gradient norm {result.gradient_norm}"
        log.note(progress.step, f"step {progress.step} skipped: {seen}")
        if progress.skipped_in_a_row > config.train.max_skipped_steps:
            what = (
                f"{progress.skipped_in_a_row} steps in a row had a loss or gradient"
                " that is not finite"
            )
            expected = "finite numbers; the last checkpoint is complete and untouched"
            raise NonFiniteError(
                "LB-503",
                f"{what}: {seen} at step {progress.step}",
                expected=expected,
                next=advice,
            )
        return
    progress.skipped_in_a_row = 0
    zeros = (0.0,) * len(result.sums)
    progress.window_tokens += result.tokens
    log.tokens += result.tokens
    progress.window = tuple(map(operator.add, progress.window or zeros, result.sums))
    if progress.first_loss is None or progress.trend is None:
        progress.first_loss = progress.trend = result.loss
    else:
        # one bad batch is not a divergence: a running mean of the losses is compared
        # with the first loss
        progress.trend = TREND * progress.trend + (1 - TREND) * result.loss
    if progress.trend <= DIVERGED * max(1.0, progress.first_loss):
        progress.diverged = None
    elif progress.diverged is None:
        progress.diverged = progress.step
        losses = (
            f"about {progress.trend:,.4g} at step {progress.step}, the first was"
            f" {progress.first_loss:.4g}"
        )
        rest = (
            f"{advice} under another --name; the last checkpoint from before this stays"
        )
        log.note(
            progress.step,
            f"warning: training diverges: the loss is {losses}; {rest}",
            is_warning=True,
        )


# ---- the step ------------------------------------------------------------------------


@dataclass(frozen=True)
class StepResult:
    """The results of one step over all processes; the weights were updated only if
    `is_finite`.
    """

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
    """Update the weights from one batch; a loss or gradient that is not finite changes
    nothing.

    The loss is multiplied by `loss_scale` and the gradients are divided by it, so that
    small ones survive in fp16; this is exact for powers of two. With several processes,
    `works` is this one's share. Gradients are summed once per step, not earlier: that
    of a shared block is complete only at the end of the backward pass.
    """
    torch.manual_seed(rng.torch_seed(seed, "dropout", step, world.rank))
    parameters = list(task.network.parameters())
    # sums, loss, tokens
    seen = parameters[0].new_zeros(
        task.num_sums + 2, dtype=sum_dtype(parameters[0].device)
    )
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
    # the only place where a step waits for the device: nothing may change unless
    # everything is finite
    *sums, total, tokens, gradient_norm = torch.cat(
        [seen, norm.to(seen.dtype)[None]]
    ).tolist()
    is_finite = all(map(math.isfinite, (*sums, total, gradient_norm)))
    if is_finite:
        for group in optimizer.param_groups:
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

    seconds: float
    planned: int  # steps of the schedule
    ends: float
    world: World = ALONE
    now: Callable[[], float] = time.monotonic
    # the time left, the step
    _seen: deque[tuple[float, int]] = field(
        default_factory=lambda: deque(maxlen=RECENT)
    )

    def adjust(self, progress: RunProgress, seconds_to_end: float) -> None:
        """Set the time spent, and the stride by the pace of the last 20 % of the time;
        keep `seconds_to_end` free.
        """
        left = self.world.broadcast(self.ends - self.now())
        step = progress.step
        progress.seconds = self.seconds - left
        if not self._seen:
            self._seen.append((left, step))
        (left_before, before), (left_then, _) = self._seen[0], self._seen[-1]
        if step == before or left_then - left < self.seconds / LOOKS:
            return
        self._seen.append((left, step))
        # the rest of the schedule is spread over the steps that fit the rest of the
        # time
        rest = left - self.world.broadcast(seconds_to_end)
        pace = (step - before) / (left_before - left)
        progress.stride = (self.planned - progress.position) / max(
            1, MIN_STEPS - step, round(rest * pace)
        )


# ---- what a run will need, estimated by measurements on this machine -----------------

# size of a probe (some seconds on the slowest cores); how long it is repeated
PROBE_FLOPS = 2e11
PROBE_SECONDS = 1.0
ROUNDS = 4  # measurements for each number of threads; the first is a warm-up
# one more forward pass of the same shape, next to the three units of a step
WITH_TEACHER = 4 / 3
# memory that the allocator holds relative to memory in use, from the runs in
# benchmarks/RESULTS.md
HEAP = 1.25
# memory of the libraries, including bf16 kernels compiled for each shape (same runs)
CPU_BYTES = {"fp32": 220 << 20, "bf16": 340 << 20, "fp16": 340 << 20}


@dataclass(frozen=True)
class Estimate:
    """What a run needs: seconds per step, peak memory in bytes, bytes on disk."""

    num_parameters: int
    seconds_per_step: float
    memory_bytes: int
    disk_bytes: int


def estimate(
    config: PretrainConfig, device: torch.device, mean_length: float | None = None
) -> Estimate:
    """Time a small batch of made-up tokens and one update, and scale to this process's
    share of the real batch.
    """
    before = process_bytes(device)
    train = config.train
    length = _mean_length(config)
    tokens = tokens_of_step(config, mean_length)
    network = AlbertForPretraining(
        config.model,
        heads=config.objective.chosen_heads,
        dtype=DTYPES[train.precision],
    ).to(device)
    if train.gradient_checkpointing:
        checkpoint_gradients(network.albert)
    return measure_needs(
        Pretraining(network, held_out=(), train=train),
        config,
        *(_dummy_work(config, device, times) for times in (1, 2)),
        tokens_per_step=(WITH_TEACHER if config.distil.teacher else 1.0)
        * tokens
        / world_size(),
        tokens_at_once=(train.micro_batch_size or train.batch_size) * length,
        bytes_before=before,
    )


def tokens_of_step(config: PretrainConfig, mean_length: float | None = None) -> int:
    """Return the tokens of a step with sequences of that length, by default full ones;
    a teacher's texts are full.
    """
    distil = config.distil
    length = mean_length or config.objective.max_seq_length
    texts = distil.texts * distil.text_length if distil.teacher else 0
    return round(config.train.batch_size * length) + texts


def measure_needs(
    task: Task[Work],
    config: PretrainConfig | FinetuneConfig,
    small: Work,
    large: Work,
    *,
    tokens_per_step: float,
    tokens_at_once: float,
    bytes_before: int,
) -> Estimate:
    """Measure the memory that two micro-batches keep, time the larger and one update,
    and scale to a whole step.
    """
    train = config.train
    device = device_of(task.network)
    # kept: bytes that the forward pass keeps for the backward pass
    tokens = list[int]()
    kept = list[int]()
    # both before anything is timed: this also warms up the kernels
    for work in (small, large):
        saved: dict[int, int] = {}

        def keep(tensor: Tensor, saved: dict[int, int] = saved) -> Tensor:
            storage = tensor.untyped_storage()  # views share one: it counts once
            saved[storage.data_ptr()] = storage.nbytes()
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            _backward(task, work)
        tokens.append(sum(work.batch.lengths))
        kept.append(sum(saved.values()))
    # The difference leaves out copies of the weights, which make a small probe in bf16
    # a third too high.
    growth = max(0, kept[1] - kept[0]) / max(1, tokens[1] - tokens[0])
    seconds = _time_work(partial(_backward, task, large), device, PROBE_SECONDS)
    optimizer = build_optimizer(config.optim, task.network.named_parameters())
    update = _time_work(optimizer.step, device, PROBE_SECONDS)
    num_parameters = sum(p.numel() for p in task.network.parameters())
    # weights, gradients and two moments in float32; one more of each while updating
    held = HEAP * (num_parameters * 4 * 5 + growth * tokens_at_once)
    libraries = CPU_BYTES[train.precision] if device.type == "cpu" else 0
    return Estimate(
        num_parameters=num_parameters,
        seconds_per_step=update + tokens_per_step * seconds / tokens[1],
        memory_bytes=bytes_before + int(held) + libraries,
        # a checkpoint has weights and two moments in float32, and is written before the
        # oldest is removed
        disk_bytes=(train.keep_checkpoints + 1) * num_parameters * 12
        + num_parameters * 4,
    )


def fit_steps(
    config: PretrainConfig, device: torch.device, mean_length: float | None
) -> tuple[PretrainConfig, Estimate]:
    """Choose the threads, and as many steps as fit `train.minutes` with their
    evaluations; also return the needs.
    """
    number = config.train.threads or faster_threads(config, device)
    with threads(number):
        needs = estimate(config, device, mean_length)
    train = config.train
    # an evaluation is a forward pass, a third of a step for each sequence
    evaluation = needs.seconds_per_step * train.eval_sequences / train.batch_size / 3
    per_step = needs.seconds_per_step + evaluation / train.eval_every
    steps = max(MIN_STEPS, int((60 * (train.minutes or 0) - 2 * evaluation) / per_step))
    return (
        config.model_copy(
            update={
                "train": train.model_copy(update={"steps": steps, "threads": number})
            }
        ),
        needs,
    )


def faster_threads(config: PretrainConfig, device: torch.device) -> int:
    """Return 1 or all threads, whichever is faster: on a busy machine one thread can
    win.
    """
    every = torch.get_num_threads()
    if every == 1 or device.type != "cpu":
        return every
    network = AlbertForPretraining(config.model, dtype=DTYPES[config.train.precision])
    step = partial(
        _backward,
        Pretraining(network, held_out=(), train=config.train),
        _dummy_work(config, device, 1),
    )
    times: dict[int, list[float]] = {1: [], every: []}
    for _ in range(ROUNDS):
        for number, taken in times.items():
            with threads(number):
                taken.append(_time_work(step, device))
    return min(times, key=lambda number: median(times[number][1:]))


def faster_precision(device: torch.device) -> Literal["fp32", "bf16"]:
    """Time one matrix product in both precisions: depending on the machine, bf16 is
    much faster or much slower.
    """
    left = torch.ones(1_024, 512, device=device)
    right = torch.ones(512, 512, device=device)
    products = (
        partial(torch.mm, left, right),
        partial(torch.mm, left.bfloat16(), right.bfloat16()),
    )
    rounds = [[_time_work(product, device) for product in products] for _ in range(20)]
    fp32, bf16 = (min(times) for times in zip(*rounds, strict=True))
    return "bf16" if bf16 < 0.8 * fp32 else "fp32"


def process_bytes(device: torch.device) -> int:
    """Return the memory of this process before training, in bytes."""
    return (
        torch.cuda.memory_allocated(device) if device.type == "cuda" else memory_bytes()
    )


def _dummy_work(
    config: PretrainConfig, device: torch.device, times: int
) -> PretrainingWork:
    model = config.model
    length = _mean_length(config)
    # FLOPs
    per_token = (
        6
        * model.num_steps
        * (4 * model.hidden_size + 2 * model.intermediate_size)
        * model.hidden_size
    )
    at_once = config.train.micro_batch_size or config.train.batch_size
    number = times * max(1, min(int(PROBE_FLOPS / (per_token * length)), at_once // 2))
    ids = torch.arange(number * length) % model.vocab_size
    # never the first [CLS]
    masked = torch.arange(1, len(ids), max(1, round(1 / config.objective.mask_prob)))
    return PretrainingWork(
        batch=Batch.from_padded(ids.view(number, length)).to(device),
        masked_positions=masked.to(device),
        masked_ids=ids[masked].to(device),
        sentence_labels=torch.zeros(number, dtype=torch.int64, device=device),
        step_masked=len(masked),
        step_labelled=number,
    )


def _mean_length(config: PretrainConfig) -> int:
    """Return the mean length of a full batch's sequences: short ones are half as
    long.
    """
    longest = config.objective.max_seq_length
    short = config.objective.short_seq_prob
    return max(8, int(longest * (1 - short / 2)))


def _backward(task: Task[Work], work: Work) -> None:
    task.loss(work).total.backward()  # type: ignore[no-untyped-call]


def _time_work(
    work: Callable[[], object], device: torch.device, repeated_for: float = 0.0
) -> float:
    """Return the time of `work`, or the median of at least two repetitions after a
    warm-up.
    """
    times: list[float] = []
    while not times or (
        repeated_for and (len(times) < 3 or sum(times[1:]) < repeated_for)
    ):
        start = time.perf_counter()
        work()
        if device.type != "cpu":
            torch.accelerator.synchronize(device)
        times.append(time.perf_counter() - start)
    return median(times[1:] or times)
