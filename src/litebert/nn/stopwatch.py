"""Probes: which of several ways is the fastest on the machine at hand."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TypeVar

import torch

Way = TypeVar("Way")


@torch.inference_mode()
def fastest(run: Callable[[Way], object], ways: Sequence[Way], *, rounds: int) -> list[float]:
    """Return the least seconds that `run` takes for each way, in turns after a warm-up."""
    for way in ways:
        run(way)
    seconds = [float("inf")] * len(ways)
    for _ in range(rounds):
        for number, way in enumerate(ways):
            start = time.perf_counter()
            run(way)
            seconds[number] = min(seconds[number], time.perf_counter() - start)
    return seconds
