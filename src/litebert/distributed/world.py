"""Communication between the processes of a run: sums, broadcasts, small values."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed import Store  # type: ignore[attr-defined]

from litebert.errors import ResourceError
from litebert.files import Json

Item = TypeVar("Item")
Value = TypeVar("Value")

BUCKET_NUMBERS = 1 << 24
"""Numbers sent in one message: 64 MiB in float32, enough for all of base."""
_POLL_SECONDS = 0.05


@dataclass(frozen=True)
class World:
    """The processes of a run and the rank of this one; a single process sends nothing.

    All processes must call the same methods in the same order.

    >>> ALONE.totals(3, 4), ALONE.share([1, 2, 3])
    ([3.0, 4.0], [1, 2, 3])
    """

    rank: int = 0
    size: int = 1
    store: Store | None = None

    @property
    def is_first(self) -> bool:
        """Whether this process writes the files of the run."""
        return self.rank == 0

    def share(self, items: Sequence[Item]) -> list[Item]:
        """Return every `size`-th item, which is this process's share."""
        return list(items[self.rank :: self.size])

    def totals(self, *numbers: float) -> list[float]:
        """Add up each number over all processes, in float64, so counts are exact."""
        held = torch.tensor(numbers, dtype=torch.float64)
        self.sum_([held])
        return [float(total) for total in held]

    def largest(self, number: int) -> int:
        """Return the largest of the processes' numbers."""
        if self.size == 1:
            return number
        held = torch.tensor([number])
        with _speaking():
            dist.all_reduce(held, dist.ReduceOp.MAX)
        return int(held)

    def of_first(self, number: float) -> float:
        """Return the first process's number."""
        return self.totals(number if self.is_first else 0.0)[0]

    def sum_(self, tensors: Sequence[Tensor]) -> None:
        """Add up tensors of one dtype over all processes, in place, one bucket per message."""
        if self.size == 1:
            return
        sending = []
        with _speaking():
            for bucket in _buckets(tensors):
                flat = torch.cat([tensor.reshape(-1) for tensor in bucket])
                sending.append((bucket, flat, dist.all_reduce(flat, async_op=True)))
            for bucket, flat, work in sending:
                work.wait()
                pieces = torch.split(flat, [tensor.numel() for tensor in bucket])
                for tensor, piece in zip(bucket, pieces, strict=True):
                    tensor.copy_(piece.view_as(tensor))

    @torch.no_grad()
    def copy_first_(self, tensors: Iterable[Tensor]) -> None:
        """Overwrite tensors with those of the first process."""
        if self.size == 1:
            return
        with _speaking():
            for tensor in tensors:
                whole = tensor.detach().contiguous()
                dist.broadcast(whole, src=0)
                tensor.copy_(whole)

    def gathered(self, value: Value) -> list[Value]:
        """Return the values of all processes, by rank."""
        if self.size == 1:
            return [value]
        values: list[Value | None] = [None] * self.size
        with _speaking():
            dist.all_gather_object(values, value)
        return [each for each in values if each is not None]

    def from_first(self, make: Callable[[], Json]) -> Json:
        """Return a value that the first process makes; the others wait for it without limit."""
        if self.store is None:
            return make()
        made = make() if self.is_first else None
        with _speaking():
            key = f"from-first/{self.store.add(f'asked/{self.rank}', 1)}"
            if self.is_first:
                self.store.set(key, json.dumps(made))
                return made
            while not self.store.check([key]):
                time.sleep(_POLL_SECONDS)
            value: Json = json.loads(self.store.get(key))
            return value


ALONE = World()


def _buckets(tensors: Iterable[Tensor]) -> Iterator[list[Tensor]]:
    bucket, size = list[Tensor](), 0
    for tensor in tensors:
        if bucket and size + tensor.numel() > BUCKET_NUMBERS:
            yield bucket
            bucket, size = [], 0
        bucket.append(tensor)
        size += tensor.numel()
    if bucket:
        yield bucket


@contextmanager
def _speaking() -> Iterator[None]:
    """Turn torch's RuntimeError for a broken connection into LB-261."""
    try:
        yield
    except RuntimeError as error:
        raise ResourceError(
            "LB-261",
            "another process of this run has ended",
            received=str(error).splitlines()[0],
            expected="all processes of the run, until its end",
            next="see the other process's message; rerun the command to resume",
        ) from error
