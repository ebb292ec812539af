"""A training step of the small presets on one core, compared with transformers: python
-m benchmarks.pretraining.step.

Both train the same shape on 16 x 128 pieces in bf16, one thread, in turns. Times are
CPU times of this process, so that other work on the machine counts less; each figure is
the median of the rounds' ratios to litebert with AdamW.
"""

from statistics import median

import torch

from benchmarks.measure import Call, machine, table, take_turns
from benchmarks.steps import our_step, their_network, their_step
from benchmarks.texts import made_up
from litebert.cli.command import command_of
from litebert.config import preset
from litebert.nn import AlbertForPretraining

SEQUENCES = 16
LENGTH = 128
VOCAB_SIZE = 16_000


def main(*, presets: str = "mini,small", rounds: int = 7) -> None:
    """Time the steps in turns, and print the table."""
    torch.set_num_threads(1)
    print(f"{machine()}\n")
    texts = made_up([LENGTH] * SEQUENCES, vocab_size=VOCAB_SIZE)
    lines = []
    for name in presets.split(","):
        config = preset(name).model_copy(update={"vocab_size": VOCAB_SIZE})
        steps: dict[str, Call] = {
            f"litebert, {optimizer}": our_step(
                AlbertForPretraining(config, dtype=torch.bfloat16),
                texts,
                optimizer=optimizer,
            )
            for optimizer in ("muon", "adamw")
        }
        steps["transformers, adamw"] = their_step(their_network(config), texts)
        times = {
            label: each[1:]
            for label, each in take_turns(steps, rounds=rounds + 1).items()
        }
        for label, seconds in times.items():
            ratios = [
                s / now
                for s, now in zip(seconds, times["litebert, adamw"], strict=True)
            ]
            lines.append(
                [name, label, f"{1e3 * min(seconds):.0f}", f"{median(ratios):.2f}"]
            )
    print(
        table(
            ["preset", "step", "CPU ms, fastest", "ratio to litebert's, adamw"], lines
        )
    )


if __name__ == "__main__":
    command_of(main, "step")()
