"""Heads, and the networks that are trained: the encoder with its pretraining heads or
with a task head.
"""

from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from litebert.config import AlbertConfig, HeadConfig
from litebert.nn.batch import Batch, pad_rows
from litebert.nn.model import ACTIVATIONS, Albert, initialise


class MaskedLMHead(nn.Module):
    """H to E, activation, layer norm, then the word table as output layer plus a bias
    (run_pretraining.py L294).
    """

    def __init__(self, config: AlbertConfig) -> None:
        super().__init__()
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
        dense = self.dense
        x = pad_rows(hidden)  # the number of masked tokens differs from batch to batch
        # (rows, embed)
        x = self.activation(F.linear(x, dense.weight.to(dtype), dense.bias.to(dtype)))
        x = self.norm(x.to(self.norm.weight.dtype)).to(dtype)
        return F.linear(x, table.to(dtype), self.bias.to(dtype))[: len(hidden)]


@dataclass(frozen=True)
class PretrainingHead:
    """A pretraining head: one or more layers on the last states
    (docs/extending/pretraining-head.md).
    """

    # the module; the network holds it under the head's name
    make: Callable[[AlbertConfig], nn.Module]
    # (batch, masked positions) -> the tokens whose states it reads
    reads: Callable[[Batch, Tensor], Tensor]
    # (module, states of those tokens, encoder) -> logits
    logits: Callable[[Any, Tensor, Albert], Tensor]
    # of its layers on disk: (in ALBERT, in BERT)
    names: Mapping[str, tuple[str, str]] = field(default_factory=dict)


PRETRAINING_HEADS: dict[str, PretrainingHead] = {
    "masked_lm": PretrainingHead(
        make=MaskedLMHead,
        reads=lambda _, masked: masked,
        logits=lambda head, states, albert: head(states, albert.embedding.word.weight),
        names={
            "": ("predictions", "cls.predictions"),
            "dense": ("predictions.dense", "cls.predictions.transform.dense"),
            "norm": ("predictions.LayerNorm", "cls.predictions.transform.LayerNorm"),
        },
    ),
    # one layer on the pooled vector: 0 in order, 1 swapped
    "sentence_order": PretrainingHead(
        make=lambda config: nn.Sequential(
            OrderedDict(classifier=nn.Linear(config.hidden_size, 2))
        ),
        reads=lambda batch, _: batch.first_tokens,
        logits=lambda head, states, albert: head(albert.pool(states)),
        names={"classifier": ("sop_classifier.classifier", "cls.seq_relationship")},
    ),
}
"""The pretraining heads by name; their losses and measures are in
`litebert.tasks.pretraining`.
"""


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
    L294-361).

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
        dtype: torch.dtype = torch.float32,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        self.config = config
        self.albert = Albert(config, dtype=dtype, generator=generator)
        self.heads = tuple(PRETRAINING_HEADS)
        for name in self.heads:
            self.add_module(name, PRETRAINING_HEADS[name].make(config))
        for name in self.heads:
            initialise(
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
        read = [
            PRETRAINING_HEADS[name].reads(batch, masked_positions)
            for name in self.heads
        ]
        # Of the last states, get only those that the heads read: (masked + sequences,
        # hidden) of (tokens, hidden).
        hidden = self.albert(batch, torch.cat(read))
        return self.read(*hidden.split([len(rows) for rows in read]))

    def read(self, *states: Float[Tensor, "_ hidden"]) -> PretrainingOutput:
        """Return the logits of each head, given the states that each reads: of masked
        tokens, and of first tokens.
        """
        logits = PretrainingOutput()
        for name, rows in zip(self.heads, states, strict=True):
            logits[name] = PRETRAINING_HEADS[name].logits(
                self.get_submodule(name), rows, self.albert
            )
        return logits


class LinearHead(nn.Module):
    """Dropout, then one linear layer, on pooled vectors or on tokens
    (classifier_utils.py L794).
    """

    def __init__(self, config: AlbertConfig, head: HeadConfig) -> None:
        super().__init__()
        self.dense = nn.Linear(config.hidden_size, head.num_outputs)
        self.dropout = nn.Dropout(
            config.classifier_dropout_prob * head.record.has_dropout
        )

    def forward(
        self, rows: Float[Tensor, "rows hidden"]
    ) -> Float[Tensor, "rows outputs"]:
        logits: Tensor = self.dense(self.dropout(rows))
        return logits


class AlbertForTask(nn.Module):
    """The encoder with a task head on its pooled [CLS] or on its tokens.

    With exits, [CLS] has a head after every step (as in PABEE, arXiv 2006.04152); the
    one at `albert.depth` is used.

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
        has_exits: bool = False,
        dtype: torch.dtype = torch.float32,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        self.config = config
        self.head_config = head
        self.albert = Albert(
            config, has_pooler=head.record.is_pooled, dtype=dtype, generator=generator
        )
        self.head: nn.Module = head.record.make(config, head)
        initialise(self.head, std=config.initializer_range, generator=generator)
        # the last step uses `head`
        num_exits = config.num_steps - 1 if has_exits else 0
        self.exits = nn.ModuleList(
            head.record.make(config, head) for _ in range(num_exits)
        )
        initialise(self.exits, std=config.initializer_range, generator=generator)

    def forward(self, batch: Batch) -> Float[Tensor, "rows outputs"]:
        """Return logits: one row per sequence if the head is pooled or reads whole
        texts, otherwise one per token.
        """
        logits: Tensor
        if self.head_config.record.is_pooled:
            # (sequences, hidden)
            pooled = self.albert.pool(self.albert(batch, batch.first_tokens))
            # without exits, `head` is the only one
            logits = [*self.exits, self.head][: self.albert.depth][-1](pooled)
        else:
            texts = (batch,) if self.head_config.record.reads_texts else ()
            # (tokens, hidden) in float32
            logits = self.head(self.albert(batch).float(), *texts)
        return logits

    def by_step(self, batch: Batch) -> list[Float[Tensor, "rows outputs"]]:
        """Return the logits after every step that has a head, up to the encoder's
        depth.
        """
        if not self.exits:
            return [self(batch)]
        first = batch.first_tokens
        _, *inner, last = self.albert.states(batch, first)
        # (sequences, hidden) each: [CLS] after every step
        states = [*(hidden[first] for hidden in inner), last]
        return [
            head(self.albert.pool(x))
            for head, x in zip([*self.exits, self.head], states, strict=False)
        ]


Network: TypeAlias = AlbertForPretraining | AlbertForTask
"""What a model folder holds: the encoder with its pretraining heads, or with a task
head.
"""
