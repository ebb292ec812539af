"""Small made-up corpora: shards of random pieces, and one whose tokens tell where they stand."""

import numpy as np
import pytest

from litebert import rng
from litebert.corpus import Shard
from litebert.objectives import Vocabulary

VOCAB_SIZE = 1_000


def shard(seed: int, *, num_documents: int) -> Shard:
    """Make documents of 1 to 30 sentences of 3 to 40 pieces."""
    per_document = rng.integers(seed, "test-sentences", 1, 30, np.arange(num_documents))
    documents = np.concatenate(([0], np.cumsum(per_document)))
    lengths = rng.integers(seed, "test-pieces", 3, 40, np.arange(documents[-1]))
    sentences = np.concatenate(([0], np.cumsum(lengths)))
    tokens = rng.integers(seed, "test-tokens", 5, VOCAB_SIZE - 1, np.arange(sentences[-1]))
    return Shard(tokens.astype(np.uint16), sentences, documents)


@pytest.fixture(scope="session")
def corpus() -> list[Shard]:
    """Give two shards of 60 and 40 documents."""
    return [shard(1, num_documents=60), shard(2, num_documents=40)]


@pytest.fixture(scope="session")
def vocabulary() -> Vocabulary:
    """Give 1,000 pieces, of which 72 % start a word, as in English text."""
    starts = rng.uniform(0, "test-starts", np.arange(VOCAB_SIZE)) < 0.72
    return Vocabulary(VOCAB_SIZE, cls_id=2, sep_id=3, mask_id=4, starts_word=starts)


@pytest.fixture(scope="session")
def numbered() -> Shard:
    """Give 20 documents of 12 sentences of 10 tokens; token i has the id 5 + i."""
    return Shard(np.arange(5, 2_405, dtype=np.uint16), np.arange(241) * 10, np.arange(21) * 12)


@pytest.fixture(scope="session")
def numbered_vocabulary() -> Vocabulary:
    """Give a vocabulary for `numbered`, in which every piece is a word."""
    return Vocabulary(2_405, cls_id=2, sep_id=3, mask_id=4, starts_word=np.ones(2_405, np.bool_))
