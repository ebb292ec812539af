"""How often each piece occurs in a corpus."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from litebert.corpus.shards import Shard

# the most pieces that are counted for their frequency; more would hardly change a
# logarithm
ENOUGH_PIECES = 20_000_000


def log_frequencies(shards: Sequence[Shard], vocab_size: int) -> NDArray[np.float32]:
    """Return log p of every piece, shape (vocab,), with one added to each count.

    In a large corpus only the first part of every shard is counted.

    >>> text = Shard(np.array([3, 1, 1], np.uint16), np.array([0, 3]), np.array([0, 1]))
    >>> (7 * np.exp(log_frequencies([text], 4))).round().tolist()
    [1.0, 3.0, 1.0, 2.0]
    """
    # One is added, because the logarithm of a piece that never occurs must be finite.
    counts = np.ones(vocab_size, dtype=np.int64)
    for shard in shards:
        pieces = shard.tokens[: ENOUGH_PIECES // len(shards)]
        counts += np.bincount(pieces, minlength=vocab_size)
    logs: NDArray[np.float64] = np.log(counts / counts.sum())
    return logs.astype(np.float32)
