"""Heads: what is read from the last hidden states."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from litebert.config import AlbertConfig, HeadConfig
from litebert.nn.block import ACTIVATIONS

NEVER = -1e30
"""The logit of a position that may not be chosen (official squad_utils.py L1246)."""
Map: TypeAlias = Callable[[Tensor], Tensor]


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
        dense = self.linear(hidden, self.dense.weight.to(dtype), self.dense.bias.to(dtype))
        embedded = self.norm(self.activation(dense).to(self.norm.weight.dtype)).to(dtype)
        return self.linear(embedded, table.to(dtype), self.bias.to(dtype))


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
    """Dropout, then one linear layer, on pooled vectors or on tokens.

    The official span head has no dropout (squad_utils.py L708), its classifiers have
    (classifier_utils.py L794).
    """

    def __init__(self, config: AlbertConfig, head: HeadConfig) -> None:
        super().__init__()
        self.dense = nn.Linear(config.hidden_size, head.num_outputs)
        has_dropout = head.kind != "question-answering"
        self.dropout_prob = config.classifier_dropout_prob if has_dropout else 0.0

    def forward(self, rows: Float[Tensor, "rows hidden"]) -> Float[Tensor, "rows outputs"]:
        """Return the logits of each row."""
        logits: Tensor = self.dense(F.dropout(rows, self.dropout_prob, self.training))
        return logits


class SpanPieces(NamedTuple):
    """What a conditional span head is computed with."""

    start: Map
    end_token: Map
    end_start: Map
    end_norm: Map
    end: Map
    answer_hidden: Map
    answer: Map


class ConditionalSpans(NamedTuple):
    """Log-probabilities of starts and of ends given each chosen start; a logit for "no answer"."""

    start: Float[Tensor, "sequences width"]
    chosen: Int[Tensor, "sequences starts"]
    end: Float[Tensor, "sequences starts width"]
    no_answer: Float[Tensor, " sequences"]


def conditional_spans(
    hidden: Float[Tensor, "sequences width hidden"],
    allowed: Bool[Tensor, "sequences width"],
    starts: Int[Tensor, "sequences starts"] | int,
    pieces: SpanPieces,
) -> ConditionalSpans:
    """Score ends after the given starts, or after the so many likeliest ones."""
    start = pieces.start(hidden).squeeze(-1).masked_fill(~allowed, NEVER).log_softmax(-1)
    chosen = start.topk(starts).indices if isinstance(starts, int) else starts
    index = chosen.unsqueeze(-1).expand(-1, -1, hidden.shape[-1])
    # W [token, start] as two products: each token is multiplied only once.
    at_starts = pieces.end_start(hidden.gather(1, index))  # (sequences, starts, hidden)
    mixed = torch.tanh(pieces.end_token(hidden)[:, None] + at_starts[:, :, None])
    end = pieces.end(pieces.end_norm(mixed)).squeeze(-1)  # (sequences, starts, width)
    end = end.masked_fill(~allowed[:, None], NEVER).log_softmax(-1)
    summed = (start.exp().unsqueeze(-1) * hidden).sum(1)  # (sequences, hidden)
    answer = torch.tanh(pieces.answer_hidden(torch.cat([summed, hidden[:, 0]], -1)))
    return ConditionalSpans(start, chosen, end, pieces.answer(answer).squeeze(-1))


class ConditionalSpanHead(nn.Module):
    """SQuAD 2.0: ends that depend on the start, and answerability (squad_utils.py L1230-1330).

    Works on padded rectangles; `allowed` is true on [CLS] and on the paragraph.
    """

    def __init__(self, config: AlbertConfig) -> None:
        super().__init__()
        size = config.hidden_size
        self.start = nn.Linear(size, 1)
        self.end_hidden = nn.Linear(2 * size, size)
        self.end_norm = nn.LayerNorm(size, eps=config.layer_norm_eps)
        self.end = nn.Linear(size, 1)
        self.answer_hidden = nn.Linear(2 * size, size)
        self.answer = nn.Linear(size, 1, bias=False)
        self.dropout_prob = config.classifier_dropout_prob

    def forward(
        self,
        hidden: Float[Tensor, "sequences width hidden"],
        allowed: Bool[Tensor, "sequences width"],
        starts: Int[Tensor, "sequences starts"] | int,
    ) -> ConditionalSpans:
        """Score ends after the given starts, or after the so many likeliest ones, best first."""
        for_token, for_start = self.end_hidden.weight.chunk(2, dim=1)
        pieces = SpanPieces(
            start=self.start,
            end_token=lambda x: F.linear(x, for_token, self.end_hidden.bias),
            end_start=lambda x: F.linear(x, for_start),
            end_norm=self.end_norm,
            end=self.end,
            answer_hidden=self.answer_hidden,
            answer=lambda x: self.answer(F.dropout(x, self.dropout_prob, self.training)),
        )
        number = min(starts, hidden.shape[1]) if isinstance(starts, int) else starts
        return conditional_spans(hidden, allowed, number, pieces)
