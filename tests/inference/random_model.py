"""Model folders with large random weights, whose answers differ from text to text."""

from pathlib import Path

import torch

from litebert.config import AlbertConfig, HeadConfig
from litebert.folder import save_model
from litebert.nn import AlbertForPretraining, AlbertForTask
from litebert.tokenizer import Tokenizer

SHAPE = {"embedding_size": 16, "hidden_size": 32, "num_attention_heads": 2, "intermediate_size": 64}
SHAPE |= {"num_hidden_layers": 2, "max_position_embeddings": 64}
LABELS = HeadConfig(kind="sequence-classification", labels=("no", "yes"))
TAGS = HeadConfig(kind="token-classification", labels=("O", "B-PER"))
CHOICES = HeadConfig(kind="multiple-choice")
SPANS, SPANS_OR_NONE = HeadConfig(kind="question-answering"), HeadConfig(kind="conditional-question-answering")


def save_random(
    folder: Path,
    tokenizer: Tokenizer,
    head: HeadConfig | None = None,
    *,
    seed: int = 2,
    std: float = 0.3,
    far_too_large: str = "",
    **shape: int,
) -> Path:
    """Save a model with a head, or the heads of pretraining; weights whose names contain `far_too_large` overflow."""
    config = AlbertConfig(**({"vocab_size": tokenizer.vocab_size} | SHAPE | shape))
    network = AlbertForPretraining(config) if head is None else AlbertForTask(config, head)
    draws = torch.Generator().manual_seed(seed)
    for name, parameter in network.named_parameters():
        if parameter.ndim > 1:
            torch.nn.init.normal_(parameter, std=0.02 if far_too_large else std, generator=draws)
        if far_too_large and far_too_large in name:
            torch.nn.init.constant_(parameter, 3e38)
    save_model(network, folder)
    tokenizer.save(folder)
    return folder
