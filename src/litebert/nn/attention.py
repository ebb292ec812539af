"""Attention: softmax(q k^T / sqrt(D)) v within each sequence; the formula, then its kernels."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from typing import TypeAlias

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor
from torch.nn import functional as F

from litebert.nn.batch import Batch, filled

_MANY = 4
"""Sequences from which a stack counts as large."""


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

    def of_queries(self, rows: Shaped[Tensor, "rows ..."]) -> Shaped[Tensor, "query_rows ..."]:
        """Return the rows of the queries."""
        return rows if self.queries is None else filled(rows[self.queries])


Attend: TypeAlias = Callable[[Tensor, Tensor, Tensor, Layout, float], Tensor]
"""(query, key, value, layout, dropout_prob) -> mixed: a kind of attention, on real tokens alone."""


def attention(
    query: Float[Tensor, "queries heads head_size"],
    key: Float[Tensor, "tokens heads head_size"],
    value: Float[Tensor, "tokens heads head_size"],
    layout: Layout,
) -> Float[Tensor, "queries heads head_size"]:
    """Mix each query with the tokens of its own sequence: the formula that all kernels compute."""
    queries = torch.split(query, list(layout.query_lengths))
    keys, values = (torch.split(x, list(layout.batch.lengths)) for x in (key, value))
    mixed = []
    for q, k, v in zip(queries, keys, values, strict=True):
        scores = torch.einsum("qhd,khd->hqk", q, k) * q.shape[-1] ** -0.5
        mixed.append(torch.einsum("hqk,khd->qhd", scores.softmax(-1), v))
    return torch.cat(mixed)


def full(
    query: Float[Tensor, "queries heads head_size"],
    key: Float[Tensor, "tokens heads head_size"],
    value: Float[Tensor, "tokens heads head_size"],
    layout: Layout,
    dropout_prob: float,
) -> Float[Tensor, "queries heads head_size"]:
    """Compute the formula stack by stack: neighbours with equally many queries and keys.

    Stacks are views, which suits the backward pass.
    """
    is_half = query.dtype in (torch.float16, torch.bfloat16)
    is_ragged = layout.queries is not None or not layout.batch.has_one_length
    if query.is_cuda and is_half and is_ragged and not dropout_prob:
        return _variable(query, key, value, layout)
    mixed, queries, keys = [], 0, 0
    sizes = zip(layout.query_lengths, layout.batch.lengths, strict=True)
    for (num_queries, num_keys), run in groupby(sizes):
        count = sum(1 for _ in run)
        q = stacked(query[queries : queries + count * num_queries], count)
        k, v = (stacked(x[keys : keys + count * num_keys], count) for x in (key, value))
        mixed.append(_kernel_for(q)(q, k, v, dropout_prob).transpose(1, 2).flatten(0, 1))
        queries, keys = queries + count * num_queries, keys + count * num_keys
    return mixed[0] if len(mixed) == 1 else torch.cat(mixed)


def stacked(
    rows: Float[Tensor, "rows heads head_size"], count: int
) -> Float[Tensor, "sequences heads length head_size"]:
    """View the rows of `count` sequences of one length as a stack."""
    return rows.view(count, len(rows) // count, *rows.shape[1:]).transpose(1, 2)


def _kernel_for(query: Tensor) -> Callable[[Tensor, Tensor, Tensor, float], Tensor]:
    """Choose by what measured fastest (benchmarks/RESULTS.md, attention).

    In bf16 on a CPU, large stacks train fastest as three plain products; the few sequences of odd
    lengths go through float32, whose kernels are not compiled anew for every length.
    """
    if query.is_cuda or query.dtype != torch.bfloat16:
        return fused
    return plain if len(query) >= _MANY else _through_float32


def fused(query: Tensor, key: Tensor, value: Tensor, dropout_prob: float) -> Tensor:
    """Attend with torch's own kernel."""
    return F.scaled_dot_product_attention(query, key, value, dropout_p=dropout_prob)


def plain(query: Tensor, key: Tensor, value: Tensor, dropout_prob: float) -> Tensor:
    """Attend with one product for the scores and one for the mixture."""
    scores = query * query.shape[-1] ** -0.5 @ key.transpose(-1, -2)
    return F.dropout(scores.softmax(-1), dropout_prob) @ value


def _through_float32(query: Tensor, key: Tensor, value: Tensor, dropout_prob: float) -> Tensor:
    return fused(query.float(), key.float(), value.float(), dropout_prob).to(query.dtype)


def _variable(query: Tensor, key: Tensor, value: Tensor, layout: Layout) -> Tensor:
    """Attend with variable-length flash attention (CUDA, half precision), without leaving it."""
    from torch.nn.attention.varlen import varlen_attn

    offsets = (layout.query_offsets.to(torch.int32), layout.batch.offsets.to(torch.int32))
    longest = max(layout.batch.lengths)
    mixed = varlen_attn(query, key, value, *offsets, longest, longest)
    assert isinstance(mixed, Tensor)
    return mixed
