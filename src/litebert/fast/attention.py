"""Full attention for training and for CUDA, with the fastest kernel for each stack."""

from __future__ import annotations

from functools import lru_cache
from itertools import groupby

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from litebert.fast.moving import sequence_of
from litebert.nn.attention import Attend, attention
from litebert.nn.batch import Layout

_MANY = 4
"""A stack of this many sequences or more counts as large."""
_ALIGNED = 8
"""Widths of rectangles are multiples of this, as masks in half precision require."""


def faster(attend: Attend, kernel: Attend) -> Attend:
    """Return the kernel in place of the reference's attention; return another kind unchanged."""
    return kernel if attend is attention else attend


def full(
    query: Float[Tensor, "queries heads head_size"],
    key: Float[Tensor, "tokens heads head_size"],
    value: Float[Tensor, "tokens heads head_size"],
    layout: Layout,
    dropout_prob: float,
) -> Float[Tensor, "queries heads head_size"]:
    """Return what `litebert.nn.attention` returns, stack by stack.

    A stack is a run of sequences with equal numbers of queries and equal numbers of keys. It is a
    view, so the backward pass copies nothing.
    """
    is_ragged = layout.queries is not None or len(set(layout.batch.lengths)) > 1
    if query.is_cuda and is_ragged:
        has_flash = not dropout_prob and _has_flash(query)
        return (_variable if has_flash else padded)(query, key, value, layout, dropout_prob)
    mixed, queries, keys = [], 0, 0
    sizes = zip(layout.query_lengths, layout.batch.lengths, strict=True)
    for (num_queries, num_keys), run in groupby(sizes):
        count = sum(1 for _ in run)
        q = stacked(query[queries : queries + count * num_queries], count)
        k, v = (stacked(x[keys : keys + count * num_keys], count) for x in (key, value))
        mixed.append(_within(q, k, v, dropout_prob).transpose(1, 2).flatten(0, 1))
        queries, keys = queries + count * num_queries, keys + count * num_keys
    return mixed[0] if len(mixed) == 1 else torch.cat(mixed)


def stacked(
    rows: Float[Tensor, "rows heads head_size"], count: int
) -> Float[Tensor, "sequences heads length head_size"]:
    """View the rows of `count` sequences of one length as a stack."""
    return rows.view(count, len(rows) // count, *rows.shape[1:]).transpose(1, 2)


def _within(query: Tensor, key: Tensor, value: Tensor, dropout_prob: float) -> Tensor:
    """Attend within each sequence of a stack, with the fastest kernel (benchmarks/RESULTS.md).

    In bf16 on a CPU, large stacks train fastest as three plain products; small stacks of odd
    lengths use float32, whose kernels are not compiled anew for every length.
    """
    if query.is_cuda or query.dtype != torch.bfloat16:
        return F.scaled_dot_product_attention(query, key, value, dropout_p=dropout_prob)
    if len(query) < _MANY:
        return _within(query.float(), key.float(), value.float(), dropout_prob).to(query.dtype)
    scores = query * query.shape[-1] ** -0.5 @ key.transpose(-1, -2)
    return F.dropout(scores.softmax(-1), dropout_prob) @ value


def _has_flash(query: Tensor) -> bool:
    """Tell whether variable-length flash attention supports these rows: Ampere (sm80) or later."""
    is_half, size = query.dtype in (torch.float16, torch.bfloat16), query.shape[-1]
    return is_half and size % 8 == 0 and size <= 256 and _capability(query.device) >= (8, 0)


@lru_cache
def _capability(device: torch.device) -> tuple[int, int]:
    return torch.cuda.get_device_capability(device)


def padded(query: Tensor, key: Tensor, value: Tensor, layout: Layout, dropout_prob: float) -> Tensor:
    """Attend within rectangles as wide as the longest sequence; nothing is read on the host.

    The number of queries of each sequence is known only on the device, so each query is placed in
    the column of its token.
    """
    batch, width = layout.batch, -(-max(layout.batch.lengths) // _ALIGNED) * _ALIGNED
    sequences = sequence_of(batch)
    columns = torch.arange(len(sequences), device=sequences.device) - batch.offsets[sequences]
    rows = sequences * width + columns
    rows_of_queries = layout.of_queries(rows)
    sizes = batch.offsets.diff()[:, None]
    is_key = torch.arange(width, device=rows.device) < sizes  # (sequences, width)
    q, k, v = (
        stacked(x.new_zeros(len(sizes) * width, *x.shape[1:]).index_copy(0, at, x), len(sizes))
        for x, at in ((query, rows_of_queries), (key, rows), (value, rows))
    )
    mixed = F.scaled_dot_product_attention(q, k, v, is_key[:, None, None], dropout_p=dropout_prob)
    return mixed.transpose(1, 2).flatten(0, 1)[rows_of_queries]


def _variable(query: Tensor, key: Tensor, value: Tensor, layout: Layout, _dropout_prob: float) -> Tensor:
    """Attend with variable-length flash attention (CUDA, half precision)."""
    from torch.nn.attention.varlen import varlen_attn

    offsets = (layout.query_offsets.to(torch.int32), layout.batch.offsets.to(torch.int32))
    longest = max(layout.batch.lengths)
    mixed = varlen_attn(query, key, value, *offsets, longest, longest)
    assert isinstance(mixed, Tensor)
    return mixed
