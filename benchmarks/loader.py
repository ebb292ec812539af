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
from litebert.cli.command import command_of
from litebert.config import ObjectiveConfig
from litebert.corpus import Shard
from litebert.objectives.loading import (
    CorpusLoader,
    Loader,
    LoaderSettings,
    plan_epoch,
)
from litebert.objectives.sentences import Library

NUM_DOCUMENTS = 2_000
SENTENCES_PER_DOCUMENT = 40
VOCAB_SIZE = 30_000
BATCH_SIZE = 64
HEADER = (
    "objective",
    "tokens/s",
    "µs a sequence",
    "µs an instance to plan an epoch",
)


def main(*, length: int = 512, rounds: int = 7) -> None:
    """Print one line per objective, with the cost of planning an epoch."""
    print(machine())
    lines = list[list[str]]()
    for sentence in ("order", "order-official", "next", "none"):
        config = ObjectiveConfig.model_validate(
            {"sentence": sentence, "max_seq_length": length}
        )
        loader = open_loader(config)
        timed_batch(loader, 0)  # warms up
        batches = [timed_batch(loader, step) for step in range(1, rounds + 1)]
        rates = [tokens / seconds for tokens, seconds in batches]
        middle = median(rates)
        mean_tokens = np.mean([tokens for tokens, _ in batches])
        sequence_seconds = mean_tokens / BATCH_SIZE / middle
        millions = f"{min(rates) / 1e6:.2f}-{max(rates) / 1e6:.2f}"
        lines.append(
            [
                f"`{sentence}`",
                f"{middle / 1e6:.2f} M ({millions})",
                f"{1e6 * sequence_seconds:.0f}",
                f"{1e6 * seconds_to_plan(config):.2f}",
            ]
        )
    print(table(HEADER, lines))


def timed_batch(loader: Loader, step: int) -> tuple[int, float]:
    """Return the tokens of a batch, and the CPU seconds that it takes."""
    begun = time.process_time()
    batch = loader.batch(step)
    return len(batch.ids), time.process_time() - begun


def seconds_to_plan(config: ObjectiveConfig) -> float:
    """Return the CPU seconds that an instance takes when an epoch is planned."""
    shard, _ = corpus()
    library = Library([shard])
    begun = time.process_time()
    plan = plan_epoch(library, config, seed=1, purpose="train", epoch=0)
    return (time.process_time() - begun) / len(plan)


def corpus() -> tuple[Shard, Any]:
    """Make the corpus, and the part of its tokenizer that sampling reads."""
    num_sentences = NUM_DOCUMENTS * SENTENCES_PER_DOCUMENT
    lengths = rng.integers(0, "benchmark-length", 8, 40, np.arange(num_sentences))
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


def open_loader(config: ObjectiveConfig) -> Loader:
    """Open the corpus."""
    shard, tokenizer = corpus()
    return CorpusLoader([shard], LoaderSettings(tokenizer, config, BATCH_SIZE, seed=1))


if __name__ == "__main__":
    command_of(main, "loader")()
