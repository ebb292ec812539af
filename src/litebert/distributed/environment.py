"""What a launcher says of this process: torchrun, Slurm, or whoever sets torch's variables."""

from __future__ import annotations

import os

from litebert.errors import LitebertError

_NEEDED = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


def world_size() -> int:
    """Return the number of processes of the run; 1 without a launcher."""
    return max(1, number("WORLD_SIZE", 1))


def rank() -> int:
    """Return the place of this process among all.

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
    """Return the place of this process on its machine, which is also its GPU."""
    return number("LOCAL_RANK", 0)


def number(name: str, default: int) -> int:
    """Return a variable that a launcher sets.

    Raises:
        LitebertError: LB-264, it is no number.
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
