"""Attention for inference on a CPU: sequences of similar lengths in padded rectangles.

There are few distinct widths, so few kernels are compiled and few calls are made. Rows are copied,
which is cheap in inference, but not in a backward pass.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple, TypeAlias

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional as F

from litebert.fast.attention import full, stacked
from litebert.fast.probe import fastest
from litebert.nn.batch import Layout

Rows: TypeAlias = slice | Tensor
"""A slice of rows, or an index for each."""
Lengths: TypeAlias = tuple[int, ...]
Kernel: TypeAlias = Callable[[Tensor, Tensor, Tensor, Tensor | None], Tensor]
"""(query, key, value, is_key) -> mixed, for a stack of sequences."""


class Rectangle(NamedTuple):
    """Sequences of one width, for one call of a kernel; `is_key` is None without padding."""

    sequences: int
    queries: Rows
    keys: Rows
    is_key: Bool[Tensor, "sequences 1 1 width"] | None


class Rectangles(NamedTuple):
    """All sequences, each in one rectangle; `order` restores the order of the joined queries."""

    rectangles: tuple[Rectangle, ...]
    order: Int[Tensor, " queries"] | None


def attend(
    query: Float[Tensor, "queries heads head_size"],
    key: Float[Tensor, "tokens heads head_size"],
    value: Float[Tensor, "tokens heads head_size"],
    layout: Layout,
    dropout_prob: float,
) -> Float[Tensor, "queries heads head_size"]:
    """Return what `litebert.nn.attention` returns."""
    if query.is_cuda:
        return full(query, key, value, layout, dropout_prob)
    is_exact = query.dtype == torch.float32
    rectangles, order = arranged(layout.query_lengths, layout.batch.lengths, is_exact)
    mixed = []
    for rectangle in rectangles:
        q = stacked(query[rectangle.queries], rectangle.sequences)
        k, v = (stacked(x[rectangle.keys], rectangle.sequences) for x in (key, value))
        is_fused = query.dtype != torch.bfloat16 or _likes_fused(k.shape[-2])
        kernel = F.scaled_dot_product_attention if is_fused else _plain
        mixed.append(kernel(q, k, v, rectangle.is_key).transpose(1, 2).flatten(0, 1))
    joined = mixed[0] if len(mixed) == 1 else torch.cat(mixed)
    return joined if order is None else joined.index_select(0, order)


@lru_cache(maxsize=8)
def arranged(query_lengths: Lengths, key_lengths: Lengths, is_exact: bool) -> Rectangles:
    """Put sequences of similar lengths side by side.

    Exact rectangles are as wide as their longest sequence, so a single text needs no padding. For
    kernels that are compiled for every width, there are few widths instead.
    """
    by_width: dict[int, list[int]] = {}
    for number, length in enumerate(key_lengths):
        by_width.setdefault(padded_width(length), []).append(number)
    rectangles, joined = [], 0
    order = torch.empty(sum(query_lengths), dtype=torch.int64)
    for width, stack in by_width.items():
        most = max(query_lengths[number] for number in stack)
        if not most:  # none of these sequences has a query
            continue
        width = max(key_lengths[number] for number in stack) if is_exact else width
        keys, is_key = _rows(stack, key_lengths, width)
        is_subset = query_lengths != key_lengths
        queries, is_query = _rows(stack, query_lengths, most) if is_subset else (keys, is_key)
        # Where each query's row is after all rectangles are joined; padding rows have no query.
        order[queries[is_query.flatten()]] = joined + is_query.flatten().nonzero().flatten()
        joined += len(queries)
        mask = None if bool(is_key.all()) else is_key.view(len(stack), 1, 1, width)
        rectangles.append(Rectangle(len(stack), _as_slice(queries), _as_slice(keys), mask))
    is_in_order = joined == len(order) and torch.equal(order, torch.arange(joined))
    return Rectangles(tuple(rectangles), None if is_in_order else order)


def padded_width(length: int) -> int:
    """Round up to 16, or to a multiple of 32: the tiles of a CPU's matrix unit.

    >>> padded_width(5), padded_width(33), padded_width(64)
    (16, 64, 64)
    """
    return 16 if length <= 16 else -(-length // 32) * 32


def _rows(
    stack: list[int], lengths: Lengths, width: int
) -> tuple[Int[Tensor, " rows"], Bool[Tensor, "sequences width"]]:
    """Return the rows of some sequences, and which are not padding; padding repeats a row."""
    sizes = torch.tensor(lengths)
    starts, sizes = (sizes.cumsum(0) - sizes)[stack, None], sizes[stack, None]
    columns = torch.arange(width)
    is_row = columns < sizes
    rows = torch.where(is_row, starts + columns, starts.clamp(max=sum(lengths) - 1))
    return rows.flatten(), is_row


def _as_slice(rows: Int[Tensor, " rows"]) -> Rows:
    """Return consecutive rows as a slice, which copies nothing."""
    start = int(rows[0])
    is_stretch = torch.equal(rows, torch.arange(start, start + len(rows)))
    return slice(start, start + len(rows)) if is_stretch else rows


def _plain(query: Tensor, key: Tensor, value: Tensor, is_key: Tensor | None) -> Tensor:
    scores = query * query.shape[-1] ** -0.5 @ key.transpose(-1, -2)
    if is_key is not None:
        scores = scores.masked_fill(~is_key, -torch.inf)
    mixed: Tensor = scores.softmax(-1) @ value
    return mixed


@lru_cache
def _likes_fused(width: int) -> bool:
    """Tell whether this CPU's fused kernel is not much slower than three products in bf16."""
    q = torch.full((4, 12, width, 64), 0.5, dtype=torch.bfloat16)
    kernels: tuple[Kernel, Kernel] = (F.scaled_dot_product_attention, _plain)
    fused, plain = fastest(lambda kernel: kernel(q, q, q, None), kernels, rounds=3)
    return fused < 1.2 * plain
