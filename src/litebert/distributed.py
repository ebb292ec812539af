"""The processes of a run: how they find each other, add up their gradients and share
small values.

They are described by the environment that `torchrun` sets. A single process is the
world `ALONE`, which sends nothing.
"""

import json
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from functools import lru_cache
from typing import TypeVar, cast

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed import PrefixStore, Store, rendezvous  # type: ignore[attr-defined]

from litebert.errors import LitebertError, ResourceError
from litebert.files import Json
from litebert.launch import incomplete_environment, launched_as

Item = TypeVar("Item")
Value = TypeVar("Value")

JOIN_SECONDS = 300.0  # the time within which all processes must start
# the longest wait in one sum: if another process hangs, the run ends after this time
SUM_SECONDS = 600.0
POLL_SECONDS = 0.05


@dataclass(frozen=True)
class World:
    """The processes of a run and the rank of this one; all must call the same methods
    in the same order.
    """

    rank: int = 0
    size: int = 1
    store: Store | None = None

    @property
    def is_first(self) -> bool:
        """Whether this process writes the files of the run."""
        return self.rank == 0

    def share(self, items: Sequence[Item]) -> list[Item]:
        """Return this process's share, every `size`-th item."""
        return list(items[self.rank :: self.size])

    def totals(self, *numbers: float) -> list[float]:
        """Add up each number over all processes, in float64, so counts are exact."""
        if self.size == 1:
            return [float(number) for number in numbers]
        sums = torch.tensor(numbers, dtype=torch.float64)
        self.sum_([sums])
        return list(map(float, sums))

    def broadcast(self, number: float) -> float:
        """Return the number of the first process; those of the others are ignored."""
        # As a sum to which the others add 0, which is exact.
        addend = number if self.is_first else 0.0
        return self.totals(addend)[0]

    def sum_(self, tensors: Sequence[Tensor]) -> None:
        """Add up tensors of one dtype over all processes, in place, in one message."""
        if self.size == 1:
            return
        sizes = [tensor.numel() for tensor in tensors]
        # One message instead of one for each tensor: base has 32 of them, together 47 MB
        # in float32.
        flat = torch.cat([tensor.reshape(-1) for tensor in tensors])  # (elements,)
        with _connection_errors():
            dist.all_reduce(flat)
        totals = torch.split(flat, sizes)
        for tensor, total in zip(tensors, totals, strict=True):
            tensor.copy_(total.view_as(tensor))

    def copy_first_(self, tensors: Iterable[Tensor]) -> None:
        """Overwrite tensors with those of the first process."""
        if self.size == 1:
            return
        with _connection_errors():
            for tensor in tensors:
                dist.broadcast(tensor.detach(), src=0)

    def gather(self, value: Value) -> list[Value]:
        """Return the values of all processes, by rank."""
        if self.size == 1:
            return [value]
        values = [value] * self.size  # to be overwritten, by rank
        # It pickles, but only between the processes of one run, which trust each other.
        with _connection_errors():
            dist.all_gather_object(values, value)
        return values

    def from_first(self, make: Callable[[], Json]) -> Json:
        """Return a value that the first process makes; the others wait for it without a
        time limit.
        """
        if self.store is None:
            return make()
        # Through the store, not by a sum, because sums have a time limit.
        value = make() if self.is_first else None
        with _connection_errors():
            # every process counts its own questions: the same number, the same key
            number = self.store.add(f"asked/{self.rank}", 1)
            key = f"from-first/{number}"
            if self.is_first:
                self.store.set(key, json.dumps(value))
                return value
            # `get` alone would wait at most as long as the store's own limit.
            while not self.store.check([key]):
                time.sleep(POLL_SECONDS)
            return cast(Json, json.loads(self.store.get(key)))


ALONE = World()


@contextmanager
def _connection_errors() -> Iterator[None]:
    try:
        yield
    except torch.OutOfMemoryError:
        raise  # the sum did not fit into the GPU of this process
    except RuntimeError as error:
        raise ResourceError(
            "LB-261",
            "another process of this run has ended",
            received=str(error).splitlines()[0],
            next="see its message; rerun the command to resume",
        ) from error


@contextmanager
def join_world(backend: str) -> Iterator[World]:
    """Connect to the other processes, if there are any, for the duration of the block;
    `backend` is what sums are computed with (`Device.distributed_backend`).

    If the block succeeds, all processes disconnect together. If it raises, the others
    meet a broken connection in their next sum and stop.
    """
    if launched_as().size == 1:
        yield ALONE
        return
    try:
        store, rank, size = _rendezvous()
        # each run in this process has its own keys
        store = PrefixStore(f"litebert/{store.add(f'visits/{rank}', 1)}", store)
        timeout = timedelta(seconds=SUM_SECONDS)
        dist.init_process_group(
            backend, store=store, rank=rank, world_size=size, timeout=timeout
        )
    except RuntimeError as error:
        raise LitebertError(
            "LB-263",
            "the processes of this run did not find each other within"
            f" {JOIN_SECONDS:.0f} seconds",
            received=str(error).splitlines()[0],
            next="check MASTER_ADDR, the firewall and GLOO_SOCKET_IFNAME or"
            " NCCL_SOCKET_IFNAME",
        ) from error
    world = World(rank, size, store)
    try:
        yield world
        # the others wait until the first has written everything
        world.from_first(lambda: None)
        dist.barrier()  # the first keeps the store open until the others have read this
    finally:
        # Also after an error, so that a script can catch it and train again.
        dist.destroy_process_group()


@lru_cache(maxsize=1)
def _rendezvous() -> tuple[Store, int, int]:
    """Connect to the store of the launcher or of the first process, once for all runs;
    also return rank and size.
    """
    timeout = timedelta(seconds=JOIN_SECONDS)
    try:
        store, rank, size = next(rendezvous("env://", timeout=timeout))
    except ValueError as error:
        raise incomplete_environment(error) from error
    # a launcher that restarts its processes may reuse its store
    num_restarts = os.environ.get("TORCHELASTIC_RESTART_COUNT")
    return PrefixStore(f"restart/{num_restarts}", store), rank, size
