"""How often each piece occurs: what a network can know before training."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from litebert.objectives.shards import Shard

ENOUGH_PIECES = 20_000_000
"""Pieces counted at most; more change no logarithm by much."""


def log_frequencies(
    shards: Sequence[Shard], vocab_size: int, *, at_most: int = ENOUGH_PIECES
) -> NDArray[np.float32]:
    """Return log p of every piece, shape (vocab,), with one added to each count.

    Of a large corpus the first part of every shard is counted.

    >>> from litebert.objectives import Text
    >>> text = Text(np.array([3, 1, 1], np.uint16), np.array([0, 3]), np.array([0, 1]))
    >>> (7 * np.exp(log_frequencies([text], 4))).round().tolist()
    [1.0, 3.0, 1.0, 2.0]
    """
    counts = np.ones(vocab_size, dtype=np.int64)
    for shard in shards:
        pieces = np.asarray(shard.tokens[: at_most // len(shards)])
        counts += np.bincount(pieces, minlength=vocab_size)
    logs: NDArray[np.float64] = np.log(counts / counts.sum())
    return logs.astype(np.float32)
