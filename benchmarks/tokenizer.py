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
from benchmarks.texts import VOCABULARY, articles
from litebert.cli.command import command_of
from litebert.tokenizer import Tokenizer

REFERENCE = "transformers AlbertTokenizer"


def main(*, threads: int = 1, rounds: int = 7, megabytes: float = 3.0) -> None:
    """Print megabytes per second and the ratio to transformers' AlbertTokenizer."""
    os.environ["TOKENIZERS_PARALLELISM"] = "false" if threads == 1 else "true"
    os.environ["RAYON_NUM_THREADS"] = str(threads)
    texts = read_paragraphs(int(megabytes * 1e6))
    size = sum(len(text.encode()) for text in texts) / 1e6  # megabytes
    print(machine())
    print(f"{len(texts):,} paragraphs, {size:.1f} MB, {threads} threads\n")
    taken = take_turns(
        contenders(texts, threads), rounds=rounds, warm_ups=1, clock=time.perf_counter
    )
    rates = dict[str, list[float]]()
    for name, times in taken.items():
        rates[name] = [size / seconds for seconds in times]
    reference = median(rates[REFERENCE])
    lines = list[list[str]]()
    for name, of_rounds in rates.items():
        middle = median(of_rounds)
        spread = f"{middle:.2f} ({min(of_rounds):.2f}-{max(of_rounds):.2f})"
        lines.append([name, spread, f"{middle / reference:.2f}"])
    header = ["contender", "MB/s, median (minimum-maximum)", "times AlbertTokenizer"]
    print(table(header, lines))


def read_paragraphs(least_bytes: int) -> list[str]:
    """Return as many paragraphs as have at least so many bytes."""
    texts = list[str]()
    num_bytes = 0
    for article in articles():
        for paragraph in filter(None, article.split("\n")):
            if num_bytes >= least_bytes:
                return texts
            texts.append(paragraph)
            num_bytes += len(paragraph.encode())
    return texts


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

    def fast_ids() -> list[list[int]]:
        return [encoded.ids for encoded in fast(texts, add_special_tokens=False)]

    return {
        "litebert encode_ids": partial(ours.encode_ids, texts, num_threads=threads),
        "litebert encode_batch": partial(ours.encode_batch, texts),
        REFERENCE: partial(albert, texts, add_special_tokens=False),
        "transformers AutoTokenizer": partial(auto, texts, add_special_tokens=False),
        "tokenizers encode_batch_fast": fast_ids,
    }


if __name__ == "__main__":
    command_of(main, "tokenizer")()
