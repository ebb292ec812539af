"""Peak memory and speed of `corpus build` on one core, for inputs of growing size.

    python -m benchmarks.corpus_memory [--megabytes 100,1000]

The books of the test data, repeated, as rows of .jsonl and as one .txt that is a single
document. Each build runs in a process of its own.
"""

import json
import tempfile
import time
from itertools import cycle, islice
from pathlib import Path

from benchmarks.measure import apart, peak_bytes, table
from benchmarks.texts import VOCABULARY, chapters
from litebert.cli.command import command_of

CHAPTERS = 2_000
"""From more than 60 books, about 30 MB."""


def main(*, megabytes: tuple[int, ...] = (100, 1_000)) -> None:
    """Print one line per build."""
    lines = list[list[str]]()
    for kind in ("jsonl", "txt"):
        for size in megabytes:
            lines.append(_line(kind, size))
    print(table(["input", "peak resident memory", "per core", "tokens/s"], lines))


def _line(kind: str, size: int) -> list[str]:
    """Write an input of `size` megabytes, build a corpus of it, and describe that."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"input.{kind}"
        write_input(path, size * 1_000_000)
        peak, seconds, tokens = apart(measure, path, f"{folder}/corpus")
    return [
        f"{size} MB of .{kind}",
        f"{peak} MB",
        f"{size / seconds:.1f} MB/s",
        f"{tokens / seconds:,.0f}",
    ]


def write_input(path: Path, num_bytes: int) -> None:
    """Write chapters as rows, or as a single document that ends with the file."""
    with path.open("wb") as file:
        for chapter in cycle(islice(chapters(), CHAPTERS)):
            if path.suffix == ".jsonl":
                text = json.dumps({"text": chapter}, ensure_ascii=False) + "\n"
            else:
                text = f"{chapter}\n\n"
            file.write(text.encode())
            if file.tell() >= num_bytes:
                break


def measure(path: str, output: str) -> tuple[float, float, int]:
    """Build in this process; return peak megabytes, seconds and tokens."""
    from litebert.corpus import build_corpus

    summary = build_corpus(
        [Path(path)], tokenizer=VOCABULARY, output=Path(output), workers=1
    )
    return peak_bytes() // 2**20, time.process_time(), summary.train.tokens


if __name__ == "__main__":
    command_of(main, "corpus_memory")()
