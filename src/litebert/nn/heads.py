"""Heads: what is read from the last hidden states."""

from __future__ import annotations

from collections.abc import Callable
from pkgutil import resolve_name

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from litebert.config import AlbertConfig, HeadConfig
from litebert.nn.block import ACTIVATIONS

NEVER = -1e30
"""The logit of what may not be chosen (official squad_utils.py L1246)."""


class MaskedLMHead(nn.Module):
    """H to E, activation, layer norm, then the word table as output layer plus a bias.

    Neither pretraining head has dropout (run_pretraining.py L294-361).
    """

    def __init__(self, config: AlbertConfig) -> None:
        super().__init__()
        self.dense = nn.Linear(config.hidden_size, config.embedding_size)
        self.norm = nn.LayerNorm(config.embedding_size, eps=config.layer_norm_eps)
        self.bias = nn.Parameter(torch.zeros(config.vocab_size))
        self.activation = ACTIVATIONS[config.hidden_act]
        self.linear: Callable[[Tensor, Tensor, Tensor], Tensor] = F.linear

    def forward(
        self, hidden: Float[Tensor, "masked hidden"], table: Float[Tensor, "vocab embed"]
    ) -> Float[Tensor, "masked vocab"]:
        """Score every word of the vocabulary at the given positions, in the dtype of `hidden`."""
        dtype = hidden.dtype
        return self.linear(self.embedded(hidden), table.to(dtype), self.bias.to(dtype))

    def embedded(self, hidden: Float[Tensor, "rows hidden"]) -> Float[Tensor, "rows embed"]:
        """Return the vectors that are compared with those of the words."""
        dtype = hidden.dtype
        dense = self.linear(hidden, self.dense.weight.to(dtype), self.dense.bias.to(dtype))
        embedded: Tensor = self.norm(self.activation(dense).to(self.norm.weight.dtype))
        return embedded.to(dtype)


class SentenceOrderHead(nn.Module):
    """Two logits on the pooled vector: 0 = in order, 1 = swapped."""

    def __init__(self, config: AlbertConfig) -> None:
        super().__init__()
        self.classifier = nn.Linear(config.hidden_size, 2)

    def forward(self, pooled: Float[Tensor, "sequences hidden"]) -> Float[Tensor, "sequences 2"]:
        """Return the logits of each sequence."""
        logits: Tensor = self.classifier(pooled)
        return logits


class LinearHead(nn.Module):
    """Dropout, then one linear layer, on pooled vectors or on tokens (classifier_utils.py L794)."""

    def __init__(self, config: AlbertConfig, head: HeadConfig) -> None:
        super().__init__()
        self.dense = nn.Linear(config.hidden_size, head.num_outputs)
        self.dropout_prob = config.classifier_dropout_prob * head.record.has_dropout

    def forward(self, rows: Float[Tensor, "rows hidden"]) -> Float[Tensor, "rows outputs"]:
        """Return the logits of each row."""
        logits: Tensor = self.dense(F.dropout(rows, self.dropout_prob, self.training))
        return logits


def task_head(config: AlbertConfig, head: HeadConfig) -> nn.Module:
    """Return the module of a head: one linear layer, or the class that its record names."""
    path = head.record.module
    module: nn.Module = (resolve_name(path) if path else LinearHead)(config, head)
    return module
