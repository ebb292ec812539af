"""One process with two threads or two with one?

    python benchmarks/two_cores.py CORPUS
    python benchmarks/two_cores.py TABLE.csv --model MODEL

On a machine with two free cores; a corpus is pretrained on, a table is fine-tuned on. Runs are
interleaved; printed are medians of the tokens a second that each run reports for its last step,
and their spread, and the load of the machine before: beyond 0.5 other work shares the cores, and
only the comparison between the two kinds means anything. `--busy` keeps one core busy meanwhile.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median

SETTINGS = ["train.steps=12", "train.log_every=10", "train.eval_every=1000", "train.precision=fp32"]
SETTINGS += ["train.eval_at_start=false", "train.save_every=1000"]
KINDS = {"one process, two threads": (1, 2), "two processes, one thread": (2, 1)}


def speed(words: Sequence[str], processes: int, threads: int) -> float:
    """Train some steps; return tokens a second of the steps after the first ones."""
    with tempfile.TemporaryDirectory() as runs:
        launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node"]
        command = [sys.executable, *launcher, str(processes), "-m", "litebert", *words]
        command += ["--runs", runs, "--quiet", *SETTINGS, f"train.threads={threads}"]
        environment = {**os.environ, "OMP_NUM_THREADS": str(threads)}
        subprocess.run(command, check=True, env=environment, stdout=subprocess.DEVNULL)
        (metrics,) = Path(runs).glob("*/metrics.jsonl")
        rows = [json.loads(line) for line in metrics.read_text().splitlines()]
    return float([row for row in rows if row["kind"] == "train"][-1]["tokens_per_second"])


@contextmanager
def busy(is_asked: bool) -> Iterator[None]:
    """Keep one core busy, if asked."""
    command = [sys.executable, "-c", "while True: pass"]
    process = subprocess.Popen(command) if is_asked else None
    try:
        yield
    finally:
        if process:
            process.kill()
            process.wait()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path)
    parser.add_argument("--preset", default="mini", help="of a network that is pretrained")
    parser.add_argument("--model", help="that is fine-tuned")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--busy", action="store_true")
    asked = parser.parse_args()
    if asked.model:
        verb = ["finetune", str(asked.data), "--model", asked.model]
    else:
        verb = ["pretrain", "--corpus", str(asked.data), "--preset", asked.preset]
        verb += ["train.eval_sequences=8", "train.batch_size=32", "objective.max_seq_length=128"]
    print(f"load before: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    found: dict[str, list[float]] = {kind: [] for kind in KINDS}
    with busy(asked.busy):
        for _ in range(asked.rounds):
            for kind, (processes, threads) in KINDS.items():
                found[kind].append(speed(verb, processes, threads))
    for kind, speeds in found.items():
        low, high = min(speeds), max(speeds)
        print(f"{kind}: {median(speeds):,.0f} tokens/s ({low:,.0f} to {high:,.0f})")
