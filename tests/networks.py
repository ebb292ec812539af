"""Small networks, ours and those of transformers, with random weights, so that every
tensor matters.
"""

from pathlib import Path

import pytest
import torch

from litebert.config import AlbertConfig, HeadConfig
from litebert.folder import ModelFolder, write_folder
from litebert.nn import AlbertForPretraining, AlbertForTask
from litebert.tokenizer import Tokenizer, train_tokenizer

SHAPE = {
    "embedding_size": 16,
    "hidden_size": 32,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
}
SHAPE |= {"intermediate_size": 48, "max_position_embeddings": 64}
LABELS = HeadConfig(kind="sequence-classification", labels=("no", "yes"))
TAGS = HeadConfig(kind="token-classification", labels=("O", "B-PER"))
CHOICES = HeadConfig(kind="multiple-choice")
SPANS = HeadConfig(kind="question-answering", always_answers=True)
SPANS_OR_NONE = HeadConfig(kind="conditional-question-answering")

# 256 plain sentences of few words
PLAIN_SENTENCES = [
    f"The {color} {animal} {verb} near the {place}."
    for color in ("red", "green", "blue", "white")
    for animal in ("fox", "horse", "mouse", "crow")
    for verb in ("slept", "waited", "walked", "sang")
    for place in ("river", "garden", "station", "old mill")
]


def config_for(tokenizer: Tokenizer, **changes: object) -> AlbertConfig:
    return AlbertConfig(**({"vocab_size": tokenizer.vocab_size} | SHAPE | changes))


def plain_tokenizer(vocab_size: int) -> Tokenizer:
    """Train a vocabulary on the plain sentences."""
    model = train_tokenizer(PLAIN_SENTENCES * 3, vocab_size=vocab_size)
    return Tokenizer.from_model(model)


def unshared_network(tokenizer: Tokenizer) -> AlbertForPretraining:
    """Draw a network like a BERT: four layers of their own, words as wide as states."""
    config = config_for(
        tokenizer,
        embedding_size=32,
        num_hidden_layers=4,
        intermediate_size=64,
        hidden_act="gelu",
        sharing="none",
    )
    return AlbertForPretraining(config, generator=torch.Generator().manual_seed(1))


def drawn(network: torch.nn.Module) -> torch.nn.Module:
    """Draw every parameter at random, biases and norms included."""
    generator = torch.Generator().manual_seed(1)
    for parameter in network.parameters():
        torch.nn.init.normal_(parameter, std=0.2, generator=generator)
    return network.eval()


def random_model(name: str, **changes: object) -> torch.nn.Module:
    """Draw a model of a class of transformers, an ALBERT or a BERT; skip the test
    without transformers.
    """
    transformers = pytest.importorskip("transformers")
    sizes = {"vocab_size": 90} | SHAPE
    if name.startswith("Bert"):
        del sizes["embedding_size"]
    cls = getattr(transformers, name)
    return drawn(cls(cls.config_class(**(sizes | changes))))


def save_random(
    folder: Path,
    tokenizer: Tokenizer,
    head: HeadConfig | None = None,
    *,
    seed: int = 2,
    std: float = 0.3,
    far_too_large: str = "",
    **changes: object,
) -> Path:
    """Save a model with a head, or the heads of pretraining, whose answers differ from
    text to text.

    Weights whose names contain `far_too_large` overflow.
    """
    config = config_for(tokenizer, **changes)
    network = (
        AlbertForPretraining(config) if head is None else AlbertForTask(config, head)
    )
    draws = torch.Generator().manual_seed(seed)
    for name, parameter in network.named_parameters():
        if parameter.ndim > 1:
            torch.nn.init.normal_(
                parameter, std=0.02 if far_too_large else std, generator=draws
            )
        if far_too_large and far_too_large in name:
            torch.nn.init.constant_(parameter, 3e38)
    write_folder(ModelFolder(network), folder)
    tokenizer.save(folder)
    return folder
