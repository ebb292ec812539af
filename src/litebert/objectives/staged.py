"""Stages of a run, each with its own sequence length and batch size, determined by the step."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Protocol

from litebert.objectives.batch import PretrainingBatch


class Batches(Protocol):
    """Makes the batch of any step, or one process's share of it."""

    def batch(self, step: int, *, rank: int = 0, world_size: int = 1) -> PretrainingBatch:
        """Return one rank's share of the batch of one step."""


class Staged:
    """Ask the loader of a step's stage; `starts` has the first step of each, beginning with 0.

    A loader is opened when its stage begins, and closed when the next one does.
    """

    def __init__(self, starts: Sequence[int], opens: Sequence[Callable[[], Batches]]) -> None:
        assert starts[0] == 0 and len(starts) == len(opens)
        self._starts = list(starts)
        self._loader = lru_cache(maxsize=1)(lambda stage: opens[stage]())

    def batch(self, step: int, *, rank: int = 0, world_size: int = 1) -> PretrainingBatch:
        """Return one rank's share of the batch of one step."""
        stage = bisect_right(self._starts, step) - 1
        loader = self._loader(stage)
        return loader.batch(step - self._starts[stage], rank=rank, world_size=world_size)
