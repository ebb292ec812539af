"""Attention, the one place that knows where sequences begin; it picks the kernel for a batch."""

from __future__ import annotations

from collections.abc import Callable
from itertools import groupby

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from litebert.nn.batch import Batch

_MANY = 4
"""Sequences from which a rectangle counts as large."""


def attend(
    query: Float[Tensor, "tokens heads head_size"],
    key: Float[Tensor, "tokens heads head_size"],
    value: Float[Tensor, "tokens heads head_size"],
    batch: Batch,
    dropout_prob: float,
) -> Float[Tensor, "tokens heads head_size"]:
    """Mix each token with the tokens of its own sequence, softmax(q k^T / sqrt(head_size)) v."""
    if len(set(batch.lengths)) == 1:
        return _equal(query, key, value, batch.lengths[0], dropout_prob)
    if query.is_cuda and not dropout_prob and query.dtype in (torch.float16, torch.bfloat16):
        return _variable(query, key, value, batch)
    return _runs(query, key, value, batch.lengths, dropout_prob)


def _equal(query: Tensor, key: Tensor, value: Tensor, length: int, dropout_prob: float) -> Tensor:
    """Attend in a rectangle that is only a view: all sequences have one length."""
    shape = (-1, length, *query.shape[1:])
    q, k, v = (x.reshape(shape).transpose(1, 2) for x in (query, key, value))
    mixed = _kernel_for(q)(q, k, v, dropout_prob)
    return mixed.transpose(1, 2).reshape_as(query)


def _kernel_for(query: Tensor) -> Callable[[Tensor, Tensor, Tensor, float], Tensor]:
    """Choose by what measured fastest (benchmarks/RESULTS.md, attention).

    In bf16 on a CPU, large rectangles like three plain products; the few sequences of odd lengths
    go through float32, whose kernels are not compiled anew for every length.
    """
    if query.is_cuda or query.dtype != torch.bfloat16:
        return _fused
    return _plain if len(query) >= _MANY else _through_float32


def _fused(query: Tensor, key: Tensor, value: Tensor, dropout_prob: float) -> Tensor:
    return F.scaled_dot_product_attention(query, key, value, dropout_p=dropout_prob)


def _through_float32(query: Tensor, key: Tensor, value: Tensor, dropout_prob: float) -> Tensor:
    mixed = _fused(query.float(), key.float(), value.float(), dropout_prob)
    return mixed.to(query.dtype)


def _plain(query: Tensor, key: Tensor, value: Tensor, dropout_prob: float) -> Tensor:
    scores = query * query.shape[-1] ** -0.5 @ key.transpose(-1, -2)
    return F.dropout(scores.softmax(-1), dropout_prob) @ value


def _variable(query: Tensor, key: Tensor, value: Tensor, batch: Batch) -> Tensor:
    """Attend with variable-length flash attention (CUDA, half precision)."""
    from torch.nn.attention.varlen import varlen_attn

    offsets, longest = batch.offsets.to(torch.int32), max(batch.lengths)
    mixed = varlen_attn(query, key, value, offsets, offsets, longest, longest)
    assert isinstance(mixed, Tensor)
    return mixed


def _runs(
    query: Tensor, key: Tensor, value: Tensor, lengths: tuple[int, ...], dropout_prob: float
) -> Tensor:
    """Attend run by run of equal lengths: nothing is padded or masked, whatever the order.

    A batch sorted by length has the fewest runs; the CPU likes few large products.
    """
    runs = [(length, len(list(run))) for length, run in groupby(lengths)]
    sizes = [length * count for length, count in runs]
    parts = zip(*(torch.split(x, sizes) for x in (query, key, value)), strict=True)
    mixed = [
        _equal(q, k, v, length, dropout_prob)
        for (q, k, v), (length, _) in zip(parts, runs, strict=True)
    ]
    return torch.cat(mixed)
