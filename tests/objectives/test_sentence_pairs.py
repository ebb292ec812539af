"""One instance as tokens: which sentences stand where, what is cut off, how it is framed."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from litebert.errors import DamagedError
from litebert.objectives import (
    SENTENCE_OBJECTIVES,
    FramedPair,
    Instance,
    Library,
    PlainShard,
    Vocabulary,
    frame,
    truncated_sizes,
)
from litebert.objectives.sentences.base import IN_ORDER, RANDOM_SECOND, SWAPPED
from litebert.rng import stream

# sentences 14 to 16 against 16 to 19 of the numbered corpus; its token i has the id 5 + i
INSTANCE = Instance(shard=0, start=14, middle=16, end=19, kind=IN_ORDER, target=50)


def framed(
    text: PlainShard, vocabulary: Vocabulary, instance: Instance, *, length: int = 64, sample: int = 0
) -> FramedPair:
    return frame(
        Library.of([text]),
        instance,
        sentence=SENTENCE_OBJECTIVES["order"],
        vocabulary=vocabulary,
        max_seq_length=length,
        generator=stream(1, "test", 0, sample),
    )


def ids_of(first: int, stop: int) -> list[int]:
    """Return the ids of sentences first to stop of the numbered corpus."""
    return list(range(5 + 10 * first, 5 + 10 * stop))


def segments_of(pair: FramedPair) -> tuple[list[int], list[int]]:
    ids = pair.ids.tolist()
    return ids[1 : pair.first_length - 1], ids[pair.first_length : -1]


@given(st.integers(1, 60), st.integers(0, 60), st.integers(5, 64))
@settings(max_examples=500, deadline=None)
def test_sizes_after_cutting_equal_those_of_cutting_one_at_a_time(first: int, second: int, room: int) -> None:
    expected_first, expected_second = first, second
    while expected_first + expected_second > room:
        if expected_first > expected_second:
            expected_first -= 1
        else:
            expected_second -= 1
    assert truncated_sizes(first, second, room) == (expected_first, expected_second)


def test_neighbours_in_order_have_label_0(numbered: PlainShard, numbered_vocabulary: Vocabulary) -> None:
    pair = framed(numbered, numbered_vocabulary, INSTANCE)
    assert pair.ids.tolist() == [2, *ids_of(14, 16), 3, *ids_of(16, 19), 3]
    assert (pair.first_length, pair.label) == (22, 0)


def test_swapped_neighbours_have_label_1(numbered: PlainShard, numbered_vocabulary: Vocabulary) -> None:
    pair = framed(numbered, numbered_vocabulary, replace(INSTANCE, kind=SWAPPED))
    assert pair.ids.tolist() == [2, *ids_of(16, 19), 3, *ids_of(14, 16), 3]
    assert (pair.first_length, pair.label) == (32, 1)


def test_without_a_second_segment_there_is_one_separator(numbered: PlainShard, numbered_vocabulary: Vocabulary) -> None:
    pair = framed(numbered, numbered_vocabulary, replace(INSTANCE, middle=19))
    assert pair.ids.tolist() == [2, *ids_of(14, 19), 3]
    assert pair.first_length == len(pair.ids)


def test_a_random_second_is_whole_sentences_of_another_document(
    numbered: PlainShard, numbered_vocabulary: Vocabulary
) -> None:
    other_documents = set()
    for sample in range(300):
        instance = replace(INSTANCE, kind=RANDOM_SECOND)
        pair = framed(numbered, numbered_vocabulary, instance, sample=sample)
        first, second = segments_of(pair)
        start, stop = (second[0] - 5) // 10, (second[-1] - 5) // 10 + 1
        assert (first, pair.label) == (ids_of(14, 16), 1)
        assert second == ids_of(start, stop)
        assert stop - start == 3 or stop % 12 == 0  # 50 - 20 tokens, or the document ends
        other_documents.add(start // 12)
    assert other_documents == set(range(20)) - {1}


def test_a_random_second_has_a_sentence_even_where_none_is_needed(
    numbered: PlainShard, numbered_vocabulary: Vocabulary
) -> None:
    instance = replace(INSTANCE, kind=RANDOM_SECOND, target=2)
    assert len(segments_of(framed(numbered, numbered_vocabulary, instance))[1]) == 10


def test_a_corpus_of_one_document_is_its_own_random_second(numbered_vocabulary: Vocabulary) -> None:
    text = PlainShard(np.arange(5, 35, dtype=np.uint16), np.array([0, 10, 20, 30]), np.array([0, 3]))
    instance = Instance(shard=0, start=0, middle=1, end=1, kind=RANDOM_SECOND, target=20)
    _, second = segments_of(framed(text, numbered_vocabulary, instance))
    assert set(second) <= set(range(5, 35))


def test_a_random_second_may_come_from_any_shard(numbered: PlainShard, numbered_vocabulary: Vocabulary) -> None:
    half = PlainShard(numbered.tokens[:1_200], numbered.sentences[:121], numbered.documents[:11])
    rest = PlainShard(numbered.tokens[1_200:], numbered.sentences[120:] - 1_200, numbered.documents[10:] - 120)
    instance = replace(INSTANCE, kind=RANDOM_SECOND)
    for sample in range(50):
        split = frame(
            Library.of([half, rest]),
            instance,
            sentence=SENTENCE_OBJECTIVES["order"],
            vocabulary=numbered_vocabulary,
            max_seq_length=64,
            generator=stream(1, "test", 0, sample),
        )
        whole = framed(numbered, numbered_vocabulary, instance, sample=sample)
        np.testing.assert_array_equal(split.ids, whole.ids)


def test_surplus_tokens_leave_both_ends_with_equal_chance(
    numbered: PlainShard, numbered_vocabulary: Vocabulary
) -> None:
    instance = Instance(shard=0, start=12, middle=22, end=24, kind=IN_ORDER, target=120)
    fronts = []
    for sample in range(2_000):
        pair = framed(numbered, numbered_vocabulary, instance, length=63, sample=sample)
        first, second = segments_of(pair)
        assert len(pair.ids) == 63
        assert second == ids_of(22, 24)
        assert first == list(range(first[0], first[0] + 40))
        fronts.append(first[0] - 125)
    # Binomial(60, .5): mean 30, variance 15
    assert abs(np.mean(fronts) - 30) < 5 * np.sqrt(15 / 2_000)
    assert abs(np.var(fronts) - 15) < 5 * 15 * np.sqrt(2 / 2_000)


def test_tokens_beyond_the_vocabulary_are_reported_as_damage(numbered: PlainShard) -> None:
    small = Vocabulary(100, cls_id=2, sep_id=3, mask_id=4, starts_word=np.ones(100, np.bool_))
    with pytest.raises(DamagedError, match=r"LB-402: .*\n.*id 194 near sentence 14"):
        framed(numbered, small, INSTANCE)
