"""A ragged batch: the tokens of all sequences lie end to end, and padding is never computed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate, chain

import torch
from jaxtyping import Int, Shaped
from torch import Tensor

from litebert.errors import LitebertError


@dataclass(frozen=True)
class Batch:
    """Hold sequences end to end: sequence i is `ids[offsets[i] : offsets[i + 1]]`.

    >>> Batch.from_lists([[2, 7, 3], [2, 8, 9, 3]]).offsets.tolist()
    [0, 3, 7]
    """

    ids: Int[Tensor, " tokens"]
    positions: Int[Tensor, " tokens"]
    segments: Int[Tensor, " tokens"]
    offsets: Int[Tensor, " boundaries"]
    lengths: tuple[int, ...]  # on the host, so that choosing a kernel never waits for the device

    @classmethod
    def from_lists(cls, ids: Sequence[Sequence[int]], segments: Sequence[Sequence[int]] | None = None) -> Batch:
        """Join lists of ids and of segment ids (default 0); raise LB-450 for an empty sequence."""
        lengths = [len(sequence) for sequence in ids]
        if not all(lengths):
            raise LitebertError(
                "LB-450",
                "a batch cannot hold an empty sequence",
                received=f"lengths {lengths}",
                expected="at least one token in each sequence, [CLS] for instance",
                next="encode with frame=True",
            )
        types = [[0] * length for length in lengths] if segments is None else segments
        flat, flat_types = (torch.tensor([*chain(*x)], dtype=torch.int64) for x in (ids, types))
        return cls.from_flat(flat, flat_types, lengths)

    @classmethod
    def from_flat(cls, ids: Int[Tensor, " tokens"], segments: Int[Tensor, " tokens"], lengths: Sequence[int]) -> Batch:
        """Take tokens that already lie end to end; positions count from 0 in each sequence."""
        positions = torch.tensor([*chain(*map(range, lengths))], dtype=torch.int64)
        offsets = torch.tensor([0, *accumulate(lengths)])
        return cls(ids, positions, segments, offsets, tuple(lengths))

    @classmethod
    def from_padded(
        cls,
        ids: Int[Tensor, "sequences width"],
        mask: Shaped[Tensor, "sequences width"] | None = None,
        segments: Int[Tensor, "sequences width"] | None = None,
    ) -> Batch:
        """Drop the padding, where the mask is 0; a token keeps its column as its position."""
        keep = torch.ones_like(ids, dtype=torch.bool) if mask is None else mask.bool()
        types = torch.zeros_like(ids) if segments is None else segments
        sizes = keep.sum(1)
        offsets = torch.cat([sizes.new_zeros(1), sizes.cumsum(0)])
        return cls(ids[keep], keep.nonzero()[:, 1], types[keep], offsets, tuple(sizes.tolist()))

    def to_padded(
        self, values: Shaped[Tensor, "tokens ..."], *, width: int | None = None
    ) -> Shaped[Tensor, "sequences width ..."]:
        """Lay per-token values out as a rectangle, with zeros where there is no token."""
        width = int(self.positions.max()) + 1 if width is None else width
        sequence = torch.arange(len(self.lengths), device=values.device)
        place = (sequence.repeat_interleave(self.offsets.diff()), self.positions)
        return values.new_zeros(len(sequence), width, *values.shape[1:]).index_put(place, values)

    def to(self, device: torch.device | str) -> Batch:
        """Return the batch on a device: itself if it is already there."""
        if self.ids.device == torch.device(device):
            return self
        tensors = {name: x for name, x in vars(self).items() if name != "lengths"}
        return replace(self, **{n: x.to(device, non_blocking=True) for n, x in tensors.items()})

    @property
    def first_tokens(self) -> Int[Tensor, " sequences"]:
        """Index of the first token, [CLS], of every sequence."""
        return self.offsets[:-1]


@dataclass(frozen=True)
class Layout:
    """Which rows are queries and which are keys, sequence by sequence.

    Keys are all tokens; queries are the tokens at `queries`, ascending, or all of them. Sequence i
    has the queries from `query_offsets[i]` to the next, as variable-length kernels take them.
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
        is_all = self.queries is None
        return self.batch.lengths if is_all else tuple(self.query_offsets.diff().tolist())

    def of_queries(self, rows: Shaped[Tensor, "rows ..."]) -> Shaped[Tensor, "query_rows ..."]:
        """Return the rows of the queries."""
        return rows if self.queries is None else rows[self.queries]
