"""A vocabulary: its size, special ids, pieces that start a word, and piece frequencies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from litebert.objectives.shards import ShardArrays

ENOUGH_PIECES = 20_000_000
"""The most pieces that are counted; more would hardly change a logarithm."""


def log_frequencies(shards: Sequence[ShardArrays], vocab_size: int) -> NDArray[np.float32]:
    """Return log p of every piece, shape (vocab,), with one added to each count.

    In a large corpus only the first part of every shard is counted.

    >>> from litebert.objectives import PlainShard
    >>> text = PlainShard(np.array([3, 1, 1], np.uint16), np.array([0, 3]), np.array([0, 1]))
    >>> (7 * np.exp(log_frequencies([text], 4))).round().tolist()
    [1.0, 3.0, 1.0, 2.0]
    """
    counts = np.ones(vocab_size, dtype=np.int64)
    for shard in shards:
        pieces = np.asarray(shard.tokens[: ENOUGH_PIECES // len(shards)])
        counts += np.bincount(pieces, minlength=vocab_size)
    logs: NDArray[np.float64] = np.log(counts / counts.sum())
    return logs.astype(np.float32)


@dataclass(frozen=True)
class Vocabulary:
    """The ids that frame and mask; `starts_word` (size,) marks pieces that begin a word.

    >>> starts = np.array([True, True, True, True, True, True, False])
    >>> Vocabulary(size=7, cls_id=2, sep_id=3, mask_id=4, starts_word=starts).size
    7
    """

    size: int
    cls_id: int
    sep_id: int
    mask_id: int
    starts_word: NDArray[np.bool_]

    def __post_init__(self) -> None:
        assert self.starts_word.shape == (self.size,), (self.starts_word.shape, self.size)
        assert max(self.cls_id, self.sep_id, self.mask_id) < self.size
