"""What fewer steps cost in accuracy and save in time, on SST-2: patience, depth, and every step.

OMP_NUM_THREADS=1 python benchmarks/adaptive_depth.py MODEL OUT [--steps 1000] [--seeds 1,2]

Needs LITEBERT_TEST_DATA (glue). OUT gets a run with a head after every step and a plain one for
each seed, trained as in benchmarks/tasks; the same command goes on where it stopped. Times
are CPU time of one thread, the least of several rounds in which all ways take turns; batches hold
the texts in the order of the file.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import mean

import torch
from torch import Tensor

from litebert.config import FinetuneConfig, resolve, settings_from_words
from litebert.fast import limit_depth, patient_logits
from litebert.fast.exits import is_same_answer, logits_by_step
from litebert.inference.finetuned import Finetuned
from litebert.nn import AlbertForTask, Batch
from litebert.tasks.kinds.family import joined
from litebert.train.finetune import finetune

DATA = Path(os.environ["LITEBERT_TEST_DATA"]) / "glue"
SETTINGS = (
    "task.name=sst2",
    f"data.folder={DATA}",
    "task.max_length=128",
    "optim.learning_rate=1e-4",
    "optim.warmup_steps=0.1",
    "train.batch_size=32",
    "train.precision=auto",
    "train.log_every=50",
    "train.save_every=100",
)
SIZES = (1, 32)
Way = Callable[[Batch], Tensor]


@dataclass(frozen=True)
class Row:
    """One way to ask: accuracy, steps in the mean, milliseconds a text by size of batch."""

    accuracy: float
    steps: float
    milliseconds: Mapping[int, float]


@dataclass(frozen=True)
class Dev:
    """The texts to evaluate on, as batches of each size, with their labels."""

    batches: Mapping[int, Sequence[Batch]]
    labels: Tensor


def main() -> None:
    """Train what is not there, measure, print a table for each seed."""
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    parser.add_argument("out", type=Path)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--seeds", default="1")
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    torch.set_num_threads(1)
    for seed in given.seeds.split(","):
        runs = {}
        for name in ("exits", "plain"):
            runs[name] = given.out / f"{name}-{seed}"
            words = [*SETTINGS, f"model.start={given.model}", f"train.seed={seed}"]
            words += [f"train.steps={given.steps}", f"train.eval_every={given.steps}"]
            words += [f"train.exits={str(name == 'exits').lower()}"]
            outcome = finetune(resolve(FinetuneConfig, settings_from_words(words)), runs[name])
            if outcome.model is None:
                sys.exit(outcome.exit_code)
        print_table(measured(runs, rounds=given.rounds), seed=seed)


def measured(runs: Mapping[str, Path], *, rounds: int) -> dict[str, Row]:
    """Ask the same texts in every way."""
    exits, plain = Finetuned.open(runs["exits"]), Finetuned.open(runs["plain"])
    dev, num_steps = _dev(exits), exits.network.config.num_steps
    by_step = _logits_by_step(exits.network, dev)
    ways: dict[str, Way] = {"trained without exits": _at_depth(plain.network, num_steps)}
    steps = {"trained without exits": float(num_steps)}
    for depth in range(num_steps, 0, -1):
        name = f"depth {depth}"
        ways[name], steps[name] = _at_depth(exits.network, depth), float(depth)
    for patience in range(num_steps, 0, -1):
        name = f"patience {patience}"
        ways[name] = _with_patience(exits.network, patience)
        steps[name] = mean(steps_taken(by_step, patience, exits.network))
    times, answers = _taken_in_turns(ways, dev, rounds)
    return {
        name: Row(
            accuracy=float((answers[name, 32].argmax(1) == dev.labels).float().mean()),
            steps=steps[name],
            milliseconds={size: 1000 * times[name, size] / len(dev.labels) for size in SIZES},
        )
        for name in ways
        if _same_alone(name, answers)
    }


def steps_taken(by_step: Sequence[Tensor], patience: int, network: AlbertForTask) -> list[int]:
    """Replay, from the logits of all steps, after how many each text stops."""
    problem = network.head_config.problem_type
    pairs = pairwise(by_step)
    is_same = torch.stack([is_same_answer(before, after, problem) for before, after in pairs])
    taken = []
    for of_text in is_same.T.tolist():
        repeats, step = 0, 1
        while step < len(by_step) and repeats < patience:
            repeats = repeats + 1 if of_text[step - 1] else 0
            step += 1
        taken.append(step)
    return taken


def print_table(rows: Mapping[str, Row], *, seed: str) -> None:
    """Print Markdown; ratios are to every step of the same network, depth at its full."""
    full = next(row for name, row in rows.items() if name.startswith("depth"))
    print(f"\nseed {seed}\n")
    print("| SST-2 dev | accuracy | steps | ms a text, alone | times | ms, 32 a batch | times |")
    print("|---|---|---|---|---|---|---|")
    for name, row in rows.items():
        cells = [name, f"{100 * row.accuracy:.1f}", f"{row.steps:.2f}"]
        for size in SIZES:
            taken = row.milliseconds[size]
            cells += [f"{taken:.2f}", f"{full.milliseconds[size] / taken:.2f}"]
        print(f"| {' | '.join(cells)} |")
    print(f"\nload {os.getloadavg()[0]:.1f}, torch {torch.__version__}", flush=True)


def _dev(model: Finetuned) -> Dev:
    examples = model.dataset.read(DATA, "dev")
    features = model.dataset.family.features(examples, model.tokenizer, max_length=128, training=False)
    batches = {size: [joined(features[i : i + size]) for i in range(0, len(features), size)] for size in SIZES}
    return Dev(batches, torch.tensor([int(example.label) for example in examples]))


@torch.inference_mode()
def _logits_by_step(network: AlbertForTask, dev: Dev) -> list[Tensor]:
    found = [logits_by_step(network, batch) for batch in dev.batches[32]]
    return [torch.cat(logits) for logits in zip(*found, strict=True)]


def _at_depth(network: AlbertForTask, depth: int) -> Way:
    def ask(batch: Batch) -> Tensor:
        limit_depth(network, depth)
        return network(batch)

    return ask


def _with_patience(network: AlbertForTask, patience: int) -> Way:
    def ask(batch: Batch) -> Tensor:
        limit_depth(network, network.config.num_steps)
        return patient_logits(network, batch, patience)

    return ask


@torch.inference_mode()
def _taken_in_turns(
    ways: Mapping[str, Way], dev: Dev, rounds: int
) -> tuple[dict[tuple[str, int], float], dict[tuple[str, int], Tensor]]:
    """Return the least CPU seconds of each way and size of batch, and the logits."""
    times: dict[tuple[str, int], float] = {}
    answers = {}
    for number in range(rounds):
        for size in SIZES:
            for name, ask in ways.items():
                start = time.process_time()
                answers[name, size] = torch.cat([ask(batch) for batch in dev.batches[size]])
                taken = time.process_time() - start
                times[name, size] = min(times.get((name, size), taken), taken)
        print(f"round {number + 1} of {rounds}", file=sys.stderr)
    return times, answers


def _same_alone(name: str, answers: Mapping[tuple[str, int], Tensor]) -> bool:
    """Refuse figures of a way that answers a text otherwise alone than in a batch."""
    torch.testing.assert_close(answers[name, 1], answers[name, 32], rtol=1e-4, atol=1e-4)
    return True


if __name__ == "__main__":
    main()
