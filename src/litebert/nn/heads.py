"""Heads, and the networks that are trained: the encoder with its pretraining heads or
with a task head.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from litebert.config import AlbertConfig, HeadConfig
from litebert.nn.batch import Batch, pad_rows
from litebert.nn.model import ACTIVATIONS, Albert, initialize
from litebert.plugins import PRETRAINING_HEADS


class MaskedLMHead(nn.Module):
    """H to E, activation, layer norm, then the word table as output layer plus a bias
    (run_pretraining.py L294).
    """

    def __init__(self, config: AlbertConfig) -> None:
        super().__init__()
        # It has no output layer of its own: `forward` gets the word table.
        self.dense = nn.Linear(config.hidden_size, config.embedding_size)
        self.norm = nn.LayerNorm(config.embedding_size, eps=config.layer_norm_eps)
        self.bias = nn.Parameter(torch.zeros(config.vocab_size))
        self.activation = ACTIVATIONS[config.hidden_act]

    def forward(
        self,
        hidden: Float[Tensor, "masked hidden"],
        table: Float[Tensor, "vocab embed"],
    ) -> Float[Tensor, "masked vocab"]:
        """Score every piece of the vocabulary at each position, in the dtype of
        `hidden`; the norm is in float32.
        """
        dtype = hidden.dtype
        weight = self.dense.weight.to(dtype)
        # the number of masked tokens differs from batch to batch
        rows = pad_rows(hidden)
        # H to E before the table, so that the product with V columns is E wide
        dense = self.activation(F.linear(rows, weight, self.dense.bias.to(dtype)))
        normed = self.norm(dense.to(self.norm.weight.dtype)).to(dtype)  # (rows, embed)
        # The input table is the output layer, too; the bias is of the output alone.
        logits = F.linear(normed, table.to(dtype), self.bias.to(dtype))  # (rows, vocab)
        return logits[: len(hidden)]


@dataclass(frozen=True)
class HeadContext:
    """What a head of pretraining gets besides the states that it reads."""

    batch: Batch
    masked: Int[Tensor, " masked"]  # the masked positions, indices of the flat tokens
    albert: Albert

    @property
    def word_table(self) -> Float[Tensor, "vocab embed"]:
        """The word vectors, which masked LM also uses as its output layer."""
        return self.albert.embedding.word.weight


USUAL_HEADS = ("masked_lm", "sentence_order")
"""The pretraining heads of a model that does not name others."""


class PretrainingOutput(dict[str, Tensor]):
    """The logits of each head, by its name."""

    @property
    def masked_lm(self) -> Float[Tensor, "masked vocab"]:
        return self["masked_lm"]  # of every piece, at the masked positions

    @property
    def sentence_order(self) -> Float[Tensor, "sequences 2"]:
        return self["sentence_order"]  # in order, swapped


class AlbertForPretraining(nn.Module):
    """The encoder with its pretraining heads, which have no dropout (run_pretraining.py
    L294-361); `heads` are their names in the registry `PRETRAINING_HEADS`.

    >>> config = AlbertConfig(vocab_size=9, hidden_size=4, num_attention_heads=1)
    >>> AlbertForPretraining(config)(Batch.from_lists([[2, 4]]), torch.tensor([1])).masked_lm.shape
    torch.Size([1, 9])
    """

    masked_lm: MaskedLMHead
    sentence_order: nn.Sequential
    # parameters that nothing trains, which are not written
    untrained: frozenset[str] = frozenset()

    def __init__(
        self,
        config: AlbertConfig,
        *,
        heads: Sequence[str] = USUAL_HEADS,
        dtype: torch.dtype = torch.float32,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        self.config = config
        self.albert = Albert(config, dtype=dtype, generator=generator)
        self.heads = tuple(heads)
        # Modules by name, so that their weights are saved under these names.
        for name in self.heads:
            self.add_module(name, PRETRAINING_HEADS[name].make(config))
        # After all are made: the draws follow one another in the order of the heads.
        for name in self.heads:
            initialize(
                self.get_submodule(name),
                std=config.initializer_range,
                generator=generator,
            )

    def forward(
        self, batch: Batch, masked_positions: Int[Tensor, " masked"]
    ) -> PretrainingOutput:
        """Return the logits of each head; `masked_positions` are indices into the flat
        tokens.
        """
        context = HeadContext(batch, masked_positions, self.albert)
        places = self.tokens_read(context)
        # Of the last states, get only those that the heads read: about a sixth of all
        # (masked + sequences, hidden), so that the last step computes no others.
        hidden = self.albert(batch, torch.cat(places))
        sizes = [len(positions) for positions in places]
        return self.read(context, hidden.split(sizes))

    def tokens_read(self, context: HeadContext) -> list[Int[Tensor, " _"]]:
        """Return the tokens whose last states each head reads."""
        return [PRETRAINING_HEADS[name].reads(context) for name in self.heads]

    def read(
        self, context: HeadContext, states: Sequence[Float[Tensor, "_ hidden"]]
    ) -> PretrainingOutput:
        """Return the logits of each head, given the states that each reads."""
        logits = PretrainingOutput()
        for name, rows in zip(self.heads, states, strict=True):
            head = PRETRAINING_HEADS[name]
            logits[name] = head.logits(self.get_submodule(name), rows, context)
        return logits


@dataclass(frozen=True, kw_only=True)
class TaskHead:
    """A head of fine-tuned networks: its layers, what they read, and its names in other
    programs (docs/extending/head.md).

    `make(config, head)` builds the module. It reads the `pooled` [CLS] of each
    sequence, or every token; with `texts` it gets all tokens and the batch, and returns
    one row per sequence; with `pairs` one row for every two sequences. Its outputs are
    named labels, or there are `num_outputs`.
    """

    make: Callable[[AlbertConfig, HeadConfig], nn.Module]
    reads: Literal["pooled", "tokens", "texts", "pairs"] = "tokens"
    has_labels: bool = False
    num_outputs: int = 0
    purpose: str  # in a card: "tags words"
    pipeline: str  # its pipeline tag on the Hub
    # the end of its class names in transformers: AlbertFor..., BertFor...
    class_name: str
    # if not, transformers reads only the encoder
    is_in_transformers: bool = False
    # its layers on disk; one that is not listed has its own name
    layers: Mapping[str, str] = field(default_factory=dict)
    # identifies this head in an official checkpoint; "": none has it
    variable: str = ""
    # why other programs cannot answer with it, whatever its kind of task
    refusal: str = ""
    # names of the outputs of an export, one for each column of a layer read by token
    logits: tuple[str, ...] = ("logits",)


class LinearHead(nn.Module):
    """Dropout, then one linear layer, on pooled vectors or on tokens
    (classifier_utils.py L794).
    """

    def __init__(
        self, config: AlbertConfig, head: HeadConfig, *, has_dropout: bool = True
    ) -> None:
        super().__init__()
        dropout_prob = config.classifier_dropout_prob if has_dropout else 0.0
        self.dense = nn.Linear(config.hidden_size, head.num_outputs)
        self.dropout = nn.Dropout(dropout_prob)

    def forward(
        self, rows: Float[Tensor, "rows hidden"]
    ) -> Float[Tensor, "rows outputs"]:
        logits: Tensor = self.dense(self.dropout(rows))
        return logits


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
        self.config = config
        self.head_config = head
        self.albert = Albert(
            config,
            has_pooler=head.record.reads == "pooled",
            dtype=dtype,
            generator=generator,
        )
        self.head: nn.Module = head.record.make(config, head)
        initialize(self.head, std=config.initializer_range, generator=generator)

    def forward(self, batch: Batch) -> Float[Tensor, "rows outputs"]:
        """Return logits: one row per sequence if the head is pooled or reads whole
        texts, otherwise one per token.
        """
        logits: Tensor
        reads = self.head_config.record.reads
        if reads == "pooled":
            # with the engine, only [CLS] passes through the last feed-forward block
            first = self.albert(batch, batch.first_tokens)  # (sequences, hidden)
            logits = self.head(self.albert.pool(first))
            return logits
        # Heads compute in float32, whatever the activations of the encoder are.
        hidden = self.albert(batch).float()  # (tokens, hidden)
        if reads in ("texts", "pairs"):  # the batch says where each text begins
            logits = self.head(hidden, batch)
            return logits
        logits = self.head(hidden)
        return logits


Network: TypeAlias = AlbertForPretraining | AlbertForTask
"""What a model folder holds: the encoder with its pretraining heads, or with a task
head.
"""
