"""Full attention for training, and on CUDA: the kernel that is fastest for each stack."""

from __future__ import annotations

from collections.abc import Callable
from itertools import groupby

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from litebert.nn.attention import Attend, attention
from litebert.nn.batch import Layout

_MANY = 4
"""Sequences from which a stack counts as large."""


def faster(attend: Attend, kernel: Attend) -> Attend:
    """Return the kernel where the attention is the reference's, and any other kind as it is."""
    return kernel if attend is attention else attend


def full(
    query: Float[Tensor, "queries heads head_size"],
    key: Float[Tensor, "tokens heads head_size"],
    value: Float[Tensor, "tokens heads head_size"],
    layout: Layout,
    dropout_prob: float,
) -> Float[Tensor, "queries heads head_size"]:
    """Return what `litebert.nn.attention` returns, stack by stack.

    A stack is a run of sequences with equally many queries and equally many keys.

    Stacks are views, which suits the backward pass.
    """
    is_half = query.dtype in (torch.float16, torch.bfloat16)
    is_ragged = layout.queries is not None or len(set(layout.batch.lengths)) > 1
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
    lengths go through float32, whose kernels are not compiled again for every length.
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
