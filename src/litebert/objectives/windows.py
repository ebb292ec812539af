"""Corpora too large to plan at once: shuffle shards, then instances within windows of shards.

Memory does not grow with the corpus, but for a few numbers per shard: two windows are held.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from litebert import rng
from litebert.config.schema import ObjectiveConfig
from litebert.objectives.batch import PretrainingBatch
from litebert.objectives.instances import plan_epoch
from litebert.objectives.loader import Loader, Made, rank_range
from litebert.objectives.sentences import SentenceObjective
from litebert.objectives.shards import Library, PlainShard, ShardArrays
from litebert.rng import Ints

WINDOW_PIECES = 1 << 32
"""Pieces that are shuffled together; a corpus with no more is one window, planned exactly."""
_TRIAL_DOCUMENTS, _TRIAL_SENTENCES = 64, 1_000

OpenShards = Callable[[Sequence[int]], Sequence[ShardArrays]]
OpenLoader = Callable[[Sequence[ShardArrays], str, int], Loader]
"""(shards, purpose, early samples) -> their loader."""


class ShardSizes(NamedTuple):
    """Counts of a shard from the manifest: usable documents, sentences, pieces."""

    documents: int
    sentences: int
    pieces: int


class Window(NamedTuple):
    """A window of an epoch: its number, its shards, and which samples of the epoch it has."""

    number: int
    shards: tuple[int, ...]
    samples: range


@dataclass(frozen=True)
class WindowOrder:
    """The windows of any epoch, computed from the sizes of the shards alone.

    >>> order = WindowOrder((3, 2, 4, 1), (9, 9, 9, 9), window_pieces=18, seed=1, purpose="train")
    >>> [window.shards for window in order.windows(0)], order.epoch_size
    ([(0, 2), (1, 3)], 10)
    """

    samples: tuple[int, ...]
    pieces: tuple[int, ...]
    window_pieces: int
    seed: int
    purpose: str

    @property
    def epoch_size(self) -> int:
        """Samples of every epoch."""
        return sum(self.samples)

    def windows(self, epoch: int) -> list[Window]:
        """Shuffle the shards, and start a new window wherever one is full."""
        count = len(self.samples)
        positions = np.arange(count)
        shuffled = rng.permutation(self.seed, f"{self.purpose}-shards", epoch, count, positions)
        groups, size = [list[int]()], 0
        for shard in shuffled.tolist():
            if groups[-1] and size + self.pieces[shard] > self.window_pieces:
                groups.append([])
                size = 0
            groups[-1].append(shard)
            size += self.pieces[shard]
        windows, start = [], 0
        for number, group in enumerate(groups):
            stop = start + sum(self.samples[shard] for shard in group)
            windows.append(Window(number, tuple(group), range(start, stop)))
            start = stop
        return windows


class Windowed:
    """Make batches as `Loader` does, window by window; the next window is opened ahead of time.

    The number of samples of a shard is estimated from its sizes. If its plan has more, a random few
    stay unseen in this epoch; if it has fewer, a random few are seen twice.
    """

    def __init__(
        self,
        order: WindowOrder,
        open_shards: OpenShards,
        open_loader: OpenLoader,
        *,
        batch_size: int,
        early_samples: int = 0,
    ) -> None:
        self._order, self._batch_size, self._early = order, batch_size, early_samples
        self._open_shards, self._open_loader = open_shards, open_loader
        self._windows = lru_cache(maxsize=2)(order.windows)
        self._opener = ThreadPoolExecutor(1, "windows")
        self._held: dict[tuple[int, int], Future[Loader]] = {}

    @property
    def epoch_size(self) -> int:
        """Samples of every epoch."""
        return self._order.epoch_size

    def batch(self, step: int, *, rank: int = 0, world_size: int = 1) -> PretrainingBatch:
        """Return one rank's share of the batch of one step."""
        numbers = rank_range(step, self._batch_size, rank, world_size)
        return self.samples(numbers.start, numbers.stop)

    def sample(self, number: int) -> Made:
        """Return one sample, framed and masked."""
        return next(self._made(number, number + 1))

    def samples(self, start: int, stop: int) -> PretrainingBatch:
        """Return the samples with the numbers start, start + 1, ... stop - 1 as one batch."""
        return self.joined(list(self._made(start, stop)))

    def joined(self, made: Sequence[Made]) -> PretrainingBatch:
        """Lay samples end to end as a batch."""
        return next(iter(self._held.values())).result().joined(made)

    def _made(self, start: int, stop: int) -> Iterator[Made]:
        while start < stop:
            epoch, position = divmod(start, self.epoch_size)
            windows = self._windows(epoch)
            window = next(each for each in windows if position in each.samples)
            count = min(stop - start, window.samples.stop - position)
            first = position - window.samples.start
            yield from self._loader(epoch, window).made(first, first + count)
            start += count

    def _loader(self, epoch: int, window: Window) -> Loader:
        """Return the loader of a window, and start to open the next one."""
        windows = self._windows(epoch)
        if window.number + 1 < len(windows):
            following = (epoch, windows[window.number + 1])
        else:
            following = (epoch + 1, self._order.windows(epoch + 1)[0])
        wanted = ((epoch, window), following)
        keys = [(epoch, window.number) for epoch, window in wanted]
        self._held = {key: self._held[key] for key in keys if key in self._held}
        for key, (of_epoch, each) in zip(keys, wanted, strict=True):
            if key not in self._held:
                self._held[key] = self._opener.submit(self._open, of_epoch, each)
        return self._held[keys[0]].result()

    def _open(self, epoch: int, window: Window) -> Loader:
        purpose = f"{self._order.purpose}-{epoch}-{window.number}"
        before = epoch * self.epoch_size + window.samples.start
        early = min(max(0, self._early - before), len(window.samples))
        return self._open_loader(self._open_shards(window.shards), purpose, early)


def estimated_samples(
    sizes: Sequence[ShardSizes], config: ObjectiveConfig, sentence: SentenceObjective
) -> tuple[int, ...]:
    """Estimate the number of instances of each shard without reading it.

    A document of n pieces gives n / c instances, rounded up, where c is found by a trial. If
    lengths are distributed exponentially with mean m, that is 1 / (1 - exp(-c / m)) on average.
    """
    _, sentences, pieces = (sum(column) for column in zip(*sizes, strict=True))
    advance = _advance(sentences and pieces / sentences, config, sentence)
    return tuple(
        max(1, round(each.documents / -np.expm1(-advance * each.documents / each.pieces)))
        if each.documents and each.pieces
        else 0
        for each in sizes
    )


def _advance(mean: float, config: ObjectiveConfig, sentence: SentenceObjective) -> float:
    """Return the mean pieces from one instance to the next, for sentences of `mean` pieces."""
    count, length = _TRIAL_DOCUMENTS, _TRIAL_SENTENCES
    drawn = rng.uniform(0, "trial", np.arange(count * length))
    lengths: Ints = np.ceil(-mean * np.log1p(-drawn)).astype(np.int64).clip(1)
    sentences = np.concatenate(([0], np.cumsum(lengths)))
    text = PlainShard(np.empty(0, np.uint16), sentences, np.arange(count + 1) * length)
    plan = plan_epoch(Library.of([text]), config, sentence=sentence, seed=0, purpose="trial", epoch=0)
    starts = np.sort(plan.start)
    documents = starts // length
    advances = np.diff(sentences[starts])[documents[1:] == documents[:-1]]
    return float(advances.mean()) if advances.size else float(sentences[-1] / len(plan))
