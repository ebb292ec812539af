"""Take turns: every call once a round, in an order that changes from round to round.

On one thread the time is that of the processor, and the least counts: neither feels what else the
machine does. On more threads it is the wall's, and the median counts; look at the load beside it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from statistics import median
from typing import TypeAlias

import numpy as np

Call: TypeAlias = Callable[[], object]


@dataclass(frozen=True)
class Turns:
    """How many rounds: as many as fit in `seconds`, but at least `least` and at most `most`."""

    threads: int
    seconds: float
    least: int = 3
    most: int = 40


def take_turns(calls: Mapping[str, Call], turns: Turns) -> dict[str, float]:
    """Return the seconds of each call."""
    taken: dict[str, list[float]] = {name: [] for name in calls}
    order = np.random.default_rng(1)
    start, rounds = time.perf_counter(), 0
    while rounds < turns.least or (rounds < turns.most and time.perf_counter() - start < turns.seconds):
        for name in order.permutation(list(calls)):
            taken[name].append(seconds_of(calls[name], turns.threads))
        rounds += 1
    return {name: min(t) if turns.threads == 1 else median(t) for name, t in taken.items()}


def seconds_of(call: Call, threads: int) -> float:
    """Return the seconds of one call by the clock for so many threads."""
    clock = time.process_time if threads == 1 else time.perf_counter
    start = clock()
    call()
    return clock() - start


def load() -> float:
    """Return how many processes wanted a core in the last minute."""
    return os.getloadavg()[0]
