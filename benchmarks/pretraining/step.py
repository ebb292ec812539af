"""A training step of the small presets on one core: litebert as it was, as it is, transformers.

    python -m benchmarks.pretraining.step --rounds 7

All train the same shape on 16 x 128 pieces in bf16, one thread, in turn. The clock is this process's CPU time, so that
other work on the machine counts less; each figure is the median of the rounds' ratios to litebert as it is. "As it was"
has the tanh GELU, argmax over all logits, and cross-entropy on a float32 copy.
"""

from __future__ import annotations

from statistics import median
from unittest.mock import patch

import torch
from torch import Tensor
from torch.nn import functional as F

from benchmarks.measure import Call, machine, table, take_turns
from benchmarks.steps import Step, our_step, their_network, their_step
from benchmarks.texts import made_up
from litebert.cli.command import command_of
from litebert.config import AlbertConfig, preset
from litebert.nn import AlbertForPretraining

SEQUENCES, LENGTH, VOCAB_SIZE = 16, 128, 16_000


def ours(config: AlbertConfig, optimizer: str) -> Step:
    """Return litebert's step."""
    texts = made_up([LENGTH] * SEQUENCES, vocab_size=VOCAB_SIZE)
    return our_step(AlbertForPretraining(config, dtype=torch.bfloat16), texts, optimizer=optimizer)


def before(config: AlbertConfig) -> Call:
    """Return litebert's step as it was."""
    step = ours(config.model_copy(update={"hidden_act": "gelu_new"}), "adamw")

    def of_a_copy(logits: Tensor, labels: Tensor) -> Tensor:
        return F.cross_entropy(logits.float(), labels, reduction="sum")

    def by_argmax(logits: Tensor, labels: Tensor) -> Tensor:
        return (logits.argmax(-1) == labels).sum()

    def with_old_parts() -> None:
        module = "litebert.tasks.pretraining"
        with patch(f"{module}.masked_loss", of_a_copy), patch(f"{module}._correct", by_argmax):
            step()

    return with_old_parts


def main(*, presets: str = "mini,small", rounds: int = 7) -> None:
    """Time the steps in turn, and print the table."""
    torch.set_num_threads(1)
    print(f"{machine()}\n")
    lines = []
    for name in presets.split(","):
        config = preset(name).model_copy(update={"vocab_size": VOCAB_SIZE})
        steps: dict[str, Call] = {"now, Muon": ours(config, "muon"), "now, AdamW": ours(config, "adamw")}
        steps["before, AdamW"] = before(config)
        steps["transformers, AdamW"] = their_step(
            their_network(config), made_up([LENGTH] * SEQUENCES, vocab_size=VOCAB_SIZE)
        )
        times = {label: each[1:] for label, each in take_turns(steps, rounds=rounds + 1).items()}
        for label, seconds in times.items():
            ratios = [s / now for s, now in zip(seconds, times["now, AdamW"], strict=True)]
            lines.append([name, label, f"{1e3 * min(seconds):.0f}", f"{median(ratios):.2f}"])
    print(table(["preset", "step", "CPU ms, fastest", "ratio to now"], lines))


if __name__ == "__main__":
    command_of(main, "step")()
