"""Connect to the other processes of a run, and disconnect together with them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import lru_cache

import torch
import torch.distributed as dist
from torch.distributed import PrefixStore, Store, TCPStore  # type: ignore[attr-defined]

from litebert.distributed.world import ALONE, World
from litebert.errors import LitebertError

_NEEDED = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


def world_size() -> int:
    """Return the number of processes of the run; 1 without a launcher."""
    return max(1, number("WORLD_SIZE", 1))


def rank() -> int:
    """Return the rank of this process.

    Raises:
        LitebertError: LB-262, the environment of several processes is not complete.
    """
    size, place = world_size(), number("RANK", 0)
    missing = [name for name in _NEEDED if not os.environ.get(name)] if size > 1 else []
    if missing or place >= size:
        raise LitebertError(
            "LB-262",
            "the environment of several processes is not complete",
            received=f"without {', '.join(missing)}" if missing else f"RANK={place} of {size}",
            expected=f"{', '.join(_NEEDED)}, as torchrun sets them",
            next="torchrun --nproc-per-node 2 -m litebert pretrain ...; alone: unset WORLD_SIZE",
        )
    return place


def local_rank() -> int:
    """Return the rank of this process on its machine, which is also the index of its GPU."""
    return number("LOCAL_RANK", 0)


def number(name: str, default: int) -> int:
    """Return an environment variable that a launcher sets, as a number.

    Raises:
        LitebertError: LB-264, it is not a number.
    """
    text = os.environ.get(name) or str(default)
    if not text.isdecimal():
        raise LitebertError(
            "LB-264",
            f"the environment variable {name} is not a number",
            received=text,
            expected="a whole number, as torchrun sets it",
            next=f"unset {name}, or start with torchrun",
        )
    return int(text)


JOIN_SECONDS = 300.0
"""All processes must start within this time."""
SUM_SECONDS = 600.0
"""The longest wait for the others in one sum: a process that hangs ends the run after it."""


@contextmanager
def joined(device: torch.device) -> Iterator[World]:
    """Connect to the other processes, if there are any, for the duration of the block.

    Sums on a GPU use nccl; those on a CPU, such as counts, use gloo. If the block succeeds, all
    processes disconnect together. If it raises, the others meet a broken connection in their next sum and stop.

    Raises:
        LitebertError: LB-262, LB-263, the environment is incomplete, or the others do not connect.
    """
    size = world_size()
    if size == 1:
        yield ALONE
        return
    place = rank()
    if device.type == "cuda":
        torch.cuda.set_device(device)
    try:
        address = os.environ["MASTER_ADDR"], number("MASTER_PORT", 0)
        store = _store(*address, place)
        store = PrefixStore(f"litebert/{store.add(f'visits/{place}', 1)}", store)
        dist.init_process_group(
            "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo",
            store=store,
            rank=place,
            world_size=size,
            timeout=timedelta(seconds=SUM_SECONDS),
        )
    except RuntimeError as error:
        raise _unreachable(place, size, error) from error
    world = World(place, size, store)
    yield world
    world.from_first(lambda: None)  # the others wait until the first has written everything
    dist.barrier()  # the first keeps the store until the others know
    dist.destroy_process_group()


@lru_cache(maxsize=1)
def _store(address: str, port: int, place: int) -> Store:
    """Connect to the store of the launcher or of the first process, once for all runs."""
    has_agent = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    store = TCPStore(
        address,
        port,
        is_master=place == 0 and not has_agent,
        timeout=timedelta(seconds=JOIN_SECONDS),
        wait_for_workers=False,
    )
    # a launcher that restarts its processes keeps its store
    return PrefixStore(f"restart/{number('TORCHELASTIC_RESTART_COUNT', 0)}", store)


def _unreachable(place: int, size: int, error: RuntimeError) -> LitebertError:
    address = f"{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}"
    return LitebertError(
        "LB-263",
        f"process {place} of {size} cannot reach the others",
        received=str(error).splitlines()[0],
        expected=f"{size} processes that reach {address} within {JOIN_SECONDS:.0f} seconds",
        next="check the address, the firewall and GLOO_SOCKET_IFNAME or NCCL_SOCKET_IFNAME",
    )
