"""A network small enough for every test."""

from collections.abc import Callable

import pytest
import torch

from litebert.config import AlbertConfig
from litebert.nn import Batch

SMALL = AlbertConfig(
    vocab_size=60,
    embedding_size=12,
    hidden_size=24,
    num_hidden_layers=4,
    num_attention_heads=3,
    intermediate_size=40,
    max_position_embeddings=32,
)


@pytest.fixture
def small() -> AlbertConfig:
    """Give a small configuration to change with model_copy."""
    return SMALL


@pytest.fixture
def ragged() -> Batch:
    """Give three sequences of different lengths, with two segments."""
    generator = torch.Generator().manual_seed(3)
    ids = [torch.randint(5, 60, (n,), generator=generator).tolist() for n in (9, 4, 13)]
    return Batch.from_lists(ids, [[0] * (len(s) // 2) + [1] * (len(s) - len(s) // 2) for s in ids])


@pytest.fixture
def widened() -> Callable[[torch.nn.Module], None]:
    """Give every parameter large random values, so that a mistake shows in the outputs."""

    def widen(network: torch.nn.Module) -> None:
        generator = torch.Generator().manual_seed(7)
        for parameter in network.parameters():
            torch.nn.init.normal_(parameter, std=0.2, generator=generator)

    return widen
