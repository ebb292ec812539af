"""What fewer steps cost in accuracy and save in time, on SST-2: a fixed depth, and
every step.

    OMP_NUM_THREADS=1 python -m benchmarks.adaptive_depth MODEL OUT [--steps 1000] [--seeds 1,2]

For each seed, OUT gets a run with a head after every step and a plain one, trained as
in benchmarks/tasks; rerun the command to resume. Times are CPU times of one thread, the
minimum of several interleaved rounds; batches hold the texts in the order of the file.
"""

import sys
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from benchmarks.measure import machine, table, take_turns
from benchmarks.texts import DATA
from litebert.cli.command import command_of
from litebert.config import FinetuneConfig
from litebert.inference.finetuned import Finetuned
from litebert.nn import AlbertForTask, Batch
from litebert.settings import resolve, settings_from_words
from litebert.tasks.kinds.family import collate
from litebert.train.finetune import finetune

SETTINGS = [
    "task.name=sst2",
    f"data.folder={DATA / 'glue'}",
    "task.max_length=128",
    "optim.learning_rate=1e-4",
]
SETTINGS += [
    "optim.warmup_steps=0.1",
    "train.batch_size=32",
    "train.precision=auto",
    "train.log_every=50",
]
SETTINGS += ["train.save_every=100"]
SIZES = (1, 32)


def main(
    model: str,
    out: Path,
    *,
    steps: int = 1_000,
    seeds: tuple[int, ...] = (1,),
    rounds: int = 5,
) -> None:
    """Train the runs that are missing, measure them, and print a table for each
    seed.
    """
    torch.set_num_threads(1)
    for seed in seeds:
        runs = {}
        for name in ("exits", "plain"):
            words = [
                *SETTINGS,
                f"model.start={model}",
                f"train.seed={seed}",
                f"train.steps={steps}",
            ]
            words += [
                f"train.eval_every={steps}",
                f"train.exits={str(name == 'exits').lower()}",
            ]
            if code := finetune(
                resolve(FinetuneConfig, settings_from_words(words)),
                out / f"{name}-{seed}",
            ):
                sys.exit(code)
            runs[name] = Finetuned.open(out / f"{name}-{seed}")
        header = [
            "SST-2 dev",
            "accuracy",
            "ms a text, alone",
            "times",
            "ms, 32 a batch",
            "times",
        ]
        print(
            f"\nseed {seed}, {machine()}\n\n{table(header, measured(runs, rounds))}",
            flush=True,
        )


@torch.inference_mode()
def measured(runs: Mapping[str, Finetuned], rounds: int) -> list[list[str]]:
    """Classify the same texts at every depth; ratios are to all steps of the network
    with exits.
    """
    model = runs["exits"]
    network = runs["exits"].network
    plain = runs["plain"].network
    examples = model.dataset.read(DATA / "glue", "dev")
    features = model.dataset.family.features(
        examples, model.tokenizer, max_length=128, training=False
    )
    batches = {
        size: [collate(features[i : i + size]) for i in range(0, len(features), size)]
        for size in SIZES
    }
    labels = torch.tensor([int(example.label) for example in examples])
    depth = network.config.num_steps
    ways: dict[str, Callable[[Batch], Tensor]] = {"trained without exits": plain}
    for number in range(depth, 0, -1):
        ways[f"depth {number}"] = partial(_limited, network, number)
    answers: dict[tuple[str, int], Tensor] = {}

    def ask(name: str, size: int) -> None:
        answers[name, size] = torch.cat([ways[name](batch) for batch in batches[size]])

    calls = {
        f"{name} {size}": partial(ask, name, size) for size in SIZES for name in ways
    }
    times = {
        name: 1e3 * min(seconds) / len(labels)
        for name, seconds in take_turns(calls, rounds=rounds).items()
    }
    lines = []
    for name in ways:
        # a text must get the same answer alone and in a batch
        torch.testing.assert_close(
            answers[name, 1], answers[name, 32], rtol=1e-4, atol=1e-4
        )
        accuracy = (answers[name, 32].argmax(1) == labels).float().mean()
        cells = [name, f"{100 * accuracy:.1f}"]
        for size in SIZES:
            taken = times[f"{name} {size}"]
            cells += [f"{taken:.2f}", f"{times[f'depth {depth} {size}'] / taken:.2f}"]
        lines.append(cells)
    return lines


def _limited(network: AlbertForTask, depth: int, batch: Batch) -> Tensor:
    network.albert.depth = depth
    logits: Tensor = network(batch)
    return logits


if __name__ == "__main__":
    command_of(main, "adaptive_depth")()
