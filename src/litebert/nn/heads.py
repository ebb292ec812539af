"""The two pretraining heads; neither has dropout (run_pretraining.py L294-361)."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from litebert.config import AlbertConfig
from litebert.nn.block import ACTIVATIONS
from litebert.nn.rows import filled


class MaskedLMHead(nn.Module):
    """H to E, activation, layer norm, then the word table as output layer plus a bias."""

    def __init__(self, config: AlbertConfig) -> None:
        super().__init__()
        self.dense = nn.Linear(config.hidden_size, config.embedding_size)
        self.norm = nn.LayerNorm(config.embedding_size, eps=config.layer_norm_eps)
        self.bias = nn.Parameter(torch.zeros(config.vocab_size))
        self.activation = ACTIVATIONS[config.hidden_act]

    def forward(
        self, hidden: Float[Tensor, "masked hidden"], table: Float[Tensor, "vocab embed"]
    ) -> Float[Tensor, "masked vocab"]:
        """Score every word of the vocabulary at the given positions, in the dtype of `hidden`."""
        dtype, num_masked = hidden.dtype, len(hidden)
        dense = F.linear(filled(hidden), self.dense.weight.to(dtype), self.dense.bias.to(dtype))
        embedded = self.norm(self.activation(dense).to(self.norm.weight.dtype)).to(dtype)
        return F.linear(embedded, table.to(dtype), self.bias.to(dtype))[:num_masked]


class SentenceOrderHead(nn.Module):
    """Two logits on the pooled vector: 0 = in order, 1 = swapped."""

    def __init__(self, config: AlbertConfig) -> None:
        super().__init__()
        self.classifier = nn.Linear(config.hidden_size, 2)

    def forward(self, pooled: Float[Tensor, "sequences hidden"]) -> Float[Tensor, "sequences 2"]:
        """Return the logits of each sequence."""
        logits: Tensor = self.classifier(pooled)
        return logits
