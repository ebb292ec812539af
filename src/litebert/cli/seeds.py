"""Seeds as the shell has them: 1,2,3."""

from __future__ import annotations

from litebert.errors import LitebertError


def seed_numbers(text: str) -> list[int]:
    """Read seeds with commas between them.

    >>> seed_numbers("1,2, 3")
    [1, 2, 3]
    """
    try:
        seeds = [int(part) for part in text.split(",") if part.strip()]
    except ValueError:
        seeds = [-1]
    if any(seed < 0 for seed in seeds):
        raise LitebertError(
            "LB-524",
            "these are not seeds",
            received=text,
            expected="whole numbers from 0 with commas between them",
            next="litebert finetune ... --seeds 1,2,3",
        )
    return seeds
