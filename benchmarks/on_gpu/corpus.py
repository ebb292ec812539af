"""A loader of made-up text for worker processes, which therefore load no torch."""

from __future__ import annotations

from litebert.config import ObjectiveConfig
from litebert.objectives import Loader


def open_loader(length: int, batch_size: int) -> Loader:
    """Open the corpus of loader.py."""
    from loader import corpus

    shard, vocabulary = corpus()
    config = ObjectiveConfig(max_seq_length=length)
    return Loader([shard], vocabulary=vocabulary, config=config, batch_size=batch_size, seed=1)
