"""Mix several corpora: a sample's number decides which of them it comes from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from litebert import rng
from litebert.errors import LitebertError
from litebert.objectives.batch import PretrainingBatch
from litebert.objectives.loader import Made, rank_range
from litebert.rng import Ints

CYCLE = 10_000
"""Samples in a cycle: in each, every corpus has exactly its share, in another random order."""


class SampleSource(Protocol):
    """Make any sample of one corpus."""

    def sample(self, number: int) -> Made: ...
    def joined(self, made: Sequence[Made]) -> PretrainingBatch: ...


class Mixed:
    """Draw from loaders by weight; as with one loader, a batch depends only on its number."""

    def __init__(
        self, loaders: Sequence[SampleSource], weights: Sequence[float], *, batch_size: int, seed: int
    ) -> None:
        self._loaders, self._batch_size, self._seed = loaders, batch_size, seed
        counts = counts_in_cycle(weights)
        self._counts, self._ends = counts, np.cumsum(counts)

    def batch(self, step: int, *, rank: int = 0, world_size: int = 1) -> PretrainingBatch:
        """Return one rank's share of the batch of one step."""
        numbers = np.array(rank_range(step, self._batch_size, rank, world_size), dtype=np.int64)
        made = [
            self._loaders[corpus].sample(index)
            for corpus, index in zip(*map(np.ndarray.tolist, self.places(numbers)), strict=True)
        ]
        return self._loaders[0].joined(made)

    def places(self, numbers: Ints) -> tuple[Ints, Ints]:
        """Return the corpus of each sample, and its number within that corpus."""
        cycles, positions = np.divmod(numbers, CYCLE)
        slots = np.empty_like(positions)
        for cycle in np.unique(cycles):
            chosen = cycles == cycle
            slots[chosen] = rng.permutation(self._seed, "mix", int(cycle), CYCLE, positions[chosen])
        corpora = np.searchsorted(self._ends, slots, side="right")
        counts = self._counts[corpora]
        return corpora, cycles * counts + slots - (self._ends[corpora] - counts)


def shares(sizes: Sequence[int], *, weights: Sequence[float] | None = None, temperature: float = 1.0) -> list[float]:
    """Return the share of each corpus: its weight (its size by default) to the power 1 / T.

    A temperature T above 1 favours the small ones (as in XLM-R, arXiv 1911.02116, section 3.1).

    >>> shares([900, 100]), [round(share, 2) for share in shares([900, 100], temperature=2.0)]
    ([0.9, 0.1], [0.75, 0.25])
    """
    powers = np.array(weights or sizes, dtype=np.float64) ** (1 / temperature)
    return [float(share) for share in powers / powers.sum()]


def counts_in_cycle(weights: Sequence[float]) -> Ints:
    """Return how many samples of a cycle each corpus has, rounded by largest remainder.

    >>> counts_in_cycle([2, 1]).tolist()
    [6667, 3333]
    """
    exact = np.array(weights, dtype=np.float64) / np.sum(weights) * CYCLE
    counts: Ints = np.floor(exact).astype(np.int64)
    missing = CYCLE - counts.sum()
    counts[np.argsort(counts - exact, kind="stable")[:missing]] += 1
    if (counts == 0).any():
        raise LitebertError(
            "LB-268",
            "a corpus of the mix has almost no share",
            received=", ".join(f"{weight:g}" for weight in weights),
            expected=f"shares of at least 1 in {CYCLE:,}",
            next="omit that corpus, or raise data.temperature",
        )
    return counts
