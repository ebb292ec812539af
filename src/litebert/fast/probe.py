"""Time several kernels on this machine."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TypeVar

import torch

Kernel = TypeVar("Kernel")


@torch.inference_mode()
def fastest(run: Callable[[Kernel], object], choices: Sequence[Kernel], *, rounds: int) -> list[float]:
    """Return the shortest seconds of `run` with each choice, interleaved after a warm-up."""
    for choice in choices:
        run(choice)
    seconds = [float("inf")] * len(choices)
    for _ in range(rounds):
        for number, choice in enumerate(choices):
            start = time.perf_counter()
            run(choice)
            seconds[number] = min(seconds[number], time.perf_counter() - start)
    return seconds
