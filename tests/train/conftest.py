"""A pretraining run of seconds."""

from collections.abc import Callable
from pathlib import Path

import pytest

from litebert.config import PretrainConfig, Resolved, resolve, settings_from_words

SMALL = [
    "model.embedding_size=16",
    "model.hidden_size=32",
    "model.num_hidden_layers=2",
    "model.num_attention_heads=2",
    "model.intermediate_size=64",
    "model.hidden_dropout_prob=0.1",
    "model.attention_probs_dropout_prob=0.1",
    "objective.max_seq_length=48",
    "optim.name=adamw",
    "optim.learning_rate=0.003",
    "train.steps=12",
    "train.batch_size=8",
    "train.eval_every=5",
    "train.eval_sequences=16",
    "train.save_every=4",
    "train.log_every=3",
    "train.loader_workers=0",
]

Configure = Callable[..., Resolved[PretrainConfig]]


@pytest.fixture
def configure(corpus: Path) -> Configure:
    """Return a function that makes the small configuration with changes."""

    def make(*changes: str) -> Resolved[PretrainConfig]:
        words = [f"data.corpus={corpus}", *SMALL, *changes]
        return resolve(PretrainConfig, settings_from_words(words))

    return make
