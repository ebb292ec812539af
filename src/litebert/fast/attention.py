"""Attention kernels: each computes the formula in `litebert.nn.model`, for the tokens
whose states are needed.

Which kernel is fastest depends on the device, the precision, the lengths, and whether
gradients are needed (benchmarks/RESULTS.md); choices that depend on the machine are
timed once per process.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache, partial
from itertools import groupby
from typing import Any, NamedTuple, TypeAlias, cast

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional as F
from torch.nn.utils.rnn import pad_sequence

from litebert.config import AlbertConfig, Option
from litebert.nn import Batch, Visible, attention, sequence_of
from litebert.plugins import ATTENTION_KINDS

_MANY = 4  # a stack of at least this many sequences counts as large
# up to this many tokens in a batch, float32 beats bf16 on a CPU: no padding, one
# kernel, two casts
_FEW = 48
_LONG = 32  # above this many tokens, padding costs more than a separate call
# widths of rectangles on a GPU are multiples of this, as masks in half precision
# require
_ALIGNED = 8
_SMALLEST_BLOCK = 32  # tokens in a block of local attention

OfQueries: TypeAlias = Float[Tensor, "queries heads head_size"]
OfTokens: TypeAlias = Float[Tensor, "tokens heads head_size"]


@dataclass(frozen=True)
class Layout:
    """Which rows are queries and which are keys, sequence by sequence; all tokens are
    keys.
    """

    batch: Batch
    # The index of each query's token, ascending, or a slice of all:
    # `rows[layout.queries]` are the rows of the queries.
    queries: Int[Tensor, " queries"] | slice = field(
        default_factory=lambda: slice(None)
    )

    @property
    def query_lengths(self) -> tuple[int, ...]:
        """The number of queries of each sequence, read on the host."""
        if isinstance(self.queries, slice):
            return self.batch.lengths
        return tuple(
            torch.searchsorted(self.queries, self.batch.offsets).diff().tolist()
        )


Attend: TypeAlias = Callable[[Tensor, Tensor, Tensor, Layout, float], Tensor]
"""(query, key, value, layout, dropout_prob) -> mixed, one row per query; key and value
have one row per token.
"""

Kernel: TypeAlias = Callable[[Tensor, Tensor, Tensor, Tensor | None], Tensor]
"""(query, key, value, is_key) -> mixed, all (sequences, heads, width, head_size);
is_key broadcasts to the scores.
"""


@dataclass(frozen=True)
class AttentionKind:
    """A kind of attention: what each token reads, and a fast kernel for it
    (docs/extending/attention.md adds one).

    `visible(query, key, **settings)` defines it: for arrays of positions that
    broadcast, it returns whether the query reads the key. None: always. The plain
    network and the map of a model's attention are derived from it. `attend` is the
    engine's kernel for it; without one, scores are masked. `settings` are the keywords
    that both take, with their defaults; config.json has them.
    """

    visible: Callable[..., Any] | None
    attend: Callable[..., Tensor] | None = None
    settings: Mapping[str, Option] = field(default_factory=dict)


def attend_of(
    config: AlbertConfig, *, in_rectangles: bool, extra: tuple[Kernel, ...] = ()
) -> Attend:
    """Return the kernel for a kind of attention: its own if it has one, `masked`, or
    for full attention one of two.

    The `extra` kernels are for rectangles; each is used wherever it is measured to be
    faster than torch's.
    """
    kind: AttentionKind = ATTENTION_KINDS[config.attention]
    settings = config.attention_arguments
    if kind.attend is not None:
        return partial(kind.attend, **settings)
    if kind.visible is not None:
        return partial(masked, visible=partial(kind.visible, **settings))
    return partial(rectangles, extra=extra) if in_rectangles else full


def full(
    query: OfQueries,
    key: OfTokens,
    value: OfTokens,
    layout: Layout,
    dropout_prob: float,
) -> OfQueries:
    """Attend to the whole sequence, in training or on a GPU, stack by stack.

    A stack, a run of sequences with equal numbers of queries and of keys, is a view:
    the backward pass copies nothing.
    """
    dtype = query.dtype
    lengths = layout.batch.lengths
    if query.is_cuda and (isinstance(layout.queries, Tensor) or len(set(lengths)) > 1):
        has_flash = not dropout_prob and _has_flash(
            dtype, query.shape[-1], query.device
        )
        return (_variable if has_flash else padded)(
            query, key, value, layout, dropout_prob
        )
    mixed = []
    queries = 0
    keys = 0
    for (num_queries, num_keys), run in groupby(
        zip(layout.query_lengths, lengths, strict=True)
    ):
        count = sum(1 for _ in run)
        of_keys = [x[keys : keys + count * num_keys] for x in (key, value)]
        parts = (query[queries : queries + count * num_queries], *of_keys)
        # (sequences, heads, length, size)
        q, k, v = (x.view(count, -1, *x.shape[1:]).transpose(1, 2) for x in parts)
        if query.is_cuda or dtype != torch.bfloat16:
            own = F.scaled_dot_product_attention(q, k, v, dropout_p=dropout_prob)
        elif count >= _MANY:
            # in bf16 on a CPU, large stacks train fastest with plain products
            own = _products(q, k, v, None, dropout_prob)
        else:
            # small ones in float32, whose kernels are not compiled anew for every new
            # length
            q, k, v = (x.float() for x in (q, k, v))
            own = F.scaled_dot_product_attention(q, k, v, dropout_p=dropout_prob).to(
                dtype
            )
        mixed.append(own.transpose(1, 2).flatten(0, 1))
        queries = queries + count * num_queries
        keys = keys + count * num_keys
    return mixed[0] if len(mixed) == 1 else torch.cat(mixed)


def _products(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    is_key: Tensor | None,
    dropout_prob: float = 0.0,
) -> Tensor:
    """Attend by two products and a softmax, which in bf16 may be faster than the fused
    kernel.
    """
    scale = query.shape[-1] ** -0.5
    if is_key is None:
        # (sequences, heads, queries, keys)
        scores = query * scale @ key.transpose(-1, -2)
    else:  # one pass over the scores scales them and adds -inf where there is no key
        mask = torch.zeros(is_key.shape, dtype=query.dtype).masked_fill_(
            ~is_key, -torch.inf
        )
        mask = mask.expand(*query.shape[:3], -1).flatten(0, 1)
        scores = torch.baddbmm(
            mask, query.flatten(0, 1), key.flatten(0, 1).transpose(-1, -2), alpha=scale
        )
        scores = torch.unflatten(scores, 0, query.shape[:2])
    mixed: Tensor = F.dropout(scores.softmax(-1), dropout_prob) @ value
    return mixed


@lru_cache
def _has_flash(dtype: torch.dtype, head_size: int, device: torch.device) -> bool:
    """Return whether variable-length flash attention supports these rows: half
    precision, Ampere (sm80) or later.
    """
    fits = (
        dtype in (torch.float16, torch.bfloat16)
        and head_size % 8 == 0
        and head_size <= 256
    )
    return fits and torch.cuda.get_device_capability(device) >= (8, 0)


def _variable(
    query: Tensor, key: Tensor, value: Tensor, layout: Layout, _dropout_prob: float
) -> Tensor:
    from torch.nn.attention.varlen import varlen_attn

    keys = layout.batch.offsets
    longest = max(layout.batch.lengths)
    # first of each
    queries = (
        torch.searchsorted(layout.queries, keys)
        if isinstance(layout.queries, Tensor)
        else keys
    )
    offsets = (queries.to(torch.int32), keys.to(torch.int32))
    return cast(Tensor, varlen_attn(query, key, value, *offsets, longest, longest))


def padded(
    query: Tensor, key: Tensor, value: Tensor, layout: Layout, dropout_prob: float
) -> Tensor:
    """Attend within one rectangle as wide as the longest sequence; the host reads
    nothing from the device.

    Only the device knows how many queries each sequence has, so each query is placed in
    the column of its token.
    """
    batch = layout.batch
    width = -(-max(layout.batch.lengths) // _ALIGNED) * _ALIGNED
    sequences = sequence_of(batch)
    sizes = batch.offsets.diff()
    columns = torch.arange(len(sequences), device=sequences.device)
    # (tokens,), where each lies in the rectangle
    rows = sequences * width + columns - batch.offsets[sequences]
    # (sequences, width)
    is_key = torch.arange(width, device=rows.device) < sizes[:, None]
    q, k, v = (
        torch.unflatten(
            x.new_zeros(is_key.numel(), *x.shape[1:]).index_copy(0, at, x),
            0,
            is_key.shape,
        ).transpose(1, 2)
        for x, at in ((query, rows[layout.queries]), (key, rows), (value, rows))
    )  # (sequences, heads, width, size)
    mixed = F.scaled_dot_product_attention(
        q, k, v, is_key[:, None, None], dropout_p=dropout_prob
    )
    return mixed.transpose(1, 2).flatten(0, 1)[rows[layout.queries]]


# For inference on a CPU: sequences of similar lengths in padded rectangles. There are
# few distinct widths, so few kernels are compiled and few calls are made. Rows are
# copied, which is cheap in inference, but not in a backward pass.


class Rectangle(NamedTuple):
    """Sequences of one width, for one call of a kernel; `is_key` is None without
    padding.
    """

    num_sequences: int
    queries: slice | Tensor
    keys: slice | Tensor
    is_key: Bool[Tensor, "sequences 1 1 width"] | None


def rectangles(
    query: OfQueries,
    key: OfTokens,
    value: OfTokens,
    layout: Layout,
    _: float,
    *,
    extra: tuple[Kernel, ...] = (),
) -> OfQueries:
    """Attend to the whole sequence, without gradients."""
    if query.dtype == torch.bfloat16 and key.shape[0] <= _FEW:
        return rectangles(
            query.float(), key.float(), value.float(), layout, 0.0, extra=extra
        ).to(query.dtype)
    kernels: tuple[Kernel, ...] = (F.scaled_dot_product_attention,)
    if query.dtype == torch.bfloat16:
        kernels += (_products,)
    # for a few queries, the copies that the extra ones make do not pay
    if isinstance(layout.queries, slice):
        kernels += extra
    mixed = list[Tensor]()
    found, order = arrange(
        layout.query_lengths, layout.batch.lengths, query.dtype == torch.float32
    )
    for count, queries, keys, is_key in found:
        parts = (
            # four times as fast as x[rows]
            x[rows] if isinstance(rows, slice) else x.index_select(0, rows)
            for x, rows in ((query, queries), (key, keys), (value, keys))
        )
        # (sequences, heads, width, size)
        q, k, v = (torch.unflatten(x, 0, (count, -1)).transpose(1, 2) for x in parts)
        kernel = _choose_kernel(
            kernels, query.dtype, q.shape[1], _round_up(k.shape[2]), q.shape[3]
        )
        mixed.append(kernel(q, k, v, is_key).transpose(1, 2).flatten(0, 1))
    joined = mixed[0] if len(mixed) == 1 else torch.cat(mixed)
    return joined if order is None else joined.index_select(0, order)


@lru_cache(maxsize=8)
def arrange(
    query_lengths: tuple[int, ...], key_lengths: tuple[int, ...], is_exact: bool
) -> tuple[list[Rectangle], Int[Tensor, " queries"] | None]:
    """Group sequences of similar lengths in rectangles; also return the order that
    restores the queries, if they moved.

    Exact rectangles are as wide as their longest sequence, and long sequences share one
    only if they are equally long. For kernels that are compiled for every width, there
    are only a few widths: 16 or a multiple of 32, the tile size of a CPU's matrix unit.
    """
    by_width: dict[int, list[int]] = {}
    for number, length in enumerate(key_lengths):
        is_long = is_exact and min(length, query_lengths[number]) > _LONG
        by_width.setdefault(length if is_long else _round_up(length), []).append(number)
    own_queries, own_keys = (
        torch.split(torch.arange(sum(each)), list(each))
        for each in (query_lengths, key_lengths)
    )
    found = []
    joined = []
    for width, members in by_width.items():
        # (sequences, width): the row of each query and key, -1 where there is none
        queries, keys = (
            pad_sequence([rows[n] for n in members], True, -1)
            for rows in (own_queries, own_keys)
        )
        keys = keys if is_exact else F.pad(keys, (0, width - keys.shape[1]), value=-1)
        if query_lengths == key_lengths:
            queries = keys
        if queries.numel():  # at least one of these sequences has a query
            is_key = keys >= 0
            mask = None if bool(is_key.all()) else is_key[:, None, None]
            found.append(
                Rectangle(len(members), _as_slice(queries), _as_slice(keys), mask)
            )
            joined.append(queries.flatten())
    places = torch.cat(joined)  # which query each joined row is
    order = torch.empty(sum(query_lengths), dtype=torch.int64)
    order[places[places >= 0]] = (places >= 0).nonzero().flatten()
    return found, None if torch.equal(places, torch.arange(len(order))) else order


def _round_up(length: int) -> int:
    return 16 if length <= 16 else -(-length // 32) * 32


def _as_slice(rows: Int[Tensor, "sequences width"]) -> slice | Tensor:
    """Return consecutive rows as a slice, which copies nothing; otherwise, padding
    points to row 0.
    """
    flat = rows.flatten()
    start = int(rows[0, 0])
    is_stretch = start >= 0 and torch.equal(
        flat, torch.arange(start, start + len(flat))
    )
    return slice(start, start + len(flat)) if is_stretch else flat.clamp(min=0)


@lru_cache
def _choose_kernel(
    kernels: tuple[Kernel, ...],
    dtype: torch.dtype,
    heads: int,
    width: int,
    head_size: int,
) -> Kernel:
    """Return the kernel that is fastest on this CPU for sequences of about this width,
    timed once.
    """
    if len(kernels) == 1:
        return kernels[0]
    x = torch.full(
        (max(1, 256 // width), width, heads, head_size), 0.5, dtype=dtype
    ).transpose(1, 2)
    is_key = torch.ones(x.shape[0], 1, 1, width, dtype=torch.bool)
    seconds = time_each(
        *(partial(kernel, x, x, x, is_key) for kernel in kernels), rounds=7
    )
    return kernels[seconds.index(min(seconds))]


# Kinds that attend to only a part of the sequence.


def masked(
    query: OfQueries,
    key: OfTokens,
    value: OfTokens,
    layout: Layout,
    dropout_prob: float,
    *,
    visible: Visible,
) -> OfQueries:
    """Mask the scores of all pairs of tokens: this defines any kind, but memory grows
    with the square of length.
    """
    mixed = attention(
        _scatter_queries(query, layout), key, value, layout.batch, visible, dropout_prob
    )
    return mixed[layout.queries]


def local(
    query: OfQueries,
    key: OfTokens,
    value: OfTokens,
    layout: Layout,
    dropout_prob: float,
    *,
    attention_window: int,
) -> OfQueries:
    """Attend from each token to its neighbours and the [CLS] of its sequence, and from
    [CLS] to all tokens.

    Blocks of tokens attend to the blocks around them, so the cost per token is the same
    at any length.
    """
    batch = layout.batch
    num_tokens = len(key)
    window = min(attention_window, max(batch.lengths))  # of a short text, the whole
    size = max(window, _SMALLEST_BLOCK)
    missing = -num_tokens % size  # tokens that are missing from the last block
    everywhere = _scatter_queries(query, layout)
    scaled = everywhere * query.shape[-1] ** -0.5
    first = batch.first_tokens[sequence_of(batch)]  # (tokens,): each token's own [CLS]
    to_first = (scaled * key[first]).sum(-1)  # (tokens, heads)
    q = torch.unflatten(
        F.pad(scaled, (0, 0, 0, 0, 0, missing)), 0, (-1, size)
    ).transpose(1, 2)
    k, v = (
        F.pad(x, (0, 0, 0, 0, window, window + missing)).unfold(
            0, size + 2 * window, size
        )
        for x in (key, value)
    )  # (blocks, heads, head_size, span)

    # The neighbours that each token attends to (blocks, size, span): those in the band,
    # with the same [CLS]. A [CLS] outside the band is handled separately (blocks,
    # size).
    own = F.pad(first, (0, missing), value=-1).view(-1, size)
    around = F.pad(first, (window, window + missing), value=-2).unfold(
        0, size + 2 * window, size
    )
    row, column = (
        torch.arange(n, device=first.device) for n in (size, size + 2 * window)
    )
    is_in_band = (row[:, None] + window - column).abs() <= window
    is_near = is_in_band & (around[:, None] == own[..., None])
    is_far = torch.arange(own.numel(), device=first.device).view_as(own) - own > window

    # (blocks, heads, size, span)
    near = (q @ k).masked_fill(~is_near[:, None], -torch.inf)
    far = torch.unflatten(F.pad(to_first, (0, 0, 0, missing)), 0, (-1, size)).transpose(
        1, 2
    )[..., None]
    far = far.masked_fill(~is_far[:, None, :, None], -torch.inf)
    share = F.dropout(torch.cat([near, far], -1).softmax(-1), dropout_prob)
    mixed = (
        (share[..., :-1] @ v.transpose(-1, -2))
        .transpose(1, 2)
        .flatten(0, 1)[:num_tokens]
    )
    # (tokens, heads)
    of_first = share[..., -1].transpose(1, 2).flatten(0, 1)[:num_tokens]
    mixed = mixed + of_first[..., None] * value[first]

    # Each [CLS] attends to its whole sequence.
    to_all = full(
        everywhere[batch.first_tokens],
        key,
        value,
        Layout(batch, batch.first_tokens),
        dropout_prob,
    )
    return mixed.index_copy(0, batch.first_tokens, to_all)[layout.queries]


def _scatter_queries(query: Tensor, layout: Layout) -> Tensor:
    """Return one row per token, with zeros for tokens that are not queries."""
    if isinstance(layout.queries, slice):
        return query
    return query.new_zeros(len(layout.batch.ids), *query.shape[1:]).index_copy(
        0, layout.queries, query
    )


@torch.inference_mode()
def time_each(*choices: Callable[[], object], rounds: int) -> list[float]:
    """Return the shortest time of each choice, in seconds; the runs are interleaved,
    after a warm-up.
    """
    for run in choices:
        run()
    seconds = [float("inf")] * len(choices)
    for _ in range(rounds):
        for number, run in enumerate(choices):
            start = time.perf_counter()
            run()
            seconds[number] = min(seconds[number], time.perf_counter() - start)
    return seconds


# ---- our kinds of attention ----------------------------------------------------------


def near_or_first(query: Any, key: Any, *, attention_window: int) -> Any:
    """Return where local attention reads: neighbors up to the window, and [CLS], which
    itself reads all.
    """
    return (abs(query - key) <= attention_window) | (query == 0) | (key == 0)


ATTENTION_KINDS.add("full", AttentionKind(visible=None))
ATTENTION_KINDS.add(
    "local", AttentionKind(near_or_first, local, {"attention_window": 64})
)
