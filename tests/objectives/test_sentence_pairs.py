"""One instance as tokens: which sentences stand where, what is cut off, how it is framed."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from litebert.corpus import Shard
from litebert.errors import DamagedError
from litebert.objectives.batch import Vocabulary, frame, truncated_sizes
from litebert.objectives.sentences import IN_ORDER, RANDOM_SECOND, SENTENCE_OBJECTIVES, Instance, Library
from litebert.rng import stream

# sentences 14 to 16 against 16 to 19 of the numbered corpus; its token i has the id 5 + i
INSTANCE = Instance(shard=0, start=14, middle=16, end=19, kind=IN_ORDER, target=50)


def framed(
    texts: list[Shard], vocabulary: Vocabulary, instance: Instance, *, length: int = 64, sample: int = 0
) -> tuple[list[int], list[int]]:
    """Return the tokens of both segments, and check their frame."""
    generator, order = stream(1, "test", 0, sample), SENTENCE_OBJECTIVES["order"]
    library = Library(texts)
    ids, first_length = frame(
        library, instance, sentence=order, vocabulary=vocabulary, max_seq_length=length, generator=generator
    )
    assert (ids[0], ids[first_length - 1], ids[-1]) == (2, 3, 3)
    return ids[1 : first_length - 1].tolist(), ids[first_length:-1].tolist()


def ids_of(first: int, stop: int) -> list[int]:
    """Return the ids of sentences first to stop of the numbered corpus."""
    return list(range(5 + 10 * first, 5 + 10 * stop))


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


def test_a_random_second_is_whole_sentences_of_another_document_of_any_shard(
    numbered: Shard, numbered_vocabulary: Vocabulary
) -> None:
    half = Shard(numbered.tokens[:1_200], numbered.sentences[:121], numbered.documents[:11])
    rest = Shard(numbered.tokens[1_200:], numbered.sentences[120:] - 1_200, numbered.documents[10:] - 120)
    instance = replace(INSTANCE, kind=RANDOM_SECOND)
    other_documents = set()
    for sample in range(300):
        first, second = framed([numbered], numbered_vocabulary, instance, sample=sample)
        assert (first, second) == framed([half, rest], numbered_vocabulary, instance, sample=sample)
        start, stop = (second[0] - 5) // 10, (second[-1] - 5) // 10 + 1
        assert first == ids_of(14, 16)
        assert second == ids_of(start, stop)
        assert stop - start == 3 or stop % 12 == 0  # 50 - 20 tokens, or the document ends
        other_documents.add(start // 12)
    assert other_documents == set(range(20)) - {1}
    alone = Shard(numbered.tokens[:120], numbered.sentences[:13], numbered.documents[:2])
    assert framed([alone], numbered_vocabulary, replace(instance, start=0, middle=2, end=4))[1]  # its own second
    tight = replace(instance, target=2)  # even where none is needed
    assert len(framed([numbered], numbered_vocabulary, tight)[1]) == 10


def test_surplus_tokens_leave_both_ends_with_equal_chance(numbered: Shard, numbered_vocabulary: Vocabulary) -> None:
    instance = Instance(shard=0, start=12, middle=22, end=24, kind=IN_ORDER, target=120)
    fronts = []
    for sample in range(2_000):
        first, second = framed([numbered], numbered_vocabulary, instance, length=63, sample=sample)
        assert second == ids_of(22, 24)
        assert first == list(range(first[0], first[0] + 40))
        fronts.append(first[0] - 125)
    # Binomial(60, .5): mean 30, variance 15
    assert abs(np.mean(fronts) - 30) < 5 * np.sqrt(15 / 2_000)
    assert abs(np.var(fronts) - 15) < 5 * 15 * np.sqrt(2 / 2_000)


def test_tokens_beyond_the_vocabulary_are_reported_as_damage(numbered: Shard) -> None:
    small = Vocabulary(100, cls_id=2, sep_id=3, mask_id=4, starts_word=np.ones(100, np.bool_))
    with pytest.raises(DamagedError, match=r"LB-402: .*\n.*id 194 near sentence 14"):
        framed([numbered], small, INSTANCE)
