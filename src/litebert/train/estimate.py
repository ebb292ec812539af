"""Estimate what a run will need, by measurements on this machine: time, memory, disk."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from statistics import median
from typing import Literal

import torch
from torch import Tensor

from litebert.config import FinetuneConfig, PretrainConfig
from litebert.fast import checkpoint_gradients
from litebert.nn import AlbertForPretraining, Batch, device_of
from litebert.optim import build_optimizer
from litebert.tasks.pretraining import Pretraining, PretrainingWork, Task, Work
from litebert.train.loop import MIN_STEPS
from litebert.train.run import dtype_of, memory_bytes, threads

PROBE_FLOPS, PROBE_SECONDS = 2e11, 1.0
"""The work of one probe, a few seconds on the slowest cores, and how long it is repeated."""
ROUNDS = 4
"""Measurements of each number of threads; the first warms up."""
WITH_TEACHER = 4 / 3
"""Relative time with a teacher of the same shape: one more forward pass beside the three units of a step."""
HEAP = 1.25
"""What an allocator holds relative to what is in use, by the runs in benchmarks/RESULTS.md."""
CPU_BYTES = {torch.float32: 220 << 20, torch.bfloat16: 340 << 20}
"""Memory of the libraries at work, with bf16 kernels compiled for each shape (same runs)."""


@dataclass(frozen=True)
class Estimate:
    """The needs of a run: seconds per step, bytes of memory at the peak, bytes on disk."""

    num_parameters: int
    seconds_per_step: float
    memory_bytes: int
    disk_bytes: int


def estimate(config: PretrainConfig, device: torch.device) -> Estimate:
    """Time a small batch of made-up tokens and one update, and scale to the real batch."""
    before, train, length = process_bytes(device), config.train, _length(config)
    network = AlbertForPretraining(config.model, dtype=dtype_of(train)).to(device)
    if train.gradient_checkpointing:
        checkpoint_gradients(network.albert)
    return scaled(
        Pretraining(network, held_out=(), train=train),
        config,
        *(_made_up(config, device, times) for times in (1, 2)),
        tokens_per_step=(WITH_TEACHER if config.distil.teacher else 1.0) * most_tokens(config),
        tokens_at_once=(train.micro_batch_size or train.batch_size) * length,
        bytes_before=before,
    )


def most_tokens(config: PretrainConfig) -> int:
    """Return the most tokens of a step: full sequences and, with a teacher, full plain texts."""
    distil = config.distil
    texts = distil.texts * distil.text_length if distil.teacher else 0
    return config.train.batch_size * config.objective.max_seq_length + texts


def scaled(
    task: Task[Work],
    config: PretrainConfig | FinetuneConfig,
    small: Work,
    large: Work,
    *,
    tokens_per_step: float,
    tokens_at_once: float,
    bytes_before: int,
) -> Estimate:
    """Measure what two micro-batches keep, time the larger one and one update, and scale to a whole step."""
    train, device = config.train, device_of(task.network)
    tokens, kept = list[int](), list[int]()  # kept: bytes that the forward pass keeps for the backward pass
    for work in (small, large):  # both before anything is timed: they warm up the kernels, too
        saved: dict[int, int] = {}

        def keep(tensor: Tensor, saved: dict[int, int] = saved) -> Tensor:
            storage = tensor.untyped_storage()  # views share one: it counts once
            saved[storage.data_ptr()] = storage.nbytes()
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            _backward(task, work)
        tokens.append(sum(work.batch.lengths))
        kept.append(sum(saved.values()))
    # The difference leaves out what does not grow with the tokens: copies of the weights, by which one probe of a small
    # batch in bf16 is a third too high.
    growth = max(0, kept[1] - kept[0]) / max(1, tokens[1] - tokens[0])
    seconds = _seconds(partial(_backward, task, large), device, PROBE_SECONDS)
    optimizer = build_optimizer(config.optim, task.network.named_parameters())
    update = _seconds(optimizer.step, device, PROBE_SECONDS)
    num_parameters = sum(p.numel() for p in task.network.parameters())
    # weights, gradients and two moments in float32; one more of each while updating
    held = HEAP * (num_parameters * 4 * 5 + growth * tokens_at_once)
    libraries = CPU_BYTES.get(dtype_of(train), CPU_BYTES[torch.bfloat16]) if device.type == "cpu" else 0
    return Estimate(
        num_parameters=num_parameters,
        seconds_per_step=update + tokens_per_step * seconds / tokens[1],
        memory_bytes=bytes_before + int(held) + libraries,
        # a checkpoint has weights and two moments in float32, and is written before the oldest is removed
        disk_bytes=(train.keep_checkpoints + 1) * num_parameters * 12 + num_parameters * 4,
    )


def with_steps_for(config: PretrainConfig, device: torch.device) -> tuple[PretrainConfig, Estimate]:
    """Choose threads, and the steps with which training and evaluations take `train.minutes`; return the needs, too."""
    number = config.train.threads or faster_threads(config, device)
    with threads(number):
        needs = estimate(config, device)
    train = config.train
    # an evaluation is a forward pass, a third of a step for each sequence
    evaluation = needs.seconds_per_step * train.eval_sequences / train.batch_size / 3
    per_step = needs.seconds_per_step + evaluation / train.eval_every
    steps = max(MIN_STEPS, int((60 * (train.minutes or 0) - 2 * evaluation) / per_step))
    return config.model_copy(update={"train": train.model_copy(update={"steps": steps, "threads": number})}), needs


def faster_threads(config: PretrainConfig, device: torch.device) -> int:
    """Return 1 or all threads, whichever is faster: on a busy machine one thread can win."""
    every = torch.get_num_threads()
    if every == 1 or device.type != "cpu":
        return every
    network = AlbertForPretraining(config.model, dtype=dtype_of(config.train))
    step = partial(_backward, Pretraining(network, held_out=(), train=config.train), _made_up(config, device, 1))
    times: dict[int, list[float]] = {1: [], every: []}
    for _ in range(ROUNDS):
        for number, taken in times.items():
            with threads(number):
                taken.append(_seconds(step, device))
    return min(times, key=lambda number: median(times[number][1:]))


def faster_precision(device: torch.device) -> Literal["fp32", "bf16"]:
    """Time one product in both precisions: bf16 is much faster or slower, by machine."""
    left, right = torch.ones(1_024, 512, device=device), torch.ones(512, 512, device=device)
    products = partial(torch.mm, left, right), partial(torch.mm, left.bfloat16(), right.bfloat16())
    rounds = [[_seconds(product, device) for product in products] for _ in range(20)]
    fp32, bf16 = (min(times) for times in zip(*rounds, strict=True))
    return "bf16" if bf16 < 0.8 * fp32 else "fp32"


def process_bytes(device: torch.device) -> int:
    """Return the memory of this process before training, in bytes."""
    return torch.cuda.memory_allocated(device) if device.type == "cuda" else memory_bytes()


def _made_up(config: PretrainConfig, device: torch.device, times: int) -> PretrainingWork:
    """Return a micro-batch of made-up tokens with as many masks as the real ones."""
    model, length = config.model, _length(config)
    per_token = 6 * model.num_steps * (4 * model.hidden_size + 2 * model.intermediate_size) * model.hidden_size  # FLOPs
    at_once = config.train.micro_batch_size or config.train.batch_size
    number = times * max(1, min(int(PROBE_FLOPS / (per_token * length)), at_once // 2))
    ids = torch.arange(number * length) % model.vocab_size
    masked = torch.arange(1, len(ids), max(1, round(1 / config.objective.mask_prob)))  # never the first [CLS]
    return PretrainingWork(
        batch=Batch.from_padded(ids.view(number, length)).to(device),
        masked_positions=masked.to(device),
        masked_ids=ids[masked].to(device),
        sentence_labels=torch.zeros(number, dtype=torch.int64, device=device),
        step_masked=len(masked),
        step_sequences=number,
    )


def _length(config: PretrainConfig) -> int:
    """Return the mean length of a full batch's sequences: short ones are half as long."""
    longest, short = config.objective.max_seq_length, config.objective.short_seq_prob
    return max(8, int(longest * (1 - short / 2)))


def _backward(task: Task[Work], work: Work) -> None:
    task.loss(work).total.backward()  # type: ignore[no-untyped-call]


def _seconds(work: Callable[[], object], device: torch.device, repeated_for: float = 0.0) -> float:
    """Return the time of `work`, or the median of at least two repetitions after a warm-up."""
    times: list[float] = []
    while not times or (repeated_for and (len(times) < 3 or sum(times[1:]) < repeated_for)):
        start = time.perf_counter()
        work()
        if device.type != "cpu":
            torch.accelerator.synchronize(device)
        times.append(time.perf_counter() - start)
    return median(times[1:] or times)
