"""Peak memory and speed of `corpus build` on one core, for inputs of growing size.

    python -m benchmarks.corpus_memory [--megabytes 100 1000]

The books of the test data, repeated, as rows of .jsonl and as one .txt that is a single document. Each build runs in a
process of its own.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from itertools import cycle, islice
from pathlib import Path

from benchmarks.measure import peak_bytes, table
from benchmarks.texts import VOCABULARY, documents

CHAPTERS = 2_000
"""Of 60 books and more, some 30 MB."""


def write(path: Path, size: int) -> None:
    """Fill a file with chapters: a row each, or text that ends where the file ends."""
    with path.open("wb") as file:
        for chapter in cycle(islice(documents(), CHAPTERS)):
            row = json.dumps({"text": chapter}, ensure_ascii=False) + "\n"
            file.write((row if path.suffix == ".jsonl" else f"{chapter}\n\n").encode())
            if file.tell() >= size:
                return


def measure(path: Path, output: Path) -> None:
    """Build in this process and print what it took."""
    from litebert.corpus import build_corpus

    summary = build_corpus([path], tokenizer=VOCABULARY, output=output, workers=1)
    print(json.dumps([peak_bytes() // 2**20, time.process_time(), summary.train.tokens]))


def main(megabytes: list[int]) -> None:
    """Print one line a build."""
    lines = []
    for kind in ("jsonl", "txt"):
        for size in megabytes:
            with tempfile.TemporaryDirectory() as folder:
                path = Path(folder) / f"input.{kind}"
                write(path, size * 1_000_000)
                command = [sys.executable, "-m", __spec__.name, "--measure", str(path), f"{folder}/corpus"]
                peak, seconds, tokens = json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)
            lines.append(
                [f"{size} MB of .{kind}", f"{peak} MB", f"{size / seconds:.1f} MB/s", f"{tokens / seconds:,.0f}"]
            )
    print(table(["input", "peak resident memory", "per core", "tokens/s"], lines))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=int, nargs="+", default=[100, 1000])
    parser.add_argument("--measure", nargs=2, type=Path, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.measure:
        measure(*asked.measure)
    else:
        main(asked.megabytes)
