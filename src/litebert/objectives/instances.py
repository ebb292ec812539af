"""The plan of one epoch: which sentences form each instance (create_pretraining_data.py L266-386).

All documents of a shard advance by one chunk at a time, in numpy. Every random number is a function
of (seed, purpose, epoch, shard, sentence), so none depends on another or on the order of the work.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from litebert.config.schema import ObjectiveConfig
from litebert.objectives.sentences import Draws, Instance, SentenceObjective, sentence_objective
from litebert.objectives.shards import Library, PlainShard
from litebert.rng import Ints

SHORTEST_TARGET = 2
"""The smallest target length of a short sequence, in tokens (L284)."""


@dataclass(frozen=True)
class EpochPlan:
    """Hold the instances of one epoch, one per row, as columns; see `Instance` for their meaning.

    The rows of shard s are `first_row[s]` to `first_row[s + 1]`. `skipped_documents` counts those
    with fewer sentences than the objective needs.
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
    library: Library,
    config: ObjectiveConfig,
    *,
    sentence: SentenceObjective | None = None,
    seed: int,
    purpose: str,
    epoch: int,
) -> EpochPlan:
    """Cut every document of a library into the instances of one epoch.

    `sentence` is the objective that `config` names, unless it is given.

    >>> shard = PlainShard(np.zeros(900, np.uint16), np.arange(0, 901, 9), np.array([0, 100]))
    >>> plan = plan_epoch(Library.of([shard]), ObjectiveConfig(), seed=1, purpose="train", epoch=0)
    >>> int(plan.start[0]), int(plan.end[-1])
    (0, 100)
    """
    sentence = sentence or sentence_objective(config.sentence)
    shards = [
        _plan_shard(text, config, sentence, Draws(seed, purpose, epoch, shard))
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


def room(config: ObjectiveConfig, sentence: SentenceObjective | None = None) -> int:
    """Return the most tokens of text in a sequence: without [CLS] and one [SEP] per segment.

    >>> room(ObjectiveConfig(max_seq_length=512))
    509
    """
    sentence = sentence or sentence_objective(config.sentence)
    return config.max_seq_length - (3 if sentence.has_labels else 2)


def _plan_shard(
    text: PlainShard, config: ObjectiveConfig, sentence: SentenceObjective, draws: Draws
) -> tuple[NDArray[np.int32], int]:
    """Return the columns start, middle, end, kind, target and the number of documents left out."""
    text.require_unchanged()
    longest = room(config, sentence)
    start, stop = text.documents[:-1], text.documents[1:]
    fewest = np.full_like(start, sentence.fewest_sentences)
    if sentence.keeps_single_sentences:
        fewest = np.minimum(fewest, stop - start)
    usable = (stop > start) & (stop - start >= fewest)
    start, stop, fewest = start[usable], stop[usable], fewest[usable]
    document, rounds = start, [np.empty((3, 0), np.int64)]
    while start.size:
        start = np.minimum(start, stop - fewest)  # too few sentences left: reuse those before
        key = document if config.short_seq_per == "document" else start
        target = _targets(draws, key, longest=longest, short_prob=config.short_seq_prob)
        reached = np.searchsorted(text.sentences, text.sentences[start] + target)
        end = np.minimum(np.maximum(reached, start + fewest), stop)
        rounds.append(np.stack((start, end, target)))
        before, start = start, sentence.following(draws, start, end)
        # too few sentences left to move on: stop, or the same chunk would repeat for ever
        unfinished = (start < stop) & (np.minimum(start, stop - fewest) > before)
        start, stop, fewest = start[unfinished], stop[unfinished], fewest[unfinished]
        document = document[unfinished]
    start, end, target = np.concatenate(rounds, axis=1)
    middle, kind = sentence.divide(draws, start, end)
    columns = np.stack((start, middle, end, kind, target)).astype(np.int32)
    return columns, int(np.count_nonzero(~usable))


def _targets(draws: Draws, key: Ints, *, longest: int, short_prob: float) -> Ints:
    """Draw the target length of each chunk in tokens (L282-284; upstream, once per document)."""
    is_short = draws.uniform("is-short", key) < short_prob
    target = np.full_like(key, longest)
    target[is_short] = draws.integers("short", SHORTEST_TARGET, longest, key[is_short])
    return target
