"""A training step of the small presets on one core: litebert as it was, as it is, transformers.

    python benchmarks/pretraining/step.py --rounds 7

All train the same shape on 16 x 128 pieces in bf16, one thread, in turn. The clock is this
process's CPU time, so that other work on the machine counts less; each figure is the median of the
rounds' ratios to litebert as it is. "As it was" has the tanh GELU, argmax over all logits, and
cross-entropy on a float32 copy.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import NoReturn
from unittest.mock import patch

import click
import torch
from torch import Tensor
from torch.nn import functional as F
from transformers import AlbertConfig as TheirConfig
from transformers import AlbertForPreTraining

from litebert.config import AlbertConfig, OptimConfig, TrainConfig, preset
from litebert.nn import AlbertForPretraining, Batch
from litebert.optim import build_optimizer
from litebert.tasks.pretraining import Pretraining, PretrainingWork
from litebert.train.loop import training_step

SEQUENCES, LENGTH, VOCAB_SIZE = 16, 128, 16_000
MASKED = round(0.15 * SEQUENCES * LENGTH)
Step = Callable[[], object]


@click.command()
@click.option("--presets", default="mini,small", show_default=True)
@click.option("--rounds", default=7, show_default=True)
def main(presets: str, rounds: int) -> None:
    """Time the steps in turn, and print the table."""
    torch.set_num_threads(1)
    print("| preset | step | CPU ms, fastest | ratio to now |\n|---|---|---|---|")
    for name in presets.split(","):
        config = preset(name).model_copy(update={"vocab_size": VOCAB_SIZE})
        steps = {
            "now, Muon": _litebert(config, "muon"),
            "now, AdamW": _litebert(config, "adamw"),
            "before, AdamW": _before(config),
            "transformers, AdamW": _transformers(config),
        }
        times = _timed(steps, rounds)
        for label, seconds in times.items():
            ratios = [s / now for s, now in zip(seconds, times["now, AdamW"], strict=True)]
            fastest, ratio = 1e3 * min(seconds), statistics.median(ratios)
            print(f"| {name} | {label} | {fastest:.0f} | {ratio:.2f} |", flush=True)


def _timed(steps: dict[str, Step], rounds: int) -> dict[str, list[float]]:
    times: dict[str, list[float]] = {label: [] for label in steps}
    for step in steps.values():
        step()
    for _ in range(rounds):
        for label, step in steps.items():
            begun = time.process_time()
            step()
            times[label].append(time.process_time() - begun)
    return times


def _inputs() -> tuple[Tensor, Tensor]:
    """Return ids, and the flat positions that are predicted."""
    generator = torch.Generator().manual_seed(1)
    ids = torch.randint(5, VOCAB_SIZE, (SEQUENCES, LENGTH), generator=generator)
    order = torch.randperm(SEQUENCES * LENGTH, generator=generator)
    return ids, order[:MASKED].sort().values


def _litebert(config: AlbertConfig, optimizer_name: str) -> Step:
    network = AlbertForPretraining(config, dtype=torch.bfloat16).train()
    task = Pretraining(network, open_loader=_no_loader, held_out=(), train=TrainConfig())
    optim = OptimConfig.model_validate({"name": optimizer_name, "learning_rate": 2e-5})
    optimizer = build_optimizer(optim, network.named_parameters())
    ids, masked = _inputs()
    batch = Batch.from_lists(ids.tolist())
    labels = torch.arange(SEQUENCES) % 2
    work = PretrainingWork(batch, masked, batch.ids[masked], labels, MASKED, SEQUENCES)
    return lambda: training_step(task, [work], optimizer, step=0, learning_rate=2e-5, clip_norm=1.0, seed=1)


def _before(config: AlbertConfig) -> Step:
    step = _litebert(config.model_copy(update={"hidden_act": "gelu_new"}), "adamw")

    def with_old_parts() -> None:
        with (
            patch("litebert.tasks.pretraining.masked_loss", _loss_of_a_copy),
            patch("litebert.tasks.pretraining._correct", _correct_by_argmax),
        ):
            step()

    return with_old_parts


def _loss_of_a_copy(logits: Tensor, labels: Tensor) -> Tensor:
    return F.cross_entropy(logits.float(), labels, reduction="sum")


def _correct_by_argmax(logits: Tensor, labels: Tensor) -> Tensor:
    return (logits.argmax(-1) == labels).sum()


def _transformers(config: AlbertConfig) -> Step:
    names = ("vocab_size", "embedding_size", "hidden_size", "num_hidden_layers", "hidden_act")
    names += ("num_attention_heads", "intermediate_size", "hidden_dropout_prob")
    values = {name: getattr(config, name) for name in names}
    model = AlbertForPreTraining(TheirConfig(**values, attention_probs_dropout_prob=0.0)).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-5, fused=True)
    ids, masked = _inputs()
    labels = torch.full((SEQUENCES * LENGTH,), -100)
    labels[masked] = ids.flatten()[masked]
    order = torch.arange(SEQUENCES) % 2

    def step() -> None:
        with torch.autocast("cpu", torch.bfloat16):
            output = model(ids, labels=labels.view_as(ids), sentence_order_label=order)
        output.loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()

    return step


def _no_loader() -> NoReturn:
    raise AssertionError("this benchmark loads nothing")


if __name__ == "__main__":
    main()
