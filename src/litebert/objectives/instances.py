"""The plan of one epoch: which sentences form each instance (create_pretraining_data.py L266-386).

All documents of a shard advance by one chunk at a time, so an instance costs some array elements
and no Python. Every draw belongs to (seed, purpose, epoch, shard, sentence), hence none depends on
another or on the order of the work.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from litebert import rng
from litebert.config.schema import ObjectiveConfig
from litebert.objectives.shards import Library, Text
from litebert.rng import IntLike, Ints

IN_ORDER, SWAPPED, RANDOM_SECOND = 0, 1, 2
"""Kinds of instance: B follows A; B comes first; B is from another document (labels 0, 1, 1)."""

SHORTEST_TARGET = 2
"""Fewest tokens that a short sequence aims at (L284)."""


@dataclass(frozen=True)
class Instance:
    """Name the sentences of one instance: A start to middle, B middle to end or as `kind` says."""

    shard: int
    start: int
    middle: int
    end: int
    kind: int
    target: int


@dataclass(frozen=True)
class EpochPlan:
    """Hold the instances of one epoch by column: sentences in the shard, kind, tokens aimed at.

    The rows of shard s are `first_row[s]` to `first_row[s + 1]`. `skipped_documents` have a single
    sentence, from which the strict order objective learns nothing.
    """

    first_row: Ints
    start: NDArray[np.int32]
    middle: NDArray[np.int32]
    end: NDArray[np.int32]
    kind: NDArray[np.int32]
    target: NDArray[np.int32]
    skipped_documents: int

    def __len__(self) -> int:
        return len(self.start)

    def instance(self, row: int) -> Instance:
        """Return one row."""
        shard = int(np.searchsorted(self.first_row, row, side="right")) - 1
        columns = (self.start, self.middle, self.end, self.kind, self.target)
        return Instance(shard, *(int(column[row]) for column in columns))


def plan_epoch(
    library: Library, config: ObjectiveConfig, *, seed: int, purpose: str, epoch: int
) -> EpochPlan:
    """Cut every document of a library into the instances of one epoch.

    >>> shard = Text(np.zeros(900, np.uint16), np.arange(0, 901, 9), np.array([0, 100]))
    >>> plan = plan_epoch(Library.of([shard]), ObjectiveConfig(), seed=1, purpose="train", epoch=0)
    >>> int(plan.start[0]), int(plan.end[-1])
    (0, 100)
    """
    shards = [
        _plan_shard(text, config, _Draws(seed, purpose, epoch, shard))
        for shard, text in enumerate(library.texts)
    ]
    counts = [columns.shape[1] for columns, _ in shards]
    start, middle, end, kind, target = np.concatenate(
        [np.empty((5, 0), np.int32), *(columns for columns, _ in shards)], axis=1
    )
    return EpochPlan(
        first_row=np.cumsum([0, *counts], dtype=np.int64),
        start=start,
        middle=middle,
        end=end,
        kind=kind,
        target=target,
        skipped_documents=sum(skipped for _, skipped in shards),
    )


def room(config: ObjectiveConfig) -> int:
    """Return the most tokens of text in a sequence: without [CLS] and one [SEP] per segment.

    >>> room(ObjectiveConfig(max_seq_length=512))
    509
    """
    return config.max_seq_length - (2 if config.sentence == "none" else 3)


@dataclass(frozen=True)
class _Draws:
    """Draw for sentences of one shard in one epoch."""

    seed: int
    purpose: str
    epoch: int
    shard: int

    def uniform(self, what: str, sentence: Ints) -> NDArray[np.float64]:
        return rng.uniform(self.seed, f"{self.purpose}-{what}", self.epoch, self.shard, sentence)

    def integers(self, what: str, low: IntLike, high: IntLike, sentence: Ints) -> Ints:
        purpose = f"{self.purpose}-{what}"
        return rng.integers(self.seed, purpose, low, high, self.epoch, self.shard, sentence)


def _plan_shard(
    text: Text, config: ObjectiveConfig, draws: _Draws
) -> tuple[NDArray[np.int32], int]:
    """Return the columns start, middle, end, kind, target and the number of documents left out."""
    text.require_unchanged()
    fewest = 2 if config.sentence == "order" else 1
    start, stop = text.documents[:-1], text.documents[1:]
    usable = stop - start >= fewest
    start, stop = start[usable], stop[usable]
    document, rounds = start, [np.empty((3, 0), np.int64)]
    while start.size:
        start = np.minimum(start, stop - fewest)  # a lone last sentence takes its predecessor along
        target = _targets(config, draws, document if config.short_seq_per == "document" else start)
        reached = np.searchsorted(text.sentences, text.sentences[start] + target)
        end = np.minimum(np.maximum(reached, start + fewest), stop)
        rounds.append(np.stack((start, end, target)))
        start = _following(config, draws, start, end)
        unfinished = start < stop
        start, stop, document = start[unfinished], stop[unfinished], document[unfinished]
    start, end, target = np.concatenate(rounds, axis=1)
    middle, kind = _divided(config, draws, start, end)
    columns = np.stack((start, middle, end, kind, target)).astype(np.int32)
    return columns, int(np.count_nonzero(~usable))


def _targets(config: ObjectiveConfig, draws: _Draws, key: Ints) -> Ints:
    """Draw how many tokens each chunk aims at (L282-284, there once per document)."""
    longest = room(config)
    is_short = draws.uniform("is-short", key) < config.short_seq_prob
    target = np.full_like(key, longest)
    target[is_short] = draws.integers("short", SHORTEST_TARGET, longest, key[is_short])
    return target


def _divided(config: ObjectiveConfig, draws: _Draws, start: Ints, end: Ints) -> tuple[Ints, Ints]:
    """Draw where A ends and what B is."""
    if config.sentence == "none":
        return end, np.full_like(end, IN_ORDER)
    length = end - start
    middle = start + draws.integers("middle", 1, np.maximum(length - 1, 1), start)
    other = RANDOM_SECOND if config.sentence == "next" else SWAPPED
    kind = np.where(draws.uniform("kind", start) < 0.5, other, IN_ORDER)
    return middle, np.where(length == 1, RANDOM_SECOND, kind)


def _following(config: ObjectiveConfig, draws: _Draws, start: Ints, end: Ints) -> Ints:
    """Return where the next chunks start: what a random B displaced is put back (L314-337)."""
    if config.sentence != "next":
        return end
    middle, kind = _divided(config, draws, start, end)
    return np.where(kind == RANDOM_SECOND, middle, end)
