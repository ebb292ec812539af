"""Attention: softmax(q k^T / sqrt(D)) v within each sequence."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor
from torch.nn import functional as F

from litebert.nn.batch import Batch


@dataclass(frozen=True)
class Layout:
    """Which rows are queries and which are keys, sequence by sequence.

    Keys are all tokens. Queries are the tokens at `queries`, ascending, or all where it is None.
    Sequence i has the keys `batch.offsets[i]` up to `batch.offsets[i + 1]`, and the queries
    `query_offsets[i]` up to `query_offsets[i + 1]`, as variable-length kernels are told.
    """

    batch: Batch
    queries: Int[Tensor, " queries"] | None = None

    @cached_property
    def query_offsets(self) -> Int[Tensor, " boundaries"]:
        """The first query of every sequence, and the number of queries."""
        offsets = self.batch.offsets
        return offsets if self.queries is None else torch.searchsorted(self.queries, offsets)

    @cached_property
    def query_lengths(self) -> tuple[int, ...]:
        """How many queries each sequence has."""
        if self.queries is None:
            return self.batch.lengths
        return tuple(self.query_offsets.diff().tolist())

    def visible(self, number: int, window: int) -> Bool[Tensor, "queries keys"]:
        """Tell which tokens each query of a sequence reads: its neighbours and [CLS]; [CLS] all."""
        start, stop = self.batch.offsets[number : number + 2].tolist()
        key = torch.arange(start, stop, device=self.batch.ids.device)
        query = key
        if self.queries is not None:
            query = torch.split(self.queries, list(self.query_lengths))[number]
        distance = (query[:, None] - key).abs()
        visible: Tensor = (distance <= window) | (query[:, None] == start) | (key == start)
        return visible

    def of_queries(self, rows: Shaped[Tensor, "rows ..."]) -> Shaped[Tensor, "query_rows ..."]:
        """Return the rows of the queries."""
        return rows if self.queries is None else rows[self.queries]


Attend: TypeAlias = Callable[[Tensor, Tensor, Tensor, Layout, float], Tensor]
"""(query, key, value, layout, dropout_prob) -> mixed: a kind of attention, on real tokens alone."""


def attention(
    query: Float[Tensor, "queries heads head_size"],
    key: Float[Tensor, "tokens heads head_size"],
    value: Float[Tensor, "tokens heads head_size"],
    layout: Layout,
    dropout_prob: float = 0.0,
    *,
    window: int | None = None,
) -> Float[Tensor, "queries heads head_size"]:
    """Mix each query with the tokens of its own sequence, with a window those in sight of it."""
    queries = torch.split(query, list(layout.query_lengths))
    keys, values = (torch.split(x, list(layout.batch.lengths)) for x in (key, value))
    mixed = []
    for number, (q, k, v) in enumerate(zip(queries, keys, values, strict=True)):
        scores = torch.einsum("qhd,khd->hqk", q, k) * q.shape[-1] ** -0.5
        if window is not None:
            scores = scores.masked_fill(~layout.visible(number, window), -torch.inf)
        share = F.dropout(scores.softmax(-1), dropout_prob)
        mixed.append(torch.einsum("hqk,khd->qhd", share, v))
    return torch.cat(mixed)
