"""One small network and one ragged batch for the tests of the engine."""

from collections.abc import Callable

import pytest
import torch

from litebert.config import AlbertConfig
from litebert.nn import AlbertForPretraining, Batch

LENGTHS = (3, 40, 16, 1, 33, 40)


@pytest.fixture
def batch() -> Batch:
    """Give six sequences of different lengths."""
    ids = torch.randint(1, 60, (sum(LENGTHS),), generator=torch.Generator().manual_seed(0))
    return Batch.from_flat(ids, torch.zeros_like(ids), LENGTHS)


@pytest.fixture
def make() -> Callable[..., AlbertForPretraining]:
    """Return a function that makes the same network at every call, with large enough weights to tell steps apart."""

    def network(dtype: torch.dtype = torch.float32, **changes: object) -> AlbertForPretraining:
        sizes = {"vocab_size": 60, "embedding_size": 16, "hidden_size": 64, "num_attention_heads": 4}
        sizes |= {"intermediate_size": 160, "num_hidden_layers": 3, "max_position_embeddings": 96}
        config = AlbertConfig(**{**sizes, "initializer_range": 0.06, **changes})
        return AlbertForPretraining(config, dtype=dtype, generator=torch.Generator().manual_seed(1)).eval()

    return network
