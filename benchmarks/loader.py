"""How fast one core makes masked pretraining pairs: python -m benchmarks.loader.

The corpus is made up: 2,000 documents of 40 sentences of 8 to 40 pieces, 72 % of which
start a word. CPU time of one process, median and extremes of 7 rounds after a warm-up.
"""

import time
from statistics import median
from types import SimpleNamespace
from typing import Any

import numpy as np

from benchmarks.measure import machine, table
from litebert import rng
from litebert.config import ObjectiveConfig
from litebert.corpus import Shard
from litebert.objectives.loading import (
    CorpusLoader,
    Loader,
    LoaderSettings,
    plan_epoch,
)
from litebert.objectives.sequences import Library

NUM_DOCUMENTS = 2_000
SENTENCES_PER_DOCUMENT = 40
VOCAB_SIZE = 30_000
BATCH_SIZE = 64


def corpus() -> tuple[Shard, Any]:
    """Make the corpus, and the part of its tokenizer that sampling reads."""
    lengths = rng.integers(
        0, "benchmark-length", 8, 40, np.arange(NUM_DOCUMENTS * SENTENCES_PER_DOCUMENT)
    )
    sentences = np.concatenate(([0], np.cumsum(lengths)))
    tokens = rng.integers(
        0, "benchmark-token", 5, VOCAB_SIZE - 1, np.arange(sentences[-1])
    )
    documents = np.arange(NUM_DOCUMENTS + 1) * SENTENCES_PER_DOCUMENT
    starts = rng.uniform(0, "benchmark-start", np.arange(VOCAB_SIZE)) < 0.72
    tokenizer = SimpleNamespace(
        vocab_size=VOCAB_SIZE, cls_id=2, sep_id=3, mask_id=4, starts_word=starts
    )
    return Shard(tokens.astype(np.uint16), sentences, documents), tokenizer


def open_loader(length: int, batch_size: int, sentence: str = "order") -> Loader:
    """Open the corpus, also in a worker process: nothing here imports torch."""
    shard, tokenizer = corpus()
    config = ObjectiveConfig.model_validate(
        {"sentence": sentence, "max_seq_length": length}
    )
    return CorpusLoader([shard], LoaderSettings(tokenizer, config, batch_size, seed=1))


def main(*, length: int = 512, rounds: int = 7) -> None:
    """Print one line per objective, with the cost of planning an epoch."""
    print(machine())
    lines = []
    for sentence in ("order", "order-official", "next", "none"):
        loader = open_loader(length, BATCH_SIZE, sentence)
        sizes = []
        rates = []
        for step in range(rounds + 1):
            begin = time.process_time()
            sizes.append(len(loader.batch(step).ids))
            rates.append(sizes[-1] / (time.process_time() - begin))
        sizes = sizes[1:]
        rates = rates[1:]
        config = ObjectiveConfig.model_validate(
            {"sentence": sentence, "max_seq_length": length}
        )
        library = Library([corpus()[0]])
        begin = time.process_time()
        plan = plan_epoch(library, config, seed=1, purpose="train", epoch=0)
        planned = (time.process_time() - begin) / len(plan)
        spread = (
            f"{median(rates) / 1e6:.2f} M"
            f" ({min(rates) / 1e6:.2f}-{max(rates) / 1e6:.2f})"
        )
        a_sequence = 1e6 * np.mean(sizes) / BATCH_SIZE / median(rates)
        lines.append(
            [f"`{sentence}`", spread, f"{a_sequence:.0f}", f"{1e6 * planned:.2f}"]
        )
    print(
        table(
            [
                "objective",
                "tokens/s",
                "µs a sequence",
                "µs an instance to plan an epoch",
            ],
            lines,
        )
    )


if __name__ == "__main__":
    from litebert.cli.command import command_of

    command_of(main, "loader")()
