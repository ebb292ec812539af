"""Small models of transformers with random weights, biases and norms included, so that every tensor matters."""

import torch
import transformers
from torch import nn

SHAPE = {"vocab_size": 90, "hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4}
SHAPE |= {"intermediate_size": 48, "max_position_embeddings": 64}


def random_model(name: str, **changes: object) -> transformers.PreTrainedModel:
    """Make a model of a class of transformers, an ALBERT or a BERT."""
    is_albert = name.startswith("Albert")
    kind = transformers.AlbertConfig if is_albert else transformers.BertConfig
    config = kind(**(SHAPE | ({"embedding_size": 16} if is_albert else {}) | changes))
    return drawn(getattr(transformers, name)(config))


def drawn(model: nn.Module) -> nn.Module:
    """Draw every parameter at random."""
    generator = torch.Generator().manual_seed(1)
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.2, generator=generator)
    return model.eval()
