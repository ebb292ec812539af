"""What a run will need, estimated by measurements on this machine: seconds per step,
memory and disk; and, in a run by the clock, how many steps fit the time.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from statistics import median

import torch
from torch import Tensor

from litebert.config import FinetuneConfig, PretrainConfig
from litebert.device import Device, device_of
from litebert.fast import checkpoint_gradients
from litebert.launch import launched_as
from litebert.nn import AlbertForPretraining, Batch
from litebert.objectives.taught import holds_vectors
from litebert.optim import build_optimizer
from litebert.tasks.heads import PretrainingWork
from litebert.tasks.pretraining import Pretraining, micro_batches
from litebert.tasks.task import Task, Work
from litebert.train.clock import MIN_STEPS
from litebert.train.run import threads
from litebert.train.sources import Sources

PROBE_SECONDS = 1.0  # how long a probe is repeated
ROUNDS = 4  # measurements for each number of threads; the first is a warm-up
# one more forward pass of the same shape, next to the three units of a step
WITH_TEACHER = 4 / 3
# memory that the allocator holds relative to memory in use, from the runs in
# benchmarks/RESULTS.md
HEAP = 1.25
# memory of the libraries, including bf16 kernels compiled for each shape (same runs)
CPU_BYTES = {"fp32": 220 << 20, "bf16": 340 << 20, "fp16": 340 << 20}
# weights, gradients and two moments in float32, and one more of each while updating
BYTES_PER_PARAMETER = 4 * 5
# a checkpoint has weights and two moments in float32
CHECKPOINT_BYTES = 4 * 3


@dataclass(frozen=True)
class Estimate:
    """What a run needs."""

    num_parameters: int
    seconds_per_step: float  # without evaluations
    memory_bytes: int  # at its peak, in each process
    disk_bytes: int  # its checkpoints and its model


def estimate(
    config: PretrainConfig, device: Device, sources: Sources | None = None
) -> Estimate:
    """Time some sequences and one update, and scale to this process's share of the real
    batch.

    The sequences are held-out ones of the corpus; before there is a corpus, they are
    made up.
    """
    before = device.allocated_bytes()
    train = config.train
    # Its weights are random: they change neither time nor memory.
    network = AlbertForPretraining(
        config.model,
        heads=config.objective.chosen_heads,
        dtype=device.dtype(train.precision),
    )
    network.to(device.place)
    if train.gradient_checkpointing:
        checkpoint_gradients(network.albert)
    num_networks = 1.0
    if config.distil.teacher and not holds_vectors(config.distil.teacher):
        num_networks = WITH_TEACHER
    # of all processes together, in tokens
    mean_length = sources.mean_length(config) if sources else None
    tokens = tokens_of_step(config, mean_length)
    small, large = _probes(config, device, sources)
    return measure_needs(
        Pretraining(network, held_out=(), train=train),
        config,
        small,
        large,
        tokens_per_step=num_networks * tokens / launched_as().size,
        tokens_at_once=_at_once(config) * _mean_length(config),
        bytes_before=before,
    )


def tokens_of_step(config: PretrainConfig, mean_length: float | None = None) -> int:
    """Return the tokens of a step with sequences of that length, by default full ones;
    a teacher's texts are full.
    """
    distil = config.distil
    length = mean_length or config.objective.max_seq_length
    num_tokens = round(config.train.batch_size * length)
    if distil.teacher:
        num_tokens += distil.texts * distil.text_length
    return num_tokens


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
    # both before anything is timed: this also warms up the kernels
    kept_small = _bytes_kept(task, small)
    kept_large = _bytes_kept(task, large)
    tokens_small = sum(small.batch.lengths)
    tokens_large = sum(large.batch.lengths)
    # The difference leaves out copies of the weights, which make a small probe in bf16
    # a third too high.
    more_bytes = max(0, kept_large - kept_small)
    bytes_per_token = more_bytes / max(1, tokens_large - tokens_small)
    # of the larger probe; gradients add up over its repetitions, which does no harm
    seconds = _median_time(partial(_backward, task, large), device)
    # an update takes the same time however many tokens the step has
    optimizer = build_optimizer(config.optim, task.network.named_parameters())
    update = _median_time(optimizer.step, device)
    num_parameters = sum(p.numel() for p in task.network.parameters())
    of_weights = num_parameters * BYTES_PER_PARAMETER
    held = HEAP * (of_weights + bytes_per_token * tokens_at_once)
    libraries = 0
    if device.is_cpu:
        libraries = CPU_BYTES[device.precision(train.precision)]
    # a checkpoint is written before the oldest is removed; the model is weights alone
    num_checkpoints = train.keep_checkpoints + 1
    checkpoints = num_checkpoints * num_parameters * CHECKPOINT_BYTES
    return Estimate(
        num_parameters=num_parameters,
        seconds_per_step=update + tokens_per_step * seconds / tokens_large,
        memory_bytes=bytes_before + int(held) + libraries,
        disk_bytes=checkpoints + num_parameters * 4,
    )


def _bytes_kept(task: Task[Work], work: Work) -> int:
    """Return the bytes that the forward pass keeps for the backward pass."""
    saved: dict[int, int] = {}

    def keep(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()  # views share one: it counts once
        saved[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        _backward(task, work)
    return sum(saved.values())


# ---- a run by the clock --------------------------------------------------------------


def fit_steps(
    config: PretrainConfig, device: Device, sources: Sources | None
) -> tuple[PretrainConfig, Estimate]:
    """Choose the threads, and as many steps as fit `train.minutes` with their
    evaluations; also return the needs.
    """
    # with the threads that the run will have: their number changes the speed
    number = config.train.threads or faster_threads(config, device, sources)
    with threads(number):
        needs = estimate(config, device, sources)
    train = config.train
    # an evaluation is a forward pass, a third of a step for each sequence
    evaluation = needs.seconds_per_step * train.eval_sequences / train.batch_size / 3
    per_step = needs.seconds_per_step + evaluation / train.eval_every
    seconds = 60 * (train.minutes or 0) - 2 * evaluation  # before and after the steps
    steps = max(MIN_STEPS, int(seconds / per_step))
    settled = train.model_copy(update={"steps": steps, "threads": number})
    return config.model_copy(update={"train": settled}), needs


def faster_threads(
    config: PretrainConfig, device: Device, sources: Sources | None
) -> int:
    """Return 1 or all threads, whichever is faster: on a busy machine one thread can
    win.
    """
    num_threads = torch.get_num_threads()
    if num_threads == 1 or not device.is_cpu:
        return num_threads
    network = AlbertForPretraining(
        config.model,
        heads=config.objective.chosen_heads,
        dtype=device.dtype(config.train.precision),
    )
    task = Pretraining(network, held_out=(), train=config.train)
    work, _ = _probes(config, device, sources)
    step = partial(_backward, task, work)
    # the seconds of each round, by the number of threads
    times: dict[int, list[float]] = {1: [], num_threads: []}
    # In turns, so that both meet the same load of other programs.
    for _ in range(ROUNDS):
        for number, seconds in times.items():
            with threads(number):
                seconds.append(device.time(step))
    # the first round warms up
    return min(times, key=lambda number: median(times[number][1:]))


# ---- probes --------------------------------------------------------------------------


def _at_once(config: PretrainConfig) -> int:
    return config.train.micro_batch_size or config.train.batch_size


def _probe_size(config: PretrainConfig, device: Device) -> int:
    """Return the number of sequences of the smaller probe; the larger has twice as
    many, which is a micro-batch on a GPU.
    """
    model = config.model
    # Rows of the weights of a step: query, key, value and output, then the two layers of
    # the feed-forward block.
    kernels = 4 * model.hidden_size + 2 * model.intermediate_size
    # two FLOPs for each weight and step forward, four backward
    per_token = 6 * model.num_steps * kernels * model.hidden_size
    flops = per_token * _mean_length(config)
    return device.probe_size(flops, _at_once(config) // 2)


def _probes(
    config: PretrainConfig, device: Device, sources: Sources | None
) -> tuple[PretrainingWork, PretrainingWork]:
    """Return the smaller and the larger probe, the first half of the larger."""
    number = _probe_size(config, device)
    if sources is not None:
        batch = sources.draw(config, 2 * number)
        if len(batch.offsets) - 1 == 2 * number:
            small = next(micro_batches(batch, number, device))
            large = next(micro_batches(batch, None, device))
            return small, large
    # a corpus that is not there yet, or that holds out very little
    small = _made_up(config, device, number)
    return small, _made_up(config, device, 2 * number)


def _made_up(
    config: PretrainConfig, device: Device, num_sequences: int
) -> PretrainingWork:
    """Return sequences of made-up tokens, of the mean length."""
    length = _mean_length(config)
    ids = torch.arange(num_sequences * length) % config.model.vocab_size
    # never the first [CLS]
    every = max(1, round(1 / config.objective.mask_prob))
    masked = torch.arange(1, len(ids), every)
    return PretrainingWork(
        batch=Batch.from_padded(ids.view(num_sequences, length)).to(device),
        masked_positions=device.copy(masked),
        masked_ids=device.copy(ids[masked]),
        sentence_labels=device.copy(torch.zeros(num_sequences, dtype=torch.int64)),
        step_masked=len(masked),
        step_labeled=num_sequences,
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


def _median_time(work: Callable[[], object], device: Device) -> float:
    """Return the median time of at least two repetitions after a warm-up."""
    device.time(work)
    times: list[float] = []
    while len(times) < 2 or sum(times) < PROBE_SECONDS:
        times.append(device.time(work))
    return median(times)
