"""Small artificial corpora: shards of random pieces, and one whose token ids give their
positions.
"""

from types import SimpleNamespace

import numpy as np

from litebert import rng
from litebert.corpus import Shard


def shard(seed: int, *, num_documents: int) -> Shard:
    """Make documents of 1 to 30 sentences of 3 to 40 pieces."""
    per_document = rng.integers(seed, "test-sentences", 1, 30, np.arange(num_documents))
    documents = np.concatenate(([0], np.cumsum(per_document)))
    lengths = rng.integers(seed, "test-pieces", 3, 40, np.arange(documents[-1]))
    sentences = np.concatenate(([0], np.cumsum(lengths)))
    tokens = rng.integers(seed, "test-tokens", 5, 999, np.arange(sentences[-1]))
    return Shard(tokens.astype(np.uint16), sentences, documents)


def tokenizer(size: int, starts_word: np.ndarray) -> SimpleNamespace:
    """Return what sampling reads of a tokenizer."""
    return SimpleNamespace(
        vocab_size=size, cls_id=2, sep_id=3, mask_id=4, starts_word=starts_word
    )


CORPUS = [shard(1, num_documents=60), shard(2, num_documents=40)]
# the share of pieces that start a word in English text
STARTS = rng.uniform(0, "test-starts", np.arange(1_000)) < 0.72
TOKENIZER = tokenizer(1_000, STARTS)

# 20 documents of 12 sentences of 10 tokens; token i has the id 5 + i, and every piece
# is a word
NUMBERED = Shard(
    np.arange(5, 2_405, dtype=np.uint16), np.arange(241) * 10, np.arange(21) * 12
)
NUMBERS = tokenizer(2_405, np.ones(2_405, np.bool_))
