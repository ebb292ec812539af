"""Samples of more than one planned corpus: windows of a large corpus, mixes of corpora.

A corpus too large to plan at once has its shards shuffled, then its instances within windows of shards. Memory does
not grow with the corpus, but for a few numbers per shard: two windows are held.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import lru_cache, partial
from typing import NamedTuple

import numpy as np

from litebert import rng
from litebert.config import ObjectiveConfig
from litebert.corpus import Shard
from litebert.corpus.shards import Counts
from litebert.errors import LitebertError
from litebert.objectives.sampling import Loader, Samples, plan_epoch
from litebert.objectives.sequences import Library, Sample, Vocabulary, sentence_objective
from litebert.rng import Ints

WINDOW_PIECES = 1 << 32  # pieces that are shuffled together; a corpus with no more is one window, planned exactly
TRIAL_DOCUMENTS, TRIAL_SENTENCES = 64, 1_000
CYCLE = 10_000  # samples in a cycle of a mix: in each, every corpus has exactly its share, in another random order


class Window(NamedTuple):
    """A window of an epoch: its number, its shards, and which samples of the epoch it has."""

    epoch: int
    number: int
    shards: tuple[int, ...]
    samples: range


class Windowed(Samples):
    """The samples of a large corpus, window by window; the next window is opened ahead of time.

    The number of samples of a shard is estimated from its sizes. If its plan has more, a random few stay unseen in
    this epoch; if it has fewer, a random few are seen twice. The other settings are those of `Loader`.
    """

    def __init__(
        self,
        shards: Sequence[Counts],
        open_shards: Callable[[Sequence[int]], Sequence[Shard]],
        *,
        window_pieces: int,
        vocabulary: Vocabulary,
        config: ObjectiveConfig,
        batch_size: int,
        seed: int,
        purpose: str = "train",
        early_mask_prob: float | None = None,
        early_samples: int = 0,
    ) -> None:
        samples = estimated_samples(shards, config)
        self._sizes = [*zip(samples, (each.tokens for each in shards), strict=True)]
        self.batch_size, self.epoch_size = batch_size, sum(samples)
        self._window_pieces, self._seed, self._purpose, self._early = window_pieces, seed, purpose, early_samples
        self._open_shards = open_shards
        self._loader = partial(
            Loader,
            vocabulary=vocabulary,
            config=config,
            batch_size=batch_size,
            seed=seed,
            early_mask_prob=early_mask_prob,
        )
        self.windows = lru_cache(maxsize=2)(self._windows)
        self._opener = ThreadPoolExecutor(1, "windows")
        self._held: dict[Window, Future[Loader]] = {}

    def _windows(self, epoch: int) -> list[Window]:
        """Shuffle the shards of an epoch, and start a new window wherever one is full."""
        count = len(self._sizes)
        shuffled = rng.permutation(self._seed, f"{self._purpose}-shards", epoch, count, np.arange(count))
        windows, shards, size, first, stop = list[Window](), list[int](), 0, 0, 0
        # A shard goes whole into one window, even where it is larger than a window.
        for shard in shuffled.tolist():
            samples, pieces = self._sizes[shard]
            if shards and size + pieces > self._window_pieces:
                windows.append(Window(epoch, len(windows), tuple(shards), range(first, stop)))
                shards, size, first = [], 0, stop
            shards.append(shard)
            size, stop = size + pieces, stop + samples
        return [*windows, Window(epoch, len(windows), tuple(shards), range(first, stop))]

    def made(self, start: int, stop: int) -> Iterator[Sample]:
        while start < stop:
            epoch, position = divmod(start, self.epoch_size)
            windows = self.windows(epoch)
            window = next(each for each in windows if position in each.samples)
            # All windows but this one and the next are let go.
            is_last = window is windows[-1]
            following = self._windows(epoch + 1)[0] if is_last else windows[window.number + 1]
            self._held = {
                each: self._held.get(each) or self._opener.submit(self._open, each) for each in (window, following)
            }
            first = position - window.samples.start
            count = min(stop - start, window.samples.stop - position)  # the rest is in the next window
            yield from self._held[window].result().made(first, first + count)
            start += count

    def _open(self, window: Window) -> Loader:
        before = window.epoch * self.epoch_size + window.samples.start  # samples of the run before this window
        return self._loader(
            self._open_shards(window.shards),
            purpose=f"{self._purpose}-{window.epoch}-{window.number}",
            early_samples=min(max(0, self._early - before), len(window.samples)),
        )


def estimated_samples(shards: Sequence[Counts], config: ObjectiveConfig) -> tuple[int, ...]:
    """Estimate the number of instances of each shard without reading it.

    A document of n pieces gives n / c instances, rounded up, where c is found by a trial. If lengths are distributed
    exponentially with mean m, that is 1 / (1 - exp(-c / m)) on average.
    """
    sentence = sentence_objective(config.sentence)
    num_sentences, num_pieces = sum(each.sentences for each in shards), sum(each.tokens for each in shards)
    mean = num_sentences and num_pieces / num_sentences
    # A trial of sentences of that mean: how many pieces lie between one instance and the next?
    drawn = rng.uniform(0, "trial", np.arange(TRIAL_DOCUMENTS * TRIAL_SENTENCES))
    lengths: Ints = np.ceil(-mean * np.log1p(-drawn)).astype(np.int64).clip(1)
    sentences = np.concatenate(([0], np.cumsum(lengths)))  # (sentences + 1,), in pieces
    trial = Shard(np.empty(0, np.uint16), sentences, np.arange(TRIAL_DOCUMENTS + 1) * TRIAL_SENTENCES)
    plan = plan_epoch(Library([trial]), config, sentence, seed=0, purpose="trial", epoch=0)
    starts = np.sort(plan[:, 1])  # (instances,), in sentences
    documents = starts // TRIAL_SENTENCES
    between = np.diff(sentences[starts])[documents[1:] == documents[:-1]]  # pieces, within a document
    advance = float(between.mean()) if between.size else float(sentences[-1] / len(plan))
    # A document of one sentence is no sample of an objective that compares two, unless it keeps them.
    skips_single = sentence.fewest_sentences > 1 and not sentence.keeps_single_sentences
    estimated = []
    for each in shards:
        usable = each.documents - each.single_sentence_documents * skips_single
        expected = usable / -np.expm1(-advance * usable / each.tokens) if usable and each.tokens else 0
        estimated.append(max(1, round(expected)) if expected else 0)
    return tuple(estimated)


class Mixed(Samples):
    """Samples of several corpora by weight: a sample's number decides which of them it comes from."""

    def __init__(self, corpora: Sequence[Samples], weights: Sequence[float], *, batch_size: int, seed: int) -> None:
        self.batch_size = batch_size
        self._corpora, self._seed = corpora, seed
        self._counts = counts_in_cycle(weights)
        self._ends = np.cumsum(self._counts)

    def made(self, start: int, stop: int) -> Iterator[Sample]:
        corpora, numbers = self.places(np.arange(start, stop))
        for corpus, number in zip(corpora.tolist(), numbers.tolist(), strict=True):
            yield from self._corpora[corpus].made(number, number + 1)

    def places(self, numbers: Ints) -> tuple[Ints, Ints]:
        """Return the corpus of each sample, and its number within that corpus."""
        cycles, positions = np.divmod(numbers, CYCLE)
        # A cycle is a permutation of its slots, of which the first counts[0] are the first corpus's, and so on.
        slots = np.empty_like(positions)  # (samples,)
        for cycle in np.unique(cycles):
            chosen = cycles == cycle
            slots[chosen] = rng.permutation(self._seed, "mix", int(cycle), CYCLE, positions[chosen])
        corpora = np.searchsorted(self._ends, slots, side="right")  # (samples,)
        counts = self._counts[corpora]
        # Its number: what the cycles before took of this corpus, and its place among this cycle's slots.
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
    missing = CYCLE - counts.sum()  # fewer than there are corpora
    counts[np.argsort(counts - exact, kind="stable")[:missing]] += 1
    if (counts == 0).any():
        what = f"a corpus of the mix has almost no share, less than 1 in {CYCLE:,}"
        received, advice = ", ".join(f"{weight:g}" for weight in weights), "omit that corpus, or raise data.temperature"
        raise LitebertError("LB-268", what, received=received, next=advice)
    return counts
