"""SQuAD 2.0's head: an end depends on its start (squad_utils.py L1230-1330)."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from litebert.config import AlbertConfig, HeadConfig
from litebert.nn import AlbertForTask, Batch
from litebert.tasks.kinds.family import NEVER

Map: TypeAlias = Callable[[Tensor], Tensor]


class SpanPieces(NamedTuple):
    """The layers of a conditional span head, as functions."""

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
    """Score ends for the given starts; if `starts` is a number, for that many likeliest ones."""
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
    """A start for each token, an end for each pair of start and token, and answerability.

    Works on padded rectangles; `allowed` is true on [CLS] and on the paragraph.
    """

    def __init__(self, config: AlbertConfig, _head: HeadConfig) -> None:
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
        """Score ends for the given starts; a number means that many likeliest ones, best first."""
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


def score_spans(
    network: AlbertForTask,
    batch: Batch,
    allowed: Bool[Tensor, "sequences width"],
    starts: Int[Tensor, "sequences starts"] | int,
) -> ConditionalSpans:
    """Apply a conditional head to a batch, laid out as a rectangle of the width of `allowed`."""
    hidden = batch.to_padded(network.albert(batch), width=allowed.shape[1])
    spans: ConditionalSpans = network.head(hidden.float(), allowed, starts)
    return spans
