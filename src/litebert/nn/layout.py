"""Which rows of the flat token list attend to which: sequences side by side in rectangles."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from typing import NamedTuple, TypeAlias

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from litebert.nn.batch import Batch

Rows: TypeAlias = slice | Tensor
"""Rows of the token list: a stretch of it, or an index for each."""


class Rectangle(NamedTuple):
    """Sequences of one width, for one call of a kernel: `keys` are their rows.

    `queries` are the rows that ask, equally many a sequence. `is_key` is false at keys beyond the
    end of a sequence; None where there are none.
    """

    sequences: int
    keys: Rows
    queries: Rows
    is_key: Bool[Tensor, "sequences 1 1 width"] | None


class Asking(NamedTuple):
    """The rows that ask: the sequence of each, and its number among those of that sequence."""

    sequence: Int[Tensor, " read"]
    slot: Int[Tensor, " read"]


@dataclass(frozen=True)
class Layout:
    """How a batch attends; `read` are the rows that ask, in any order, None for every token.

    Padded rectangles have few distinct widths, so that few kernels are compiled, and few calls are
    made; they copy rows. Without, a rectangle is a stretch of neighbours of equal length, whatever
    the order: a view, which suits the backward pass.
    """

    batch: Batch
    read: Int[Tensor, " read"] | None = None
    is_padded: bool = False

    @cached_property
    def rectangles(self) -> tuple[Rectangle, ...]:
        """All sequences, each in one rectangle."""
        return tuple(self._rectangle(numbers, width) for numbers, width in self._stacks)

    @cached_property
    def back(self) -> Int[Tensor, " read"] | None:
        """Where each row that asks stands when the rectangles are joined; None if in order."""
        numbers = [number for stack, _ in self._stacks for number in stack]
        asked = [self._asked(width) for stack, width in self._stacks for _ in stack]
        starts = torch.empty(len(numbers), dtype=torch.int64)
        starts[numbers] = torch.tensor([0, *asked[:-1]]).cumsum(0)
        rows = starts[self._asking.sequence] + self._asking.slot
        is_in_order = len(rows) == sum(asked) and torch.equal(rows, torch.arange(len(rows)))
        return None if is_in_order else rows.to(self.batch.ids.device)

    @cached_property
    def by_sequence(self) -> tuple[Int[Tensor, " read"], Int[Tensor, " boundaries"]]:
        """The order that sorts `read` by sequence, and where each sequence begins in it."""
        assert self.read is not None, "every row asks, and stands in order"
        offsets = self.batch.offsets
        sequence = torch.searchsorted(offsets, self.read, right=True) - 1
        order = torch.argsort(sequence, stable=True)
        numbers = torch.arange(len(offsets), device=offsets.device)
        return order, torch.searchsorted(sequence[order], numbers)

    @cached_property
    def _stacks(self) -> list[tuple[list[int], int]]:
        """Numbers of sequences with a common width."""
        lengths = self.batch.lengths
        numbers = range(len(lengths))
        if not self.is_padded:
            runs = [list(run) for _, run in groupby(numbers, key=lambda n: lengths[n])]
            return [(run, lengths[run[0]]) for run in runs]
        by_width: dict[int, list[int]] = {}
        for number in numbers:
            by_width.setdefault(padded_width(lengths[number]), []).append(number)
        return [(stack, width) for width, stack in by_width.items()]

    @cached_property
    def _starts(self) -> Int[Tensor, " sequences"]:
        return torch.tensor([0, *self.batch.lengths[:-1]]).cumsum(0)

    @cached_property
    def _asking(self) -> Asking:
        sizes = torch.tensor(self.batch.lengths)
        if self.read is None:
            sequence = torch.arange(len(sizes)).repeat_interleave(sizes)
            return Asking(sequence, torch.arange(len(sequence)) - self._starts[sequence])
        sequence = torch.searchsorted(self._starts, self.read.cpu(), right=True) - 1
        order = torch.argsort(sequence, stable=True)
        counts = torch.bincount(sequence, minlength=len(sizes))
        slot = torch.empty_like(sequence)
        slot[order] = torch.arange(len(order)) - (counts.cumsum(0) - counts)[sequence[order]]
        return Asking(sequence, slot)

    @cached_property
    def _table(self) -> Int[Tensor, "sequences slots"] | None:
        """The rows that ask by sequence; a sequence with fewer asks for its first token again."""
        if self.read is None:
            return None
        sequence, slot = self._asking
        width = int(slot.max()) + 1 if len(slot) else 1
        table = self._starts[:, None].repeat(1, width)
        table[sequence, slot] = self.read.cpu()
        return table

    def _asked(self, width: int) -> int:
        return width if self._table is None else self._table.shape[1]

    def _rectangle(self, numbers: list[int], width: int) -> Rectangle:
        sizes = torch.tensor([self.batch.lengths[number] for number in numbers])
        columns = torch.arange(width)
        is_key = columns < sizes[:, None]
        is_full = bool(is_key.all())
        starts = self._starts[numbers]
        device = self.batch.ids.device
        if is_full and numbers == list(range(numbers[0], numbers[-1] + 1)):
            keys: Rows = slice(int(starts[0]), int(starts[-1]) + width)
        else:
            keys = torch.where(is_key, starts[:, None] + columns, starts[:, None]).flatten()
            keys = keys.to(device)
        asking = keys if self._table is None else self._table[numbers].flatten().to(device)
        mask = None if is_full else is_key[:, None, None].to(device)
        return Rectangle(len(numbers), keys, asking, mask)


def padded_width(length: int) -> int:
    """Round up to 16, or to a multiple of 32: the tiles of a CPU's matrix unit.

    >>> padded_width(5), padded_width(33), padded_width(64)
    (16, 64, 64)
    """
    return 16 if length <= 16 else -(-length // 32) * 32
