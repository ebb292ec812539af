"""Compare the speed of our tokenizer with transformers', side by side on Wikipedia paragraphs.

    python benchmarks/tokenizer.py --threads 1

Rounds are interleaved, each contender once a round; medians and the extremes are shown.
`AlbertTokenizer` runs transformers' own pipeline for ALBERT, `AutoTokenizer` the one that we write
(its ids are ours).
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

from litebert.tokenizer import Tokenizer

DATA = Path(os.environ.get("LITEBERT_TEST_DATA", Path(__file__).parents[1] / "../shared/data"))
Contender = Callable[[list[str]], object]


def main() -> None:
    """Read the texts, time all contenders and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--threads", type=int, default=1, help="threads for every contender (1)")
    parser.add_argument("--rounds", type=int, default=7, help="interleaved rounds (7)")
    parser.add_argument("--megabytes", type=float, default=3.0, help="how much text (3.0)")
    options = parser.parse_args()
    os.environ["TOKENIZERS_PARALLELISM"] = "false" if options.threads == 1 else "true"
    os.environ["RAYON_NUM_THREADS"] = str(options.threads)
    texts, num_bytes = read_paragraphs(int(options.megabytes * 1e6))
    contenders = build_contenders(options.threads)
    seconds = time_interleaved(contenders, texts, options.rounds)
    print_table(seconds, num_bytes, options.threads, len(texts))


def read_paragraphs(limit: int) -> tuple[list[str], int]:
    """Return the first paragraphs of the Wikipedia articles, and their size in bytes of UTF-8."""
    texts: list[str] = []
    num_bytes = 0
    with gzip.open(DATA / "text" / "wiki_articles.jsonl.gz", "rt", encoding="utf-8") as file:
        for line in file:
            for paragraph in json.loads(line)["text"].split("\n"):
                if paragraph and num_bytes < limit:
                    texts.append(paragraph)
                    num_bytes += len(paragraph.encode())
    return texts, num_bytes


def build_contenders(num_threads: int) -> dict[str, Contender]:
    """Return the calls to compare; each gives the ids of all texts without special pieces."""
    from transformers import AlbertTokenizer, AutoTokenizer

    ours = Tokenizer.load(DATA / "tokenizer" / "spiece.model")
    with tempfile.TemporaryDirectory() as folder:
        ours.save(folder, max_length=10**9)
        albert = AlbertTokenizer.from_pretrained(folder)
        auto = AutoTokenizer.from_pretrained(folder)
    rust = auto.backend_tokenizer
    return {
        "litebert encode_ids": lambda texts: ours.encode_ids(texts, num_threads=num_threads),
        "litebert encode_batch": lambda texts: ours.encode_batch(texts, num_threads=num_threads),
        "transformers AlbertTokenizer": lambda texts: albert(texts, add_special_tokens=False),
        "transformers AutoTokenizer": lambda texts: auto(texts, add_special_tokens=False),
        "tokenizers encode_batch_fast": lambda texts: [
            encoded.ids for encoded in rust.encode_batch_fast(texts, add_special_tokens=False)
        ],
    }


def time_interleaved(contenders: dict[str, Contender], texts: list[str], num_rounds: int) -> dict[str, list[float]]:
    """Return the seconds of each round of each contender, after one round to warm up."""
    seconds: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(num_rounds + 1):
        for name, encode in contenders.items():
            start = time.perf_counter()
            encode(texts)
            seconds[name].append(time.perf_counter() - start)
    return {name: rounds[1:] for name, rounds in seconds.items()}


def print_table(seconds: dict[str, list[float]], num_bytes: int, num_threads: int, num_texts: int) -> None:
    """Print megabytes a second and the ratio to transformers' AlbertTokenizer."""
    packages = ("litebert", "sentencepiece", "transformers", "tokenizers")
    print(f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores, ", end="")
    print(f"Python {sys.version.split()[0]}, ", end="")
    print(", ".join(f"{package} {version(package)}" for package in packages))
    print(f"{num_texts:,} paragraphs, {num_bytes / 1e6:.1f} MB, {num_threads} threads\n")
    print("| contender | MB/s, median (least-most) | times AlbertTokenizer |")
    print("|---|---|---|")
    reference = statistics.median(seconds["transformers AlbertTokenizer"])
    for name, rounds in seconds.items():
        median, slowest, fastest = (
            num_bytes / 1e6 / value for value in (statistics.median(rounds), max(rounds), min(rounds))
        )
        ratio = reference / statistics.median(rounds)
        print(f"| {name} | {median:.2f} ({slowest:.2f}-{fastest:.2f}) | {ratio:.2f} |")


if __name__ == "__main__":
    main()
