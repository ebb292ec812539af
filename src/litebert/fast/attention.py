"""Attention kernels: each computes the formula in `litebert.nn.model`, for the tokens
whose states are needed.

Which kernel is fastest depends on the device, the precision, the lengths, and whether
gradients are needed (benchmarks/RESULTS.md); choices that depend on the machine are
timed once per process.
"""

import time
from collections.abc import Callable, Mapping, Sequence
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
from litebert.device import device_at
from litebert.nn import Batch, Visible, attention, sequence_of
from litebert.plugins import ATTENTION_KINDS

_MANY = 4  # a stack of at least this many sequences counts as large
# Of a sequence in a rectangle: a single query is computed by another kernel, which
# rounds differently.
_FEWEST_QUERIES = 4
_LONG = 32  # above this many tokens, padding costs more than a separate call
# Widths of rectangles on a GPU are multiples of this: masks in half precision must be.
_ALIGNED = 8

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
    network is derived from it. `attend` is the engine's kernel for it; without one,
    scores are masked. `settings` are the keywords that both take, with their defaults;
    config.json has them.
    """

    visible: Callable[..., Any] | None
    attend: Callable[..., Tensor] | None = None
    settings: Mapping[str, Option] = field(default_factory=dict)


def attend_of(
    config: AlbertConfig,
    *,
    in_rectangles: bool,
    is_repeatable: bool = False,
) -> Attend:
    """Return the kernel for a kind of attention: its own if it has one, `masked`, or
    for full attention one of two.

    If it is to be repeatable, nothing is measured.
    """
    kind: AttentionKind = ATTENTION_KINDS[config.attention]
    settings = config.attention_arguments
    if kind.attend is not None:
        return partial(kind.attend, **settings)
    if kind.visible is not None:
        return partial(masked, visible=partial(kind.visible, **settings))
    if not in_rectangles:
        return full
    return partial(rectangles, is_repeatable=is_repeatable)


def full(
    query: OfQueries,
    key: OfTokens,
    value: OfTokens,
    layout: Layout,
    dropout_prob: float,
) -> OfQueries:
    """Attend to the whole sequence, in training or on a GPU.

    | device | lengths | kernel |
    | CPU | any | `by_stack`: equal neighbors share one call |
    | GPU | all equal | `by_stack`: one call on a view |
    | GPU with flash attention, half precision | any | `variable`: no padding |
    | GPU otherwise | any | `padded`: one rectangle |
    """
    device = device_at(query.device)
    is_ragged = isinstance(layout.queries, Tensor) or len(set(layout.batch.lengths)) > 1
    if device.is_cpu or not is_ragged:
        return by_stack(query, key, value, layout, dropout_prob)
    has_flash = device.has_flash_for(query.dtype, query.shape[-1])
    attend = variable if has_flash else padded
    return attend(query, key, value, layout, dropout_prob)


def by_stack(
    query: OfQueries,
    key: OfTokens,
    value: OfTokens,
    layout: Layout,
    dropout_prob: float,
) -> OfQueries:
    """Attend stack by stack: a stack, a run of sequences with equal numbers of queries
    and of keys, is a view.
    """
    stacks = _stacks_of(layout)
    # The gradient of a slice is as large as what it was cut from, and there are as many
    # slices as lengths. That of a split is written once.
    query_rows = [stack.num_sequences * stack.num_queries for stack in stacks]
    key_rows = [stack.num_sequences * stack.num_keys for stack in stacks]
    queries = torch.split(query, query_rows)
    keys = torch.split(key, key_rows)
    values = torch.split(value, key_rows)
    mixed = list[Tensor]()
    for number, stack in enumerate(stacks):
        # (sequences, heads, length, head_size)
        q = _in_sequences(queries[number], stack.num_sequences)
        k = _in_sequences(keys[number], stack.num_sequences)
        v = _in_sequences(values[number], stack.num_sequences)
        result = _attend_to_stack(q, k, v, dropout_prob)
        mixed.append(result.transpose(1, 2).flatten(0, 1))
    return mixed[0] if len(mixed) == 1 else torch.cat(mixed)


class _Stack(NamedTuple):
    """A run of sequences with equal numbers of queries and of keys."""

    num_sequences: int
    num_queries: int  # of each sequence
    num_keys: int


def _stacks_of(layout: Layout) -> list[_Stack]:
    """Return the stacks of a batch.

    Only neighbors share a stack, because a view cannot reorder rows. So training lays
    equal lengths side by side (`litebert.objectives.sequences`).
    """
    stacks = list[_Stack]()
    lengths = zip(layout.query_lengths, layout.batch.lengths, strict=True)
    for (num_queries, num_keys), run in groupby(lengths):
        count = sum(1 for _ in run)
        stacks.append(_Stack(count, num_queries, num_keys))
    return stacks


def _in_sequences(rows: Tensor, count: int) -> Tensor:
    """View rows (rows, heads, head_size) as (sequences, heads, length, head_size)."""
    return rows.view(count, -1, *rows.shape[1:]).transpose(1, 2)


def _attend_to_stack(q: Tensor, k: Tensor, v: Tensor, dropout_prob: float) -> Tensor:
    """Attend within sequences of one length, (sequences, heads, length, head_size)."""
    dtype = q.dtype
    if dtype != torch.bfloat16 or not device_at(q.device).is_cpu:
        return F.scaled_dot_product_attention(q, k, v, dropout_p=dropout_prob)
    if len(q) >= _MANY:
        # In bf16 on a CPU, a step with large stacks takes 1.4 times as long with the
        # fused kernel (benchmarks/RESULTS.md).
        return _products(q, k, v, None, dropout_prob)
    # Small ones in float32: in bf16, kernels are compiled anew for every new length,
    # which takes 0.4 GB more and is no faster.
    mixed = F.scaled_dot_product_attention(
        q.float(), k.float(), v.float(), dropout_p=dropout_prob
    )
    return mixed.to(dtype)


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
        scores = query * scale @ key.transpose(-1, -2)
    else:
        scores = _masked_scores(query, key, is_key, scale)
    # scores: (sequences, heads, queries, keys)
    mixed: Tensor = F.dropout(scores.softmax(-1), dropout_prob) @ value
    return mixed


def _masked_scores(
    query: Tensor, key: Tensor, is_key: Bool[Tensor, "sequences 1 1 keys"], scale: float
) -> Float[Tensor, "sequences heads queries keys"]:
    """Return scaled scores, -inf where there is no key; `baddbmm` scales and masks them
    in one pass, for which sequences and heads become one axis.
    """
    no_key = torch.zeros(is_key.shape, dtype=query.dtype)
    no_key.masked_fill_(~is_key, -torch.inf)
    scores = torch.baddbmm(
        no_key.expand(*query.shape[:3], -1).flatten(0, 1),
        query.flatten(0, 1),
        key.flatten(0, 1).transpose(-1, -2),
        alpha=scale,
    )
    return torch.unflatten(scores, 0, query.shape[:2])


def _in_float32(
    query: Tensor, key: Tensor, value: Tensor, is_key: Tensor | None
) -> Tensor:
    """Attend in float32: for short sequences in bf16, two casts may cost less than
    kernels of half precision.
    """
    mixed = F.scaled_dot_product_attention(
        query.float(), key.float(), value.float(), is_key
    )
    return mixed.to(query.dtype)


def variable(
    query: Tensor, key: Tensor, value: Tensor, layout: Layout, dropout_prob: float
) -> Tensor:
    """Attend by flash attention on ragged rows: nothing is padded, and scores are never
    in memory.
    """
    # where each sequence begins among the keys and among the queries, (boundaries,)
    key_offsets = layout.batch.offsets
    query_offsets = key_offsets
    if isinstance(layout.queries, Tensor):
        # how many queries are before each sequence
        query_offsets = torch.searchsorted(layout.queries, key_offsets)
    offsets = (query_offsets.to(torch.int32), key_offsets.to(torch.int32))
    # For the queries it is an upper bound: only the device knows how many each has.
    longest = max(layout.batch.lengths)
    if dropout_prob:
        # torch's public function has no dropout; the kernel under it does. The last two
        # arguments: attention is not causal, and the dropout mask is not returned.
        mixed, *_ = torch.ops.aten._flash_attention_forward(
            query, key, value, *offsets, longest, longest, dropout_prob, False, False
        )
    else:
        # imported here: it loads torch's compiler, which takes a second
        from torch.nn.attention.varlen import varlen_attn

        mixed = varlen_attn(query, key, value, *offsets, longest, longest)
    return cast(Tensor, mixed)


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
    sequences = sequence_of(batch)  # (tokens,)
    numbers = torch.arange(len(sequences), device=sequences.device)
    columns = numbers - batch.offsets[sequences]  # (tokens,), from 0 in each sequence
    # (tokens,), the cell of the rectangle in which each lies, counted line by line
    cells = sequences * width + columns
    lengths = batch.offsets.diff()  # (sequences,), on the device
    # (sequences, width)
    is_key = torch.arange(width, device=cells.device) < lengths[:, None]

    def lay_out(x: Tensor, places: Tensor) -> Tensor:
        """Return rows as (sequences, heads, width, head_size), with zeros between."""
        empty = x.new_zeros(is_key.numel(), *x.shape[1:])
        placed = empty.index_copy(0, places, x)
        return torch.unflatten(placed, 0, is_key.shape).transpose(1, 2)

    query_cells = cells[layout.queries]
    mixed = F.scaled_dot_product_attention(
        lay_out(query, query_cells),
        lay_out(key, cells),
        lay_out(value, cells),
        is_key[:, None, None],
        dropout_p=dropout_prob,
    )
    # Cells without a query were computed for nothing, and are dropped here.
    return mixed.transpose(1, 2).flatten(0, 1)[query_cells]


# ---- inference on a CPU --------------------------------------------------------------
#
# Sequences of similar lengths share padded rectangles: there are few distinct widths,
# so few kernels are compiled and few calls are made. Rows are copied, which is cheap in
# inference, but not in a backward pass.
#
# What is computed for a sequence depends on its own length, never on the sequences next
# to it, so that a text gets the same bits in every batch: its rectangle is as wide as
# its length says, with a mask if the width was rounded (even where nothing is masked),
# and the kernel is chosen by that width. Single queries are computed by a kernel that
# adds in another order in another thread: a rectangle has a few more.


class Rectangle(NamedTuple):
    """Sequences of one width, for one call of a kernel."""

    num_sequences: int
    # Their rows in the batch, (sequences * width,) each, or a slice of them. Padding
    # reads row 0.
    queries: slice | Tensor
    keys: slice | Tensor
    is_key: Bool[Tensor, "sequences 1 1 width"] | None  # None: there is no padding


def rectangles(
    query: OfQueries,
    key: OfTokens,
    value: OfTokens,
    layout: Layout,
    _: float,
    *,
    is_repeatable: bool = False,
) -> OfQueries:
    """Attend to the whole sequence, without gradients."""
    dtype = query.dtype
    kernels = _kernels_for(dtype, is_repeatable=is_repeatable)
    # Only kernels of half precision are compiled for every new width.
    is_exact = dtype == torch.float32
    shapes, order = arrange(layout.query_lengths, layout.batch.lengths, is_exact)
    mixed = list[Tensor]()
    for shape in shapes:
        # (sequences, heads, width, head_size)
        q = _rectangle(query, shape.queries, shape.num_sequences)
        k = _rectangle(key, shape.keys, shape.num_sequences)
        v = _rectangle(value, shape.keys, shape.num_sequences)
        num_heads, width, head_size = k.shape[1:]
        kernel = _choose_kernel(kernels, dtype, num_heads, _round_up(width), head_size)
        rows = kernel(q, k, v, shape.is_key).transpose(1, 2)
        # (queries, heads, head_size), with those that are padding
        mixed.append(rows.flatten(0, 1))
    joined = mixed[0] if len(mixed) == 1 else torch.cat(mixed)
    if order is None:
        return joined
    return joined.index_select(0, order)


def _kernels_for(dtype: torch.dtype, *, is_repeatable: bool) -> tuple[Kernel, ...]:
    """Return the kernels of which the fastest is chosen; only one if it is chosen by
    rule.
    """
    if dtype != torch.bfloat16:
        return (F.scaled_dot_product_attention,)
    if is_repeatable:
        return (_products,)  # the fastest or nearly so for every width
    return (F.scaled_dot_product_attention, _products, _in_float32)


def _rectangle(x: Tensor, rows: slice | Tensor, num_sequences: int) -> Tensor:
    """Return rows (tokens, heads, head_size) as (sequences, heads, width, head_size)."""
    # index_select is four times as fast as x[rows]
    chosen = x[rows] if isinstance(rows, slice) else x.index_select(0, rows)
    return torch.unflatten(chosen, 0, (num_sequences, -1)).transpose(1, 2)


@lru_cache(maxsize=8)
def arrange(
    query_lengths: tuple[int, ...], key_lengths: tuple[int, ...], is_exact: bool
) -> tuple[list[Rectangle], Int[Tensor, " queries"] | None]:
    """Group sequences of similar lengths in rectangles; also return the order that
    restores the queries, if they moved.

    There are only a few widths: 16 or a multiple of 32, the tile size of a CPU's matrix
    unit. With `is_exact`, for kernels that are not compiled for every width, a long
    sequence shares a rectangle only with those of its length, and nothing is padded.
    """
    query_rows = _rows_by_sequence(query_lengths)
    key_rows = _rows_by_sequence(key_lengths)
    shapes = list[Rectangle]()
    computed = list[Tensor]()  # the queries of each rectangle, in its order
    groups = _group_by_width(query_lengths, key_lengths, is_exact)
    for width, members in groups.items():
        most_queries = max(query_lengths[number] for number in members)
        if most_queries == 0:
            continue
        # (sequences, width): the row of each key and query, -1 where there is none
        keys = _stack_rows([key_rows[number] for number in members], width.num_tokens)
        queries = keys
        if query_lengths != key_lengths:
            columns = -(-most_queries // _FEWEST_QUERIES) * _FEWEST_QUERIES
            queries = _stack_rows([query_rows[number] for number in members], columns)
        # Wherever a width was rounded there is a mask, even if nothing is padded: with
        # a mask, other kernels add in another order.
        is_key = (keys >= 0)[:, None, None] if width.is_rounded else None
        shape = Rectangle(len(members), _as_rows(queries), _as_rows(keys), is_key)
        shapes.append(shape)
        computed.append(queries.flatten())
    return shapes, _restoring_order(torch.cat(computed), sum(query_lengths))


def _restoring_order(
    computed: Int[Tensor, " rows"], num_queries: int
) -> Int[Tensor, " queries"] | None:
    """Return in which row each query was computed; None if all are in order.

    `computed` says which query each row is, and -1 for padding.
    """
    if torch.equal(computed, torch.arange(num_queries)):
        return None
    is_query = computed >= 0
    order = torch.empty(num_queries, dtype=torch.int64)
    order[computed[is_query]] = is_query.nonzero().flatten()
    return order


def _rows_by_sequence(lengths: Sequence[int]) -> tuple[Tensor, ...]:
    """Return the row numbers of each sequence: (0, 1, 2), (3, 4) for lengths 3 and
    2.
    """
    return torch.split(torch.arange(sum(lengths)), list(lengths))


class Width(NamedTuple):
    """The width of a rectangle, and whether it was rounded, so that it has a mask."""

    num_tokens: int
    is_rounded: bool


def _group_by_width(
    query_lengths: Sequence[int], key_lengths: Sequence[int], is_exact: bool
) -> Mapping[Width, list[int]]:
    """Return the numbers of the sequences of each rectangle."""
    members_of: dict[Width, list[int]] = {}
    for number, length in enumerate(key_lengths):
        is_long = min(length, query_lengths[number]) > _LONG
        is_rounded = not (is_exact and is_long)
        num_tokens = _round_up(length) if is_rounded else length
        width = Width(num_tokens, is_rounded)
        members_of.setdefault(width, []).append(number)
    return members_of


def _stack_rows(rows: Sequence[Tensor], width: int) -> Int[Tensor, "sequences _"]:
    """Stack the rows of sequences in a rectangle, with -1 where there is none."""
    stacked = pad_sequence(list(rows), batch_first=True, padding_value=-1)
    return F.pad(stacked, (0, width - stacked.shape[1]), value=-1)


def _round_up(length: int) -> int:
    """Return the width of the rectangle for a length, in tokens."""
    return 16 if length <= 16 else -(-length // 32) * 32


def _as_rows(rows: Int[Tensor, "sequences width"]) -> slice | Tensor:
    """Return row numbers as a slice, which copies nothing, if they are consecutive;
    otherwise end to end, where padding (-1) reads row 0.
    """
    flat = rows.flatten()
    start = int(flat[0])
    stretch = torch.arange(start, start + len(flat))
    if start >= 0 and torch.equal(flat, stretch):
        return slice(start, start + len(flat))
    return flat.clamp(min=0)


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
    # some 256 tokens at any width
    num_sequences = max(1, 256 // width)
    shape = (num_sequences, width, heads, head_size)
    x = torch.full(shape, 0.5, dtype=dtype).transpose(1, 2)
    is_key = torch.ones(x.shape[0], 1, 1, width, dtype=torch.bool)
    runs = [partial(kernel, x, x, x, is_key) for kernel in kernels]
    seconds = time_each(*runs, rounds=7)
    return kernels[seconds.index(min(seconds))]


# ---- kinds of plug-ins, which attend to only a part of the sequence ------------------


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


def _scatter_queries(query: Tensor, layout: Layout) -> Tensor:
    """Return one row per token, with zeros for tokens that are not queries."""
    if isinstance(layout.queries, slice):
        return query
    rows = query.new_zeros(len(layout.batch.ids), *query.shape[1:])
    return rows.index_copy(0, layout.queries, query)


# ---- timing --------------------------------------------------------------------------


@torch.inference_mode()
def time_each(*choices: Callable[[], object], rounds: int) -> list[float]:
    """Return the shortest time of each choice, in seconds; the runs are interleaved,
    after a warm-up.

    On one thread it is the time of the processor, which a busy machine disturbs less.
    """
    is_alone = torch.get_num_threads() == 1
    clock = time.process_time if is_alone else time.perf_counter
    for run in choices:
        run()
    seconds = [float("inf")] * len(choices)
    for _ in range(rounds):
        for number, run in enumerate(choices):
            start = clock()
            run()
            seconds[number] = min(seconds[number], clock() - start)
    return seconds


# ---- our kind of attention -----------------------------------------------------------


ATTENTION_KINDS.add("full", AttentionKind(visible=None))
