"""Section on fine-tuning: ragged steps of 32 short texts, the whole step in one CUDA graph."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import cycle

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from litebert.config import HeadConfig, OptimConfig
from litebert.fast import accelerate
from litebert.nn import AlbertForTask, Batch
from litebert.nn.batch import rounded
from litebert.optim import build_optimizer, clip_gradients
from on_gpu.notes import Bench
from on_gpu.work import SHARED, WARM_UPS, Call, Run, Sequences, Setting, captured, in_turns

BATCH_SIZE, MEAN_LENGTH, LONGEST = 32, 23, 64
FILLERS = 16
"""Sequences that take up the rows a batch does not need, at least one row each."""
EPOCH, EPOCHS = 67_349, 3
"""Examples of SST-2, and how often they are seen."""
OPTIM = OptimConfig(name="adamw", learning_rate=2e-5)
HEAD = HeadConfig(kind="sequence-classification", labels=("negative", "positive"))
Losses = Callable[[], Tensor]
EAGER, GRAPH, STATIC = "litebert", "litebert, CUDA graph", "litebert, rows of one number"
THEIRS = "transformers, sdpa, autocast, padded"


def finetuning(bench: Bench) -> None:
    """Compare steps with the batches still on the host, as a trainer has them."""
    setting = bench.setting
    texts = _texts(setting, count=4 if setting.is_smoke else 40)
    tokens = round(float(np.mean([each.num_tokens for each in texts])))
    bench.figure("real tokens a step", tokens, "", note=f"{BATCH_SIZE} texts")
    runs = bench.warmed(EAGER, lambda: Run(_eager_steps(setting, texts), tokens))
    name = GRAPH if setting.is_cuda else STATIC
    runs |= bench.warmed(name, lambda: Run(_static_steps(setting, texts), tokens))
    runs |= bench.theirs(THEIRS, lambda: Run(_their_steps(setting, texts), tokens))
    taken = in_turns(runs, setting)
    for each, seconds in taken.items():
        bench.figure(each, seconds * 1e3, "ms a step", note=f"{tokens / seconds:,.0f} tokens/s")
    _apart(bench, texts)
    ours = min(taken[each] for each in runs if each != THEIRS)
    whole = ours * EPOCHS * EPOCH / BATCH_SIZE
    if setting.is_cuda:
        bench.target(f"{EPOCHS} epochs of {EPOCH:,} such texts", whole, "s", most=30)
    if THEIRS in taken:
        bench.figure(f"best of litebert: times {THEIRS}", taken[THEIRS] / ours, "x")


def _texts(setting: Setting, count: int) -> list[Sequences]:
    """Return batches of lengths like SST-2's."""
    batches = []
    for seed in range(count):
        generator = np.random.Generator(np.random.Philox(seed))
        drawn = generator.lognormal(np.log(MEAN_LENGTH) - 0.18, 0.6, size=BATCH_SIZE)
        lengths = np.clip(np.rint(drawn), 4, LONGEST).astype(int).tolist()
        batches.append(Sequences.of(lengths, setting.config.vocab_size))
    return batches


def _network(setting: Setting) -> AlbertForTask:
    """Return a classifier without dropout, so that both ways of stepping can be compared."""
    config = setting.config.model_copy(update={"classifier_dropout_prob": 0.0})
    generator = torch.Generator().manual_seed(1)
    network = AlbertForTask(config, HEAD, dtype=torch.bfloat16, generator=generator)
    accelerate(network)
    return network.to(setting.device).train()


def _labels(texts: Sequences) -> Tensor:
    return texts.ids[torch.tensor([0, *texts.lengths[:-1]]).cumsum(0)] % 2


def _eager_steps(setting: Setting, batches: Sequence[Sequences]) -> Losses:
    """Return a call that takes the next step as litebert's trainer does."""
    network = _network(setting)
    optimizer = build_optimizer(OPTIM, network.named_parameters())
    turns = cycle([(each.batch(torch.device("cpu")), _labels(each)) for each in batches])

    def step() -> Tensor:
        batch, labels = next(turns)
        logits = network(batch.to(setting.device))
        loss = F.cross_entropy(logits, labels.to(setting.device))
        loss.backward()
        clip_gradients(network.parameters(), OPTIM.clip_norm).item()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss.detach()

    return step


@dataclass(frozen=True)
class StaticBatch:
    """Room on the device for any batch: `room` holds ids, positions, offsets and labels in a row.

    Rows that a batch does not need belong to `FILLERS` sequences of their own with no label, so
    that every row is attended to and nothing is left undefined.
    """

    room: Tensor
    rows: int
    lengths: tuple[int, ...]

    @classmethod
    def for_all(cls, batches: Sequence[Sequences], device: torch.device) -> StaticBatch:
        """Make room for the largest of the batches; `lengths` are upper bounds."""
        rows = rounded(max(each.num_tokens for each in batches) + FILLERS)
        spare = rows - min(each.num_tokens for each in batches)
        count = BATCH_SIZE + FILLERS
        room = torch.zeros(2 * rows + 2 * count + 1, dtype=torch.int64, device=device)
        lengths = (LONGEST,) * BATCH_SIZE + (max(1, -(-spare // FILLERS)),) * FILLERS
        return cls(room, rows, lengths)

    def exact(self, texts: Sequences) -> tuple[int, ...]:
        """Return the lengths of a batch and of its fillers."""
        spare = self.rows - texts.num_tokens
        return texts.lengths + tuple(spare // FILLERS + (i < spare % FILLERS) for i in range(FILLERS))

    def packed(self, texts: Sequences) -> Tensor:
        """Return a batch as it goes into the room, on the host."""
        ids = F.pad(texts.ids, (0, self.rows - texts.num_tokens))
        whole = Batch.from_flat(ids, torch.zeros_like(ids), self.exact(texts))
        labels = F.pad(_labels(texts), (0, FILLERS), value=-100)
        packed = torch.cat([whole.ids, whole.positions, whole.offsets, labels])
        return packed.pin_memory() if self.room.is_cuda else packed

    def batch(self, lengths: tuple[int, ...]) -> tuple[Batch, Tensor]:
        """Return views of the room; `lengths` may be upper bounds where offsets alone are read."""
        count = len(lengths)
        parts = self.room.split([self.rows, self.rows, count + 1, count])
        ids, positions, offsets, labels = parts
        return Batch(ids, positions, torch.zeros_like(ids), offsets, lengths), labels


def _static_steps(setting: Setting, batches: Sequence[Sequences]) -> Losses:
    """Return a call that copies the next batch into its room and replays the whole step."""
    network = _network(setting)
    optimizer = build_optimizer(OPTIM, network.named_parameters())
    for group in optimizer.param_groups:
        group["lr"] = torch.tensor(OPTIM.learning_rate, device=setting.device)
    static = StaticBatch.for_all(batches, setting.device)
    packed = [static.packed(each) for each in batches]
    static.room.copy_(packed[0])
    turns = cycle(zip(packed, map(static.exact, batches), strict=True))

    def whole(lengths: tuple[int, ...]) -> Tensor:
        batch, labels = static.batch(lengths)
        loss = F.cross_entropy(network(batch), labels)
        loss.backward()
        clip_gradients(network.parameters(), OPTIM.clip_norm)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss.detach()

    replay = captured(partial(whole, static.lengths)) if setting.is_cuda else None

    def step() -> Tensor:
        source, lengths = next(turns)
        static.room.copy_(source, non_blocking=True)
        return replay() if replay else whole(lengths)

    return step


def _their_steps(setting: Setting, batches: Sequence[Sequences]) -> Call:
    """Return a call that takes the next step as users of transformers do."""
    import transformers

    shared = {name: getattr(setting.config, name) for name in SHARED}
    config = transformers.AlbertConfig(**shared, attn_implementation="sdpa", num_labels=2)
    network = transformers.AlbertForSequenceClassification(config).to(setting.device).train()
    optimizer = torch.optim.AdamW(network.parameters(), lr=2e-5, fused=True)
    host = torch.device("cpu")
    turns = cycle([each.rectangle(host) | {"labels": _labels(each)} for each in batches])

    def step() -> None:
        inputs = {name: values.to(setting.device) for name, values in next(turns).items()}
        with torch.autocast(setting.device.type, torch.bfloat16):
            loss = network(**inputs).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step


def _apart(bench: Bench, texts: Sequence[Sequences]) -> None:
    """Compare the losses of the first steps: capturing takes some on the first batch."""
    setting = bench.setting
    before = WARM_UPS if setting.is_cuda else 0

    def losses() -> float:
        plain = _eager_steps(setting, [texts[0]] * before + list(texts))
        static = _static_steps(setting, texts)
        for _ in range(before):
            plain()
        pairs = [(plain().item(), static().item()) for _ in texts[:8]]
        return max(abs(one - other) for one, other in pairs)

    apart = bench.attempt("losses of both ways", losses)
    if apart is not None:
        bench.target("eager and rows of one number: losses apart", apart, "", most=1e-2)
