"""One process with two threads or two with one?

    python -m benchmarks.two_cores CORPUS
    python -m benchmarks.two_cores TABLE.csv --model MODEL

On a machine with two free cores; a corpus is pretrained on, a table is fine-tuned on. Runs are interleaved; printed
are medians of the tokens a second that each run reports for its last step, their spread, and the load of the machine:
beyond 0.5 other work shares the cores, and only the comparison between the two kinds means anything. `--busy` keeps one
core busy.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median

from benchmarks.measure import machine

SETTINGS = ["train.steps=12", "train.log_every=10", "train.eval_every=1000", "train.precision=fp32"]
SETTINGS += ["train.eval_at_start=false", "train.save_every=1000"]
KINDS = {"one process, two threads": (1, 2), "two processes, one thread": (2, 1)}


def speed(words: list[str], processes: int, threads: int) -> float:
    """Train some steps; return tokens a second of the steps after the first ones."""
    with tempfile.TemporaryDirectory() as runs:
        command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes)]
        command += ["-m", "litebert", *words, "--runs", runs, "--quiet", *SETTINGS, f"train.threads={threads}"]
        environment = {**os.environ, "OMP_NUM_THREADS": str(threads)}
        subprocess.run(command, check=True, env=environment, stdout=subprocess.DEVNULL)
        (metrics,) = Path(runs).glob("*/metrics.jsonl")
        rows = [json.loads(line) for line in metrics.read_text().splitlines()]
    return float([row for row in rows if row["kind"] == "train"][-1]["tokens_per_second"])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path)
    parser.add_argument("--preset", default="mini", help="of a network that is pretrained")
    parser.add_argument("--model", help="that is fine-tuned")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--busy", action="store_true")
    asked = parser.parse_args()
    words = ["pretrain", "--corpus", str(asked.data), "--preset", asked.preset, "train.eval_sequences=8"]
    words += ["train.batch_size=32", "objective.max_seq_length=128"]
    if asked.model:
        words = ["finetune", str(asked.data), "--model", asked.model]
    print(machine())
    found: dict[str, list[float]] = {kind: [] for kind in KINDS}
    other = subprocess.Popen([sys.executable, "-c", "while True: pass"]) if asked.busy else None
    try:
        for _ in range(asked.rounds):
            for kind, (processes, threads) in KINDS.items():
                found[kind].append(speed(words, processes, threads))
    finally:
        if other:
            other.kill()
            other.wait()
    for kind, speeds in found.items():
        print(f"{kind}: {median(speeds):,.0f} tokens/s ({min(speeds):,.0f} to {max(speeds):,.0f})")
