"""Heads, and the networks that are trained: the encoder with its pretraining heads or a task's."""

from collections import OrderedDict
from collections.abc import Callable
from pkgutil import resolve_name
from typing import NamedTuple, TypeAlias

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from litebert.config import AlbertConfig, HeadConfig
from litebert.nn.batch import Batch
from litebert.nn.block import ACTIVATIONS
from litebert.nn.model import Albert, initialise


class MaskedLMHead(nn.Module):
    """H to E, activation, layer norm, then the word table as output layer plus a bias."""

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
        vectors = self.embedded(hidden)
        return self.linear(vectors, table.to(vectors.dtype), self.bias.to(vectors.dtype))

    def embedded(self, hidden: Float[Tensor, "rows hidden"]) -> Float[Tensor, "rows embed"]:
        """Return the vectors that are compared with those of the words."""
        dtype = hidden.dtype
        dense = self.linear(hidden, self.dense.weight.to(dtype), self.dense.bias.to(dtype))
        embedded: Tensor = self.norm(self.activation(dense).to(self.norm.weight.dtype))
        return embedded.to(dtype)


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


class PretrainingOutput(NamedTuple):
    """Logits of the two objectives."""

    masked_lm: Float[Tensor, "masked vocab"]
    sentence_order: Float[Tensor, "sequences 2"]


class AlbertForPretraining(nn.Module):
    """The encoder with both pretraining heads, without dropout (run_pretraining.py L294-361).

    >>> config = AlbertConfig(vocab_size=9, hidden_size=4, num_attention_heads=1)
    >>> AlbertForPretraining(config)(Batch.from_lists([[2, 4]]), torch.tensor([1])).masked_lm.shape
    torch.Size([1, 9])
    """

    def __init__(
        self, config: AlbertConfig, *, dtype: torch.dtype = torch.float32, generator: torch.Generator | None = None
    ) -> None:
        super().__init__()
        self.config = config
        self.albert = Albert(config, dtype=dtype, generator=generator)
        self.masked_lm = MaskedLMHead(config)
        order = nn.Linear(config.hidden_size, 2)  # of the pooled vector: 0 in order, 1 swapped
        self.sentence_order = nn.Sequential(OrderedDict(classifier=order))
        for head in (self.masked_lm, self.sentence_order):
            initialise(head, std=config.initializer_range, generator=generator)

    def forward(self, batch: Batch, masked_positions: Int[Tensor, " masked"]) -> PretrainingOutput:
        """Return masked-LM logits at `masked_positions` (indices into the flat tokens) only."""
        first = batch.first_tokens
        hidden = self.albert(batch, torch.cat([first, masked_positions]))
        return self.read(hidden[: len(first)], hidden[len(first) :])

    def read(
        self, first: Float[Tensor, "sequences hidden"], masked: Float[Tensor, "masked hidden"]
    ) -> PretrainingOutput:
        """Return the logits of both heads: from first tokens, and from the masked ones."""
        return PretrainingOutput(
            masked_lm=self.masked_lm(masked, self.albert.embedding.word.weight),
            sentence_order=self.sentence_order(self.albert.pool(first)),
        )


class AlbertForTask(nn.Module):
    """The encoder with a task head on its pooled [CLS] or on its tokens.

    >>> config = AlbertConfig(vocab_size=10, hidden_size=8, num_attention_heads=2)
    >>> head = HeadConfig(kind="sequence-classification", labels=("no", "yes"))
    >>> AlbertForTask(config, head)(Batch.from_lists([[2, 7, 3], [2, 8, 9, 3]])).shape
    torch.Size([2, 2])
    """

    def __init__(
        self,
        config: AlbertConfig,
        head: HeadConfig,
        *,
        dtype: torch.dtype = torch.float32,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        self.config, self.head_config = config, head
        self.albert = Albert(config, has_pooler=head.is_pooled, dtype=dtype, generator=generator)
        self.head: nn.Module = resolve_name(head.record.module)(config, head)
        initialise(self.head, std=config.initializer_range, generator=generator)

    def forward(self, batch: Batch) -> Float[Tensor, "rows outputs"]:
        """Return logits: one row per sequence from a pooled head, one per token from others."""
        first = batch.first_tokens if self.head_config.is_pooled else None
        hidden = self.albert(batch, first)
        rows = hidden.float() if first is None else self.albert.pool(hidden)
        texts = (batch,) if self.head_config.record.reads_texts else ()
        logits: Tensor = self.head(rows, *texts)
        return logits


Network: TypeAlias = AlbertForPretraining | AlbertForTask
"""What a model folder holds: the encoder with its pretraining heads, or with a task head."""
