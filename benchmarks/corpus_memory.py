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
from benchmarks.texts import VOCABULARY, documents
from litebert.cli.command import command_of

CHAPTERS = 2_000
"""From more than 60 books, about 30 MB."""


def measure(path: str, output: str) -> tuple[float, float, int]:
    """Build in this process; return peak megabytes, seconds and tokens."""
    from litebert.corpus import build_corpus

    summary = build_corpus(
        [Path(path)], tokenizer=VOCABULARY, output=Path(output), workers=1
    )
    return peak_bytes() // 2**20, time.process_time(), summary.train.tokens


def main(*, megabytes: tuple[int, ...] = (100, 1_000)) -> None:
    """Print one line per build."""
    lines = []
    for kind, size in ((kind, size) for kind in ("jsonl", "txt") for size in megabytes):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / f"input.{kind}"
            # one row per chapter, or a single document that ends with the file
            with path.open("wb") as file:
                for chapter in cycle(islice(documents(), CHAPTERS)):
                    row = json.dumps({"text": chapter}, ensure_ascii=False) + "\n"
                    file.write((row if kind == "jsonl" else f"{chapter}\n\n").encode())
                    if file.tell() >= size * 1_000_000:
                        break
            peak, seconds, tokens = apart(measure, path, f"{folder}/corpus")
        name = f"{size} MB of .{kind}"
        lines.append(
            [
                name,
                f"{peak} MB",
                f"{size / seconds:.1f} MB/s",
                f"{tokens / seconds:,.0f}",
            ]
        )
    print(table(["input", "peak resident memory", "per core", "tokens/s"], lines))


if __name__ == "__main__":
    command_of(main, "corpus_memory")()
