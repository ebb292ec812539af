"""The plan of an epoch: chunks as in the official loop with the same draws."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from litebert import rng
from litebert.config.schema import ObjectiveConfig
from litebert.corpus import Shard
from litebert.objectives.sampling import plan_epoch, room
from litebert.objectives.sentences import ALONE, IN_ORDER, RANDOM_SECOND, SWAPPED, Library

SENTENCES = ("order", "order-official", "next", "none")

documents = st.lists(st.lists(st.integers(1, 30), min_size=1, max_size=12), min_size=1, max_size=8)
configs = st.builds(
    ObjectiveConfig,
    sentence=st.sampled_from(SENTENCES),
    max_seq_length=st.integers(8, 64),
    short_seq_prob=st.sampled_from([0.0, 0.1, 0.5, 1.0]),
    short_seq_per=st.sampled_from(["instance", "document"]),
)


def official(lengths: list[int], offset: int, config: ObjectiveConfig, epoch: int) -> Iterator[tuple[int, ...]]:
    """Walk through a document sentence by sentence, as the official script does, with our draws."""

    def draw(what: str, sentence: int) -> float:
        return float(rng.uniform(7, f"train-{what}", epoch, 0, sentence))

    is_strict = config.sentence == "order" and len(lengths) > 1
    longest, i = room(config), 0
    while i < len(lengths):
        if is_strict and i == len(lengths) - 1:
            i -= 1
        start = offset + i
        key = offset if config.short_seq_per == "document" else start
        is_short = draw("is-short", key) < config.short_seq_prob
        target = 2 + int(draw("short", key) * (longest - 1)) if is_short else longest
        size = total = 0
        while i + size < len(lengths) and (total < target or (is_strict and size < 2)):
            total += lengths[i + size]
            size += 1
        middle, kind = size, IN_ORDER
        if config.sentence != "none" and size == 1:
            kind = ALONE if config.sentence == "order" else RANDOM_SECOND
        elif config.sentence != "none":
            middle = 1 + int(draw("middle", start) * (size - 1))
            if draw("kind", start) < 0.5:
                kind = RANDOM_SECOND if config.sentence == "next" else SWAPPED
        yield start, start + middle, start + size, kind, target
        i += middle if config.sentence == "next" and kind == RANDOM_SECOND else size


@given(documents, configs, st.integers(0, 50))
@settings(max_examples=300, deadline=None)
def test_chunks_equal_those_of_the_official_loop(
    documents: list[list[int]], config: ObjectiveConfig, epoch: int
) -> None:
    starts = np.cumsum([0, *map(len, documents)])
    sentences = np.cumsum([0, *chain.from_iterable(documents)])
    text = Shard(np.zeros(sentences[-1], np.uint16), sentences, starts)
    plan = plan_epoch(Library([text]), config, seed=7, purpose="train", epoch=epoch)
    columns = (plan.start, plan.middle, plan.end, plan.kind, plan.target)
    found = zip(*(column.tolist() for column in columns), strict=True)
    pairs = zip(documents, starts.tolist(), strict=False)
    assert sorted(found) == sorted(row for lengths, start in pairs for row in official(lengths, start, config, epoch))
