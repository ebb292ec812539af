"""Our tokenizer compared with transformers', on Wikipedia paragraphs: python -m
benchmarks.tokenizer --threads 1.

`AlbertTokenizer` runs transformers' own pipeline for ALBERT, `AutoTokenizer` the one
that we write (its ids are ours). Wall time; medians and the extremes of interleaved
rounds.
"""

import os
import tempfile
import time
from functools import partial
from statistics import median

from benchmarks.measure import Call, machine, table, take_turns
from benchmarks.texts import DATA, VOCABULARY, rows
from litebert.cli.command import command_of
from litebert.tokenizer import Tokenizer


def read_paragraphs(limit: int) -> tuple[list[str], int]:
    texts = list[str]()
    num_bytes = 0
    for row in rows(DATA / "text" / "wiki_articles.jsonl.gz"):
        for paragraph in filter(None, row["text"].split("\n")):
            if num_bytes >= limit:
                return texts, num_bytes
            texts.append(paragraph)
            num_bytes += len(paragraph.encode())
    return texts, num_bytes


def contenders(texts: list[str], threads: int) -> dict[str, Call]:
    """Return the calls to compare; each gives the ids of all texts without special
    pieces.
    """
    from transformers import AlbertTokenizer, AutoTokenizer

    ours = Tokenizer.load(VOCABULARY)
    with tempfile.TemporaryDirectory() as folder:
        ours.save(folder, max_length=10**9)
        albert = AlbertTokenizer.from_pretrained(folder)
        auto = AutoTokenizer.from_pretrained(folder)
    fast = auto.backend_tokenizer.encode_batch_fast
    return {
        "litebert encode_ids": partial(ours.encode_ids, texts, num_threads=threads),
        "litebert encode_batch": partial(ours.encode_batch, texts, num_threads=threads),
        "transformers AlbertTokenizer": partial(
            albert, texts, add_special_tokens=False
        ),
        "transformers AutoTokenizer": partial(auto, texts, add_special_tokens=False),
        "tokenizers encode_batch_fast": lambda: [
            each.ids for each in fast(texts, add_special_tokens=False)
        ],
    }


def main(*, threads: int = 1, rounds: int = 7, megabytes: float = 3.0) -> None:
    """Print megabytes per second and the ratio to transformers' AlbertTokenizer."""
    os.environ["TOKENIZERS_PARALLELISM"] = "false" if threads == 1 else "true"
    os.environ["RAYON_NUM_THREADS"] = str(threads)
    texts, num_bytes = read_paragraphs(int(megabytes * 1e6))
    taken = take_turns(
        contenders(texts, threads), rounds=rounds + 1, clock=time.perf_counter
    )
    rates = {
        name: [num_bytes / 1e6 / seconds for seconds in each[1:]]
        for name, each in taken.items()
    }
    print(
        f"{machine()}\n{len(texts):,} paragraphs, {num_bytes / 1e6:.1f} MB, {threads}"
        " threads\n"
    )
    reference = median(rates["transformers AlbertTokenizer"])
    spreads = {
        name: f"{median(r):.2f} ({min(r):.2f}-{max(r):.2f})"
        for name, r in rates.items()
    }
    lines = [
        [name, spreads[name], f"{median(r) / reference:.2f}"]
        for name, r in rates.items()
    ]
    print(
        table(
            ["contender", "MB/s, median (minimum-maximum)", "times AlbertTokenizer"],
            lines,
        )
    )


if __name__ == "__main__":
    command_of(main, "tokenizer")()
