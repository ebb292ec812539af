"""Attention, the one place that knows where sequences begin; it picks the kernel for a batch."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import TypeAlias

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from litebert.nn.layout import Layout, Rectangle
from litebert.nn.probe import fastest

Kernel: TypeAlias = Callable[[Tensor, Tensor, Tensor, Tensor | None, float], Tensor]

_MANY = 4
"""Sequences from which a rectangle counts as large."""


def attend(
    query: Float[Tensor, "rows heads head_size"],
    key: Float[Tensor, "rows heads head_size"],
    value: Float[Tensor, "rows heads head_size"],
    layout: Layout,
    dropout_prob: float,
) -> Float[Tensor, "read heads head_size"]:
    """Mix each row that asks with the tokens of its own sequence, softmax(q k^T / sqrt(D)) v."""
    is_half = query.dtype in (torch.float16, torch.bfloat16)
    is_ragged = layout.read is not None or not layout.batch.has_one_length
    if query.is_cuda and is_half and is_ragged and not dropout_prob:
        return _variable(query, key, value, layout)
    mixed = [_attend_in(r, query, key, value, dropout_prob) for r in layout.rectangles]
    joined = mixed[0] if len(mixed) == 1 else torch.cat(mixed)
    return joined if layout.back is None else joined.index_select(0, layout.back)


def _attend_in(
    rectangle: Rectangle, query: Tensor, key: Tensor, value: Tensor, dropout_prob: float
) -> Tensor:
    shape = (rectangle.sequences, -1, *query.shape[1:])
    q = query[rectangle.queries].view(shape).transpose(1, 2)
    k, v = (x[rectangle.keys].view(shape).transpose(1, 2) for x in (key, value))
    mixed = _kernel_for(q, k)(q, k, v, rectangle.is_key, dropout_prob)
    return mixed.transpose(1, 2).flatten(0, 1)


def _kernel_for(query: Tensor, key: Tensor) -> Kernel:
    """Choose by what measured fastest (benchmarks/RESULTS.md, attention).

    In bf16 on a CPU, training likes large rectangles as three plain products; the few sequences of
    odd lengths go through float32, whose kernels are not compiled anew for every length.
    """
    if query.is_cuda or query.dtype != torch.bfloat16:
        return _fused
    if torch.is_grad_enabled():
        return _plain if len(query) >= _MANY else _through_float32
    return _fused if _likes_fused(key.shape[-2]) else _plain


@lru_cache
def _likes_fused(width: int) -> bool:
    """Tell whether this CPU's fused kernel is not much slower than three products in bf16."""
    q = torch.full((4, 12, width, 64), 0.5, dtype=torch.bfloat16)
    fused, plain = fastest(lambda k: k(q, q, q, None, 0.0), (_fused, _plain), rounds=3)
    return fused < 1.2 * plain


def _fused(
    query: Tensor, key: Tensor, value: Tensor, is_key: Tensor | None, dropout_prob: float
) -> Tensor:
    return F.scaled_dot_product_attention(query, key, value, is_key, dropout_p=dropout_prob)


def _through_float32(
    query: Tensor, key: Tensor, value: Tensor, is_key: Tensor | None, dropout_prob: float
) -> Tensor:
    mixed = _fused(query.float(), key.float(), value.float(), is_key, dropout_prob)
    return mixed.to(query.dtype)


def _plain(
    query: Tensor, key: Tensor, value: Tensor, is_key: Tensor | None, dropout_prob: float
) -> Tensor:
    scores = query * query.shape[-1] ** -0.5 @ key.transpose(-1, -2)
    if is_key is not None:
        scores = scores.masked_fill(~is_key, -torch.inf)
    return F.dropout(scores.softmax(-1), dropout_prob) @ value


def _variable(query: Tensor, key: Tensor, value: Tensor, layout: Layout) -> Tensor:
    """Attend with variable-length flash attention (CUDA, half precision), without leaving it."""
    from torch.nn.attention.varlen import varlen_attn

    offsets, longest = layout.batch.offsets.to(torch.int32), max(layout.batch.lengths)
    if layout.read is None:
        mixed = varlen_attn(query, key, value, offsets, offsets, longest, longest)
        assert isinstance(mixed, Tensor)
        return mixed
    order, bounds = layout.by_sequence
    asking = query[layout.read[order]]
    mixed = varlen_attn(asking, key, value, bounds.to(torch.int32), offsets, longest, longest)
    assert isinstance(mixed, Tensor)
    return torch.empty_like(mixed).index_copy(0, order, mixed)
