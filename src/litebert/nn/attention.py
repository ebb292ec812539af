"""Attention: softmax(q k^T / sqrt(D)) v within each sequence."""

from collections.abc import Callable
from typing import TypeAlias

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from litebert.config import AlbertConfig
from litebert.nn.batch import Layout

Attend: TypeAlias = Callable[[Tensor, Tensor, Tensor, Layout, float], Tensor]
"""(query, key, value, layout, dropout_prob) -> mixed: a kind of attention, without padding."""


def attention(
    query: Float[Tensor, "queries heads head_size"],
    key: Float[Tensor, "tokens heads head_size"],
    value: Float[Tensor, "tokens heads head_size"],
    layout: Layout,
    dropout_prob: float = 0.0,
) -> Float[Tensor, "queries heads head_size"]:
    """Mix each query with the tokens of its own sequence."""
    mixed, lengths = [], list(layout.batch.lengths)
    parts = map(torch.split, (query, key, value), (list(layout.query_lengths), lengths, lengths))
    for q, k, v in zip(*parts, strict=True):
        scores = torch.einsum("qhd,khd->hqk", q, k) * q.shape[-1] ** -0.5
        weights = F.dropout(scores.softmax(-1), dropout_prob)
        mixed.append(torch.einsum("hqk,khd->qhd", weights, v))
    return torch.cat(mixed)


def full(_config: AlbertConfig) -> Attend:
    """Return the attention of the paper, in which a token reads all tokens of its sequence."""
    return attention
