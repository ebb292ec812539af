"""Peak memory and speed of `corpus build` on one core, for inputs of growing size.

python benchmarks/corpus_memory.py [--megabytes 100 1000]

Needs the real data (LITEBERT_TEST_DATA, default ../shared/data): its books, repeated, as rows
of .jsonl and as one .txt that is a single document. Each build runs in a process of its own.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from itertools import cycle, islice
from pathlib import Path

DATA = Path(os.environ.get("LITEBERT_TEST_DATA", Path(__file__).parents[1] / "../shared/data"))
ROW = "{:>8} {:>7} MB {:>9} MB {:>9.1f} MB/s {:>12,.0f}"


def main() -> None:
    """Print one line a build."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--megabytes", type=int, nargs="+", default=[100, 1000])
    parser.add_argument("--measure", nargs=2, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.measure:
        measure(*map(Path, arguments.measure))
        return
    print(f"{'input':>8} {'size':>10} {'peak RSS':>12} {'per core':>14} {'tokens/s':>12}")
    for kind in ("jsonl", "txt"):
        for megabytes in arguments.megabytes:
            with tempfile.TemporaryDirectory() as folder:
                path = Path(folder) / f"input.{kind}"
                write(path, megabytes * 1_000_000)
                print(ROW.format(kind, megabytes, *measured(path, Path(folder))), flush=True)


def write(path: Path, size: int) -> None:
    """Fill a file with chapters: a row each, or text that ends where the file ends."""
    with path.open("wb") as file:
        for chapter in cycle(chapters()):
            row = json.dumps({"text": chapter}, ensure_ascii=False) + "\n"
            file.write((row if path.suffix == ".jsonl" else f"{chapter}\n\n").encode())
            if file.tell() >= size:
                return


def chapters() -> Iterator[str]:
    """Yield the chapters of 60 books, some 30 MB."""
    with gzip.open(DATA / "text" / "books.jsonl.gz", "rt", encoding="utf-8") as lines:
        for line in islice(lines, 60):
            yield from (chapter["text"] for chapter in json.loads(line)["chapters"])


def measured(path: Path, folder: Path) -> tuple[int, float, float]:
    """Return peak megabytes, megabytes a second and tokens a second of CPU time."""
    command = [sys.executable, __file__, "--measure", str(path), str(folder / "corpus")]
    result = json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)
    seconds = result["seconds"]
    return result["peak"], path.stat().st_size / 1e6 / seconds, result["tokens"] / seconds


def measure(path: Path, output: Path) -> None:
    """Build in this process and print what it took."""
    from litebert.corpus import build_corpus

    tokenizer = DATA / "tokenizer" / "spiece.model"
    summary = build_corpus([path], tokenizer=tokenizer, output=output, workers=1)
    seconds = time.process_time()
    # ru_maxrss would be that of the parent process where that one is larger.
    status = Path("/proc/self/status").read_text()
    peak = int(next(line.split()[1] for line in status.splitlines() if "VmHWM" in line))
    tokens = summary.train.tokens
    print(json.dumps({"peak": peak // 1024, "seconds": seconds, "tokens": tokens}))


if __name__ == "__main__":
    main()
