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
from benchmarks.texts import Texts, made_up
from litebert.cli.command import command_of
from litebert.config import AlbertConfig, preset
from litebert.nn import AlbertForPretraining

SEQUENCES = 16
LENGTH = 128
VOCAB_SIZE = 16_000
REFERENCE = "litebert, adamw"


def main(*, presets: str = "mini,small", rounds: int = 7) -> None:
    """Time the steps in turns, and print the table."""
    torch.set_num_threads(1)
    print(f"{machine()}\n")
    texts = made_up([LENGTH] * SEQUENCES, vocab_size=VOCAB_SIZE)
    lines = list[list[str]]()
    for name in presets.split(","):
        config = preset(name).model_copy(update={"vocab_size": VOCAB_SIZE})
        times = take_turns(contenders(config, texts), rounds=rounds, warm_ups=1)
        for label, seconds in times.items():
            pairs = zip(seconds, times[REFERENCE], strict=True)
            ratios = [spent / reference for spent, reference in pairs]
            least = f"{1e3 * min(seconds):.0f}"
            lines.append([name, label, least, f"{median(ratios):.2f}"])
    header = ["preset", "step", "CPU ms, fastest", "ratio to litebert's, adamw"]
    print(table(header, lines))


def contenders(config: AlbertConfig, texts: Texts) -> dict[str, Call]:
    """Return the whole steps to compare, by name."""
    steps = dict[str, Call]()
    for optimizer in ("muon", "adamw"):
        network = AlbertForPretraining(config, dtype=torch.bfloat16)
        steps[f"litebert, {optimizer}"] = our_step(network, texts, optimizer=optimizer)
    steps["transformers, adamw"] = their_step(their_network(config), texts)
    return steps


if __name__ == "__main__":
    command_of(main, "step")()
