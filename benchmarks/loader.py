"""Measure how fast one core makes masked pretraining pairs: python benchmarks/loader.py.

The corpus is made up: 2,000 documents of 40 sentences of 8 to 40 pieces, 72 % of them start a word.
CPU time of one process, median and extremes of 7 rounds after a warm-up.
"""

from __future__ import annotations

import argparse
import platform
import time
from pathlib import Path
from statistics import median

import numpy as np

from litebert import rng
from litebert.config.schema import ObjectiveConfig
from litebert.corpus import Shard
from litebert.objectives import Loader, Vocabulary
from litebert.objectives.sampling import plan_epoch
from litebert.objectives.sentences import Library

NUM_DOCUMENTS, SENTENCES_PER_DOCUMENT, VOCAB_SIZE, BATCH_SIZE = 2_000, 40, 30_000, 64


def main() -> None:
    """Print one line per objective, and one for the plan of an epoch."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--length", type=int, default=512, help="longest sequence")
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    print(f"{processor()}, Python {platform.python_version()}, numpy {np.__version__}")
    shard, vocabulary = corpus()
    for sentence in ("order", "order-official", "next", "none"):
        config = ObjectiveConfig(sentence=sentence, max_seq_length=options.length)
        report_batches(
            Loader([shard], vocabulary=vocabulary, config=config, batch_size=BATCH_SIZE, seed=1),
            sentence,
            options.rounds,
        )
        report_plan(Library([shard]), config, options.rounds)


def corpus() -> tuple[Shard, Vocabulary]:
    """Return a shard of random pieces in random sentence lengths, and its vocabulary."""
    numbers = np.arange(NUM_DOCUMENTS * SENTENCES_PER_DOCUMENT)
    lengths = rng.integers(0, "benchmark-length", 8, 40, numbers)
    sentences = np.concatenate(([0], np.cumsum(lengths)))
    tokens = rng.integers(0, "benchmark-token", 5, VOCAB_SIZE - 1, np.arange(sentences[-1]))
    documents = np.arange(NUM_DOCUMENTS + 1) * SENTENCES_PER_DOCUMENT
    starts = rng.uniform(0, "benchmark-start", np.arange(VOCAB_SIZE)) < 0.72
    vocabulary = Vocabulary(VOCAB_SIZE, cls_id=2, sep_id=3, mask_id=4, starts_word=starts)
    return Shard(tokens.astype(np.uint16), sentences, documents), vocabulary


def report_batches(loader: Loader, name: str, rounds: int) -> None:
    """Print tokens per second of CPU time and the time of one sequence."""
    rates, lengths = [], []
    for step in range(rounds + 1):
        begin = time.process_time()
        batch = loader.batch(step)
        seconds = time.process_time() - begin
        rates.append(len(batch.ids) / seconds)
        lengths.append(len(batch.ids) / BATCH_SIZE)
    rates, length = rates[1:], float(np.mean(lengths))
    print(
        f"{name:15s} {median(rates):12,.0f} tokens/s ({min(rates):,.0f} to {max(rates):,.0f}), "
        f"{1e6 * length / median(rates):.0f} us a sequence of {length:.0f} tokens on average"
    )


def report_plan(library: Library, config: ObjectiveConfig, rounds: int) -> None:
    """Print what planning an epoch costs."""
    costs = []
    for epoch in range(rounds):
        begin = time.process_time()
        plan = plan_epoch(library, config, seed=1, purpose="train", epoch=epoch)
        costs.append((time.process_time() - begin) / len(plan))
    print(f"{'':15s} {1e6 * median(costs):12.2f} us an instance to plan an epoch of {len(plan):,}")


def processor() -> str:
    """Return the name of the processor."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    return next(line.split(":")[1].strip() for line in lines if line.startswith("model name"))


if __name__ == "__main__":
    main()
