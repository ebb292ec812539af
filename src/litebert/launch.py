"""How this process was launched: alone, or by `torchrun` as one of several.

The shell asks before it prints, so nothing here loads torch.
"""

import os
from typing import NamedTuple

from litebert.errors import LitebertError


class Launch(NamedTuple):
    """The number of this process, from 0, and how many processes the run has."""

    rank: int = 0
    size: int = 1


def launched_as() -> Launch:
    """Return what the environment says; a process without a launcher is alone, whatever
    RANK may mean to others.
    """
    try:
        size = int(os.environ.get("WORLD_SIZE") or 1)
        if size == 1:
            return Launch()
        rank = int(os.environ.get("RANK") or 0)
    except ValueError as error:
        raise incomplete_environment(error) from error
    # With such a rank, torch would wait for the others forever.
    if not 0 <= rank < size:
        raise incomplete_environment(f"RANK={rank}, WORLD_SIZE={size}")
    return Launch(rank, size)


def incomplete_environment(received: object) -> LitebertError:
    """Return the error that the variables of a launcher are missing or wrong."""
    return LitebertError(
        "LB-262",
        "the environment for several processes is incomplete",
        received=received,
        expected="RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT, as torchrun sets them",
        next="torchrun --nproc-per-node 2 -m litebert pretrain ...; for a single"
        " process: unset WORLD_SIZE",
    )
