"""How threads wait, on a quiet and on a busy machine, beside transformers.

    python -m benchmarks.waiting [--loops 0,2] [--rounds 5] [--seconds 1] [--only "one text"]
                                 [--record benchmarks/RESULTS.md]

A contender is a process with its own settings of OpenMP, because libgomp reads them
once. All of them wait for their turn: in a round each works for some seconds, alone,
beside a number of busy loops. The order changes from round to round. The machine is
quiet if nothing else runs on it: the table shows its load.
"""

import json
import os
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from statistics import fmean, median
from typing import Any

import click

from benchmarks.measure import machine, record_section, table

TITLE = "## Waiting threads: `python -m benchmarks.waiting`"
TEXT = "The old man walked slowly along the river until he saw the lights of the town."
SEQUENCES = 16
LENGTH = 128
LOOP = "while True: pass"
CONTEND = "import sys; from benchmarks.waiting import contend; contend(*sys.argv[1:])"
SHARED = (
    "vocab_size",
    "embedding_size",
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "intermediate_size",
    "max_position_embeddings",
    "hidden_dropout_prob",
    "attention_probs_dropout_prob",
)
"""Settings with the same name in both libraries."""
SETTINGS = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME", "OMP_NUM_THREADS")


@dataclass(frozen=True)
class Contender:
    """A library, and how its threads wait."""

    name: str
    library: str
    environment: dict[str, str]


# 300,000 is what libgomp does by itself; a contender that sets nothing would get
# litebert's choice
CONTENDERS = (
    Contender("litebert", "litebert", {}),
    Contender("litebert, one thread", "litebert", {"OMP_NUM_THREADS": "1"}),
    Contender(
        "litebert, libgomp's own waiting", "litebert", {"GOMP_SPINCOUNT": "300000"}
    ),
    Contender("litebert, sleeping at once", "litebert", {"GOMP_SPINCOUNT": "0"}),
    Contender("litebert, 1,000 turns", "litebert", {"GOMP_SPINCOUNT": "1000"}),
    Contender("litebert, 10,000 turns", "litebert", {"GOMP_SPINCOUNT": "10000"}),
    Contender("transformers", "transformers", {}),
)


# ---- the work of a contender, in its own process -------------------------------------


def training_step(library: str) -> Callable[[], object]:
    """Return a forward and backward pass of the preset tiny in bf16, 16 x 128."""
    import torch

    ids = torch.arange(SEQUENCES * LENGTH).view(SEQUENCES, LENGTH) % 1_000 + 5
    if library == "transformers":
        return _transformers_step(ids)
    import litebert

    network = litebert.AlbertForPretraining(
        litebert.preset("tiny"), dtype=torch.bfloat16
    )
    batch = litebert.Batch.from_padded(ids)
    places = torch.arange(1, SEQUENCES * LENGTH, 7)

    def step() -> None:
        logits = network(batch, places).masked_lm.float()
        torch.nn.functional.cross_entropy(logits, batch.ids[places]).backward()

    return step


def _transformers_step(ids: Any) -> Callable[[], object]:
    import torch
    import transformers

    # of the same shape; not from litebert, which would choose how threads wait
    shape = json.loads(os.environ["TINY"])
    network = transformers.AlbertForMaskedLM(transformers.AlbertConfig(**shape))
    labels = torch.full_like(ids, -100)
    labels.view(-1)[1::7] = ids.view(-1)[1::7]

    def step() -> None:
        with torch.autocast("cpu", torch.bfloat16):
            network(input_ids=ids, labels=labels).loss.backward()

    return step


def texts(library: str, number: int) -> Callable[[], object]:
    """Return the vectors of some short texts by the packaged model."""
    if library == "transformers":
        import torch
        import transformers

        folder = os.environ["PACKAGED"]
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
        network = transformers.AutoModel.from_pretrained(folder).eval()

        def embed() -> None:
            with torch.inference_mode():
                network(**tokenizer([TEXT] * number, return_tensors="pt"))

        return embed
    import litebert

    model = litebert.load()
    return lambda: model.embed([TEXT] * number)


WORK = {
    "training step": training_step,
    "one text": lambda library: texts(library, 1),
    "16 texts": lambda library: texts(library, 16),
}


def contend(library: str, kind: str) -> None:
    """Work for as many seconds as each line of standard input says; print the times."""
    for name in library.split(", "):  # in this order
        import_module(name)
    work = WORK[kind](library)
    for _ in range(3):
        work()
    print("ready", flush=True)
    for line in sys.stdin:
        taken = list[float]()
        end = time.perf_counter() + float(line)
        while time.perf_counter() < end:
            begun = time.perf_counter()
            work()
            taken.append(time.perf_counter() - begun)
        print(json.dumps(taken), flush=True)


# ---- the rounds ----------------------------------------------------------------------


class Process:
    """A contender that is ready to work."""

    def __init__(self, contender: Contender, kind: str, shared: dict[str, str]) -> None:
        environment = dict(os.environ)
        for setting in SETTINGS:
            environment.pop(setting, None)
        self.process = subprocess.Popen(
            [sys.executable, "-c", CONTEND, contender.library, kind],
            env=environment | shared | contender.environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self.read()

    def read(self) -> str:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, "a contender has failed"
        return line

    def work(self, seconds: float) -> list[float]:
        assert self.process.stdin is not None
        print(seconds, file=self.process.stdin, flush=True)
        return json.loads(self.read())


@contextmanager
def busy_loops(number: int) -> Iterator[None]:
    loops = [subprocess.Popen([sys.executable, "-c", LOOP]) for _ in range(number)]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


def measure(
    kind: str, loops: Sequence[int], rounds: int, seconds: float
) -> list[list[object]]:
    """Return a row for each contender: the median over the rounds of its mean time."""
    shared = shared_facts()
    processes = dict[str, Process]()
    for contender in CONTENDERS:
        processes[contender.name] = Process(contender, kind, shared)
    names = list(processes)
    means = defaultdict[tuple[int, str], list[float]](list)  # seconds
    loads = defaultdict[int, list[float]](list)
    try:
        for number in range(rounds):
            first = number % len(names)
            order = names[first:] + names[:first]
            for busy in loops:
                loads[busy].append(os.getloadavg()[0])
                with busy_loops(busy):
                    for name in order:
                        taken = processes[name].work(seconds)
                        means[busy, name].append(fmean(taken))
                click.echo(f"{kind}: round {number + 1}, {busy} loops", err=True)
    finally:
        for process in processes.values():
            process.process.kill()
    rows = list[list[object]]()
    for name in names:
        cells = [f"{1e3 * median(means[busy, name]):.1f}" for busy in loops]
        rows.append([kind, name, *cells])
    shown = [f"{median(loads[busy]):.1f}" for busy in loops]
    return [*rows, [kind, "*load of the machine before a round*", *shown]]


def shared_facts() -> dict[str, str]:
    """Return what a contender cannot ask litebert, which would change how it waits."""
    import litebert
    from litebert.hub.locate import packaged_model

    preset = litebert.preset("tiny")
    shape = {name: getattr(preset, name) for name in SHARED}
    return {"TINY": json.dumps(shape), "PACKAGED": str(packaged_model())}


@click.command()
@click.option("--loops", default="0,2")
@click.option("--rounds", default=5)
@click.option("--seconds", default=1.0)
@click.option("--only", multiple=True, type=click.Choice(list(WORK)))
@click.option("--record", type=Path)
def main(
    loops: str, rounds: int, seconds: float, only: Sequence[str], record: Path | None
) -> None:
    """Print the table, and put it into a Markdown file."""
    busy = [int(number) for number in loops.split(",")]
    rows = list[list[object]]()
    for kind in only or WORK:
        rows += measure(kind, busy, rounds, seconds)
    header = ["work", "contender", *(f"{number} busy loops" for number in busy)]
    section = (
        f"{TITLE}\n\nMilliseconds, the median of {rounds} interleaved rounds of the"
        f" mean over {seconds:g} s. A turn is one pause instruction of a thread that"
        f" waits. {machine()}\n\n{table(header, rows)}\n"
    )
    click.echo(section)
    if record is not None:
        record_section(record, section)


if __name__ == "__main__":
    main()
