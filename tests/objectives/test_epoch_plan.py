"""The plan of an epoch: chunks as in the official loop, every sentence used, shares as drawn."""

from __future__ import annotations

from typing import Literal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from litebert import rng
from litebert.config.schema import ObjectiveConfig
from litebert.corpus import Shard
from litebert.objectives.sampling import EpochPlan, plan_epoch, room
from litebert.objectives.sentences import ALONE, IN_ORDER, RANDOM_SECOND, SENTENCE_OBJECTIVES, SWAPPED, Library

Sentence = Literal["order", "order-official", "next", "none"]
Documents = list[list[int]]
SENTENCES: tuple[Sentence, ...] = ("order", "order-official", "next", "none")

documents = st.lists(st.lists(st.integers(1, 30), min_size=1, max_size=12), min_size=1, max_size=8)
configs = st.builds(
    ObjectiveConfig,
    sentence=st.sampled_from(SENTENCES),
    max_seq_length=st.integers(8, 64),
    short_seq_prob=st.sampled_from([0.0, 0.1, 0.5, 1.0]),
    short_seq_per=st.sampled_from(["instance", "document"]),
)


def text_of(documents: Documents) -> Shard:
    """Make a shard of sentences of the given lengths."""
    lengths = [length for document in documents for length in document]
    sentences = np.cumsum([0, *lengths])
    starts = np.cumsum([0, *(len(document) for document in documents)])
    return Shard(np.zeros(sentences[-1], np.uint16), sentences, starts)


def plan(texts: list[Shard], config: ObjectiveConfig, *, seed: int = 1, epoch: int = 0) -> EpochPlan:
    return plan_epoch(Library(texts), config, seed=seed, purpose="train", epoch=epoch)


def rows(plan: EpochPlan) -> list[tuple[int, ...]]:
    columns = (plan.start, plan.middle, plan.end, plan.kind, plan.target)
    return sorted(zip(*(column.tolist() for column in columns), strict=True))


class OfficialLoop:
    """Walk through documents sentence by sentence, as the official script does, with our draws."""

    def __init__(self, config: ObjectiveConfig, *, seed: int, epoch: int) -> None:
        self.config, self.seed, self.epoch = config, seed, epoch

    def instances(self, documents: Documents) -> list[tuple[int, ...]]:
        found, offset = [], 0
        for lengths in documents:
            found += self.document(lengths, offset)
            offset += len(lengths)
        return sorted(found)

    def document(self, lengths: list[int], offset: int) -> list[tuple[int, ...]]:
        is_strict = self.config.sentence == "order" and len(lengths) > 1
        found: list[tuple[int, ...]] = []
        i = 0
        while i < len(lengths):
            if is_strict and i == len(lengths) - 1:
                i -= 1
            key = offset if self.config.short_seq_per == "document" else offset + i
            target, size, total = self.target(key), 0, 0
            while i + size < len(lengths) and (total < target or (is_strict and size < 2)):
                total += lengths[i + size]
                size += 1
            middle, kind = self.division(offset + i, size)
            found.append((offset + i, offset + i + middle, offset + i + size, kind, target))
            i += middle if self.config.sentence == "next" and kind == RANDOM_SECOND else size
        return found

    def target(self, key: int) -> int:
        longest = room(self.config)
        if self.uniform("is-short", key) >= self.config.short_seq_prob:
            return longest
        return 2 + int(self.uniform("short", key) * (longest - 1))

    def division(self, start: int, size: int) -> tuple[int, int]:
        if self.config.sentence == "none":
            return size, IN_ORDER
        if size == 1:
            return 1, ALONE if self.config.sentence == "order" else RANDOM_SECOND
        middle = 1 + int(self.uniform("middle", start) * (size - 1))
        if self.uniform("kind", start) >= 0.5:
            return middle, IN_ORDER
        return middle, RANDOM_SECOND if self.config.sentence == "next" else SWAPPED

    def uniform(self, what: str, sentence: int) -> float:
        return float(rng.uniform(self.seed, f"train-{what}", self.epoch, 0, sentence))


@given(documents, configs, st.integers(0, 50))
@settings(max_examples=300, deadline=None)
def test_chunks_equal_those_of_the_official_loop(documents: Documents, config: ObjectiveConfig, epoch: int) -> None:
    expected = OfficialLoop(config, seed=7, epoch=epoch).instances(documents)
    assert rows(plan([text_of(documents)], config, seed=7, epoch=epoch)) == expected


@pytest.mark.parametrize("change", [{"seed": 2}, {"epoch": 1}])
def test_another_seed_or_epoch_cuts_anew(corpus: list[Shard], change: dict[str, int]) -> None:
    config = ObjectiveConfig(max_seq_length=128)
    assert rows(plan(corpus, config)) == rows(plan(corpus, config))
    assert rows(plan(corpus, config)) != rows(plan(corpus, config, **change))


def test_official_order_gives_every_lone_sentence_a_random_second(corpus: list[Shard]) -> None:
    made = plan(corpus * 20, ObjectiveConfig(sentence="order-official", max_seq_length=128))
    is_alone = made.end - made.start == 1
    np.testing.assert_array_equal(made.kind == RANDOM_SECOND, is_alone)
    assert is_alone.mean() > 0.02
    swapped = np.mean(made.kind[~is_alone] == SWAPPED)
    assert abs(swapped - 0.5) < five_sigma(0.5, int(np.count_nonzero(~is_alone)))


def test_short_sequences_are_drawn_per_instance_or_per_document() -> None:
    long_documents = [text_of([[10] * 60] * 1_000)]
    by_instance = ObjectiveConfig(max_seq_length=128)
    by_document = ObjectiveConfig(max_seq_length=128, short_seq_per="document")
    full = room(by_instance)
    made = plan(long_documents, by_instance)
    drawn = made.target != full
    # a drawn target can be the full length: one value in 124
    assert abs(drawn.mean() - 0.1 * 123 / 124) < five_sigma(0.1, len(made))
    made = plan(long_documents, by_document)
    document = made.start // 60
    for number in range(1_000):
        assert len(set(made.target[document == number].tolist())) == 1
    is_short = np.zeros(1_000, np.bool_)
    is_short[document[made.target != full]] = True
    assert abs(is_short.mean() - 0.1) < five_sigma(0.1, 1_000)
    assert np.mean(made.target != full) > 0.2  # short documents give more instances


def test_first_segment_ends_uniformly_within_the_chunk() -> None:
    made = plan([text_of([[10] * 6] * 6_000)], ObjectiveConfig(short_seq_prob=0.0))
    shares = np.bincount(made.middle - made.start, minlength=6)[1:6] / len(made)
    assert np.abs(shares - 0.2).max() < five_sigma(0.2, len(made))


@pytest.mark.parametrize("name", SENTENCE_OBJECTIVES)
def test_a_plan_ends_for_documents_of_any_size(name: str) -> None:
    documents = np.concatenate(([0], np.cumsum(np.arange(300) % 7 + 1)))
    sentences = np.arange(documents[-1] + 1) * 9
    text = Shard(np.zeros(sentences[-1], np.uint16), sentences, documents)
    for epoch in range(5):
        assert len(plan([text], ObjectiveConfig(sentence=name, max_seq_length=32), epoch=epoch)) > 200


def five_sigma(share: float, count: int) -> float:
    """Return a bound that a share of `count` draws passes but once in two million."""
    return float(5 * np.sqrt(share * (1 - share) / count))
