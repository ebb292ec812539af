"""Sentence shuffling and same-document pairs: what is in a pair, and what its label says."""

import numpy as np
import pytest

from litebert.config import ObjectiveConfig
from litebert.objectives import SENTENCE_OBJECTIVES, Library, PlainShard, plan_epoch, sentence_objective


@pytest.fixture
def library() -> Library:
    """Give two documents of 40 sentences of two pieces each; sentence s is (2 s, 2 s + 1)."""
    tokens = np.arange(160, dtype=np.uint16)
    sentences, documents = np.arange(0, 161, 2), np.array([0, 40, 80])
    return Library.of([PlainShard(tokens, sentences, documents)])


def _pairs(library: Library, name: str) -> list[tuple[int, list[int], list[int]]]:
    objective = sentence_objective(name)
    config = ObjectiveConfig(sentence=name, max_seq_length=20, short_seq_prob=0)
    plan = plan_epoch(library, config, seed=3, purpose="train", epoch=0)
    pairs = []
    for row in range(len(plan)):
        instance = plan.instance(row)
        generator = np.random.Generator(np.random.Philox(row))
        first, second = objective.segments(library, instance, generator)
        both = [[int(token) // 2 for token in part[::2]] for part in (first, second)]
        pairs.append((objective.label(instance.kind), *both))
    return pairs


def test_a_shuffled_chunk_has_its_sentences_in_another_order(library: Library) -> None:
    pairs = _pairs(library, "shuffle")
    assert {label for label, _, _ in pairs} == {0, 1}
    for label, first, second in pairs:
        whole = first + second
        assert len(whole) >= 3
        assert first
        assert second
        assert sorted(whole) == list(range(min(whole), max(whole) + 1))
        assert (whole == sorted(whole)) == (label == 0)


def test_a_pair_of_one_document_has_a_gap_and_a_pair_of_two_has_label_1(library: Library) -> None:
    pairs = _pairs(library, "document")
    assert {label for label, _, _ in pairs} == {0, 1}
    for label, first, second in pairs:
        is_one_document = (first[0] < 40) == (second[0] < 40)
        assert is_one_document == (label == 0)
        if label == 0:
            assert second[0] == first[-1] + 2


@pytest.mark.parametrize("name", SENTENCE_OBJECTIVES)
def test_a_plan_ends_for_documents_of_any_size(name: str) -> None:
    documents = np.concatenate(([0], np.cumsum(np.arange(300) % 7 + 1)))
    sentences = np.arange(documents[-1] + 1) * 9
    text = PlainShard(np.zeros(sentences[-1], np.uint16), sentences, documents)
    config = ObjectiveConfig(sentence=name, max_seq_length=32)
    for epoch in range(5):  # 'document' never ended where a random second segment came last
        plan = plan_epoch(Library.of([text]), config, seed=1, purpose="train", epoch=epoch)
        assert len(plan) > 200
