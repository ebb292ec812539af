"""A ragged batch: the tokens of all sequences lie end to end, and padding is never computed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Int, Shaped
from torch import Tensor

from litebert.errors import LitebertError


@dataclass(frozen=True)
class Batch:
    """Hold sequences end to end.

    `ids`, `positions` and `segments` have one entry a token; sequence i is
    `ids[offsets[i] : offsets[i + 1]]`. `lengths` repeats the offsets on the host, so that choosing
    a kernel never waits for the device.

    >>> batch = Batch.from_lists([[2, 7, 3], [2, 8, 9, 3]])
    >>> batch.offsets.tolist()
    [0, 3, 7]
    """

    ids: Int[Tensor, " tokens"]
    positions: Int[Tensor, " tokens"]
    segments: Int[Tensor, " tokens"]
    offsets: Int[Tensor, " boundaries"]
    lengths: tuple[int, ...]

    @classmethod
    def from_lists(
        cls, ids: Sequence[Sequence[int]], segments: Sequence[Sequence[int]] | None = None
    ) -> Batch:
        """Join lists of ids (and of segment ids, default 0); sequences may not be empty."""
        lengths = tuple(len(sequence) for sequence in ids)
        if not all(lengths):
            raise LitebertError(
                "LB-450",
                "a batch cannot hold an empty sequence",
                received=f"lengths {list(lengths)}",
                expected="at least one token in each sequence, [CLS] for instance",
                next="encode with frame=True",
            )
        flat = torch.tensor([token for sequence in ids for token in sequence], dtype=torch.int64)
        if segments is None:
            types = torch.zeros_like(flat)
        else:
            types = torch.tensor([s for sequence in segments for s in sequence], dtype=torch.int64)
        return cls.from_flat(flat, types, lengths)

    @classmethod
    def from_flat(
        cls, ids: Int[Tensor, " tokens"], segments: Int[Tensor, " tokens"], lengths: Sequence[int]
    ) -> Batch:
        """Take tokens that already lie end to end; positions count from 0 in each sequence."""
        sizes = torch.tensor(lengths, dtype=torch.int64)
        offsets = torch.cat([sizes.new_zeros(1), sizes.cumsum(0)])
        positions = torch.arange(len(ids)) - offsets[:-1].repeat_interleave(sizes)
        return cls(ids, positions, segments, offsets, tuple(lengths))

    @classmethod
    def from_padded(
        cls,
        ids: Int[Tensor, "sequences width"],
        mask: Bool[Tensor, "sequences width"] | Int[Tensor, "sequences width"] | None = None,
        segments: Int[Tensor, "sequences width"] | None = None,
    ) -> Batch:
        """Drop the padding of a rectangle; a token keeps its column as its position."""
        keep = torch.ones_like(ids, dtype=torch.bool) if mask is None else mask.bool()
        types = torch.zeros_like(ids) if segments is None else segments
        columns = torch.arange(ids.shape[1], device=ids.device).expand_as(ids)
        sizes = keep.sum(1)
        offsets = torch.cat([sizes.new_zeros(1), sizes.cumsum(0)])
        return cls(ids[keep], columns[keep], types[keep], offsets, tuple(sizes.tolist()))

    def to_padded(
        self, values: Shaped[Tensor, "tokens ..."], *, width: int | None = None
    ) -> Shaped[Tensor, "sequences width ..."]:
        """Lay per-token values out as a rectangle again, zeros where no token is."""
        columns = self.positions
        wide = width if width is not None else int(columns.max()) + 1
        rows = torch.arange(len(self.lengths), device=values.device).repeat_interleave(
            self.offsets.diff()
        )
        padded = values.new_zeros(len(self.lengths), wide, *values.shape[1:])
        return padded.index_put((rows, columns), values)

    def to(self, device: torch.device | str) -> Batch:
        """Move the tensors to a device."""
        return replace(
            self,
            ids=self.ids.to(device, non_blocking=True),
            positions=self.positions.to(device, non_blocking=True),
            segments=self.segments.to(device, non_blocking=True),
            offsets=self.offsets.to(device, non_blocking=True),
        )

    @property
    def has_one_length(self) -> bool:
        """Whether all sequences are equally long, so that the tokens are a rectangle."""
        return len(set(self.lengths)) == 1

    @property
    def first_tokens(self) -> Int[Tensor, " sequences"]:
        """Index of the first token, [CLS], of every sequence."""
        return self.offsets[:-1]
