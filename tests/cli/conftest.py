"""Small models for the command line; commands run as in the contract, in this process."""

from collections.abc import Sequence
from pathlib import Path

import pytest
import torch

from litebert.config import AlbertConfig, HeadConfig
from litebert.folder import save_model
from litebert.nn import AlbertForPretraining, AlbertForTask
from litebert.tokenizer import Tokenizer


def write_model(folder: Path, corpus: Path, labels: Sequence[str] = (), *, kind: str | None = None) -> Path:
    """Write a tiny model with random weights: for pretraining, for classification, or of a kind."""
    tokenizer = Tokenizer.load(corpus / "tokenizer")
    config = AlbertConfig(
        vocab_size=tokenizer.vocab_size,
        embedding_size=16,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=64,
        max_position_embeddings=64,
    )
    generator = torch.Generator().manual_seed(1)
    kind = kind or ("sequence-classification" if labels else None)
    if kind:
        save_model(AlbertForTask(config, HeadConfig(kind=kind, labels=tuple(labels)), generator=generator), folder)
    else:
        save_model(AlbertForPretraining(config, generator=generator), folder)
    tokenizer.save(folder)
    return folder


@pytest.fixture(scope="session")
def pretrained(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give a model with pretraining heads."""
    return write_model(tmp_path_factory.mktemp("pretrained"), corpus)
