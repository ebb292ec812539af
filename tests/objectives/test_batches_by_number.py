"""Batches found by number: the same whoever asks, consistent inside, whole over an epoch."""

from __future__ import annotations

from typing import Literal

import numpy as np
import pytest

from litebert.config.schema import ObjectiveConfig
from litebert.corpus import Shard
from litebert.errors import LitebertError
from litebert.objectives import NO_LABEL, Loader, PretrainingBatch, Vocabulary, evaluation_batches, longest_first
from litebert.rng import Ints

SENTENCES = ("order", "order-official", "next", "none")
Sentence = Literal["order", "order-official", "next", "none"]
CONFIG = ObjectiveConfig(max_seq_length=64)


def loader(
    shards: list[Shard],
    vocabulary: Vocabulary,
    *,
    config: ObjectiveConfig = CONFIG,
    batch_size: int = 12,
    seed: int = 3,
) -> Loader:
    return Loader(shards, vocabulary=vocabulary, config=config, batch_size=batch_size, seed=seed)


def assert_equal(first: PretrainingBatch, second: PretrainingBatch) -> None:
    for name, array in vars(first).items():
        np.testing.assert_array_equal(array, getattr(second, name), err_msg=name)


def original_ids(batch: PretrainingBatch) -> Ints:
    ids = batch.ids.copy()
    ids[batch.masked_positions] = batch.masked_ids
    return ids


def sequences_of(batch: PretrainingBatch) -> list[list[int]]:
    return [part.tolist() for part in np.split(original_ids(batch), batch.offsets[1:-1])]


def test_any_batch_is_the_same_in_any_order(corpus: list[Shard], vocabulary: Vocabulary) -> None:
    in_order = loader(corpus, vocabulary)
    batches = [in_order.batch(step) for step in range(100)]
    assert 2 * in_order.epoch_size < 100 * 12  # crosses epochs
    backwards = loader(corpus, vocabulary)
    for step in reversed(range(100)):
        assert_equal(backwards.batch(step), batches[step])
    assert_equal(loader(corpus, vocabulary).batch(57), batches[57])


@pytest.mark.parametrize("world_size", [2, 3, 5, 12])
def test_shares_of_ranks_end_to_end_are_the_batch(corpus: list[Shard], vocabulary: Vocabulary, world_size: int) -> None:
    made = loader(corpus, vocabulary)
    shares = [made.batch(4, rank=rank, world_size=world_size) for rank in range(world_size)]
    whole = made.batch(4)
    np.testing.assert_array_equal(np.concatenate([share.ids for share in shares]), whole.ids)
    labels = [share.sentence_labels for share in shares if share.sentence_labels is not None]
    np.testing.assert_array_equal(np.concatenate(labels), whole.sentence_labels)


def test_small_batches_end_to_end_are_the_large_one(corpus: list[Shard], vocabulary: Vocabulary) -> None:
    large = loader(corpus, vocabulary, batch_size=12).batch(7)
    made = loader(corpus, vocabulary, batch_size=4)
    small = [made.batch(21 + part) for part in range(3)]
    np.testing.assert_array_equal(np.concatenate([batch.ids for batch in small]), large.ids)


@pytest.mark.parametrize("sentence", SENTENCES)
def test_a_batch_is_consistent(corpus: list[Shard], vocabulary: Vocabulary, sentence: Sentence) -> None:
    config = ObjectiveConfig(sentence=sentence, max_seq_length=64)
    batch = loader(corpus, vocabulary, config=config, batch_size=300).batch(0)
    assert {array.dtype for array in vars(batch).values() if array is not None} == {np.dtype("i8")}
    assert batch.ids.max() < vocabulary.size
    ids = original_ids(batch)
    labels = batch.sentence_labels if batch.sentence_labels is not None else [NO_LABEL] * 300
    for start, stop, label in zip(batch.offsets[:-1], batch.offsets[1:], labels, strict=True):
        separators = 1 if label == NO_LABEL else 2
        sequence, segments = ids[start:stop], batch.segments[start:stop]
        ends = np.flatnonzero(sequence == 3)
        assert 3 <= len(sequence) <= 64
        assert sequence[0] == 2
        assert len(ends) == separators
        assert ends[-1] == len(sequence) - 1
        np.testing.assert_array_equal(segments, np.arange(len(sequence)) > ends[0])
        np.testing.assert_array_equal(batch.positions[start:stop], np.arange(len(sequence)))
    assert np.all(np.diff(batch.masked_positions) > 0)
    assert (batch.sentence_labels is None) == (sentence == "none")


@pytest.mark.parametrize("sentence", SENTENCES)
def test_unmasked_text_stands_in_the_corpus(
    numbered: Shard, numbered_vocabulary: Vocabulary, sentence: Sentence
) -> None:
    config = ObjectiveConfig(sentence=sentence, max_seq_length=50)
    batch = loader([numbered], numbered_vocabulary, config=config, batch_size=200).batch(0)
    labels = batch.sentence_labels if batch.sentence_labels is not None else [0] * 200
    for sequence, label in zip(sequences_of(batch), labels, strict=True):
        cut = sequence.index(3)
        first, second = sequence[1:cut], sequence[cut + 1 : -1]
        # ids count up through the corpus, so a segment is one run of them
        assert np.all(np.diff(first) == 1)
        assert np.all(np.diff(second) == 1)
        if sentence == "order":
            assert (first[0] > second[0]) == bool(label)
            assert (first[0] - 5) // 120 == (second[0] - 5) // 120


def test_epochs_with_other_counts_of_instances_fill_the_same_size(corpus: list[Shard], vocabulary: Vocabulary) -> None:
    config = ObjectiveConfig(
        sentence="order-official", max_seq_length=128, short_seq_prob=0.5, short_seq_per="document"
    )
    made = loader(corpus, vocabulary, config=config)
    size = made.epoch_size
    counts = set()
    for epoch in range(1, 7):
        batch = made.samples(epoch * size, (epoch + 1) * size)
        assert len(batch.offsets) == size + 1
        counts.add(len({tuple(sequence) for sequence in sequences_of(batch)}))
    assert size in counts  # more instances than places: all differ
    assert min(counts) < size  # fewer: some are shown twice


def test_evaluation_batches_are_fixed_distinct_and_not_those_of_training(
    numbered: Shard, numbered_vocabulary: Vocabulary
) -> None:
    def batches(num_sequences: int) -> list[PretrainingBatch]:
        return list(
            evaluation_batches(
                [numbered],
                vocabulary=numbered_vocabulary,
                config=CONFIG,
                batch_size=8,
                seed=3,
                num_sequences=num_sequences,
            )
        )

    few, again, all_there_are = batches(20), batches(20), batches(10**9)
    for first, second in zip(few, again, strict=True):
        assert_equal(first, second)
    assert [len(batch.offsets) - 1 for batch in few] == [8, 8, 4]
    seen = [tuple(sequence) for batch in all_there_are for sequence in sequences_of(batch)]
    assert len(seen) == len(set(seen)) > 20
    training = loader([numbered], numbered_vocabulary, batch_size=8).batch(0)
    assert sequences_of(few[0]) != sequences_of(training)


def test_more_processes_than_sequences_are_refused(corpus: list[Shard], vocabulary: Vocabulary) -> None:
    with pytest.raises(LitebertError, match=r"LB-401: .*\n.*12 sequences for 13 processes"):
        loader(corpus, vocabulary).batch(0, world_size=13)


def test_a_document_of_one_sentence_is_a_segment_without_a_label(vocabulary: Vocabulary) -> None:
    text = Shard(np.arange(5, 45, dtype=np.uint16), np.arange(0, 41, 10), np.array([0, 1, 2, 4]))
    made = loader([text], vocabulary)
    assert (made.epoch_size, made.skipped_documents) == (3, 0)
    batch = made.samples(0, 3)
    assert batch.sentence_labels is not None
    by_length = {len(ids): label for ids, label in zip(sequences_of(batch), batch.sentence_labels, strict=True)}
    assert by_length[12] == NO_LABEL
    assert by_length[23] in (0, 1)
    official = ObjectiveConfig(sentence="order-official")
    assert loader([text], vocabulary, config=official).samples(0, 3).sentence_labels is not None
    with pytest.raises(LitebertError, match=r"LB-400: .*\n.*0 documents\n.*one sentence"):
        loader([], vocabulary)


def test_sorting_by_length_moves_sequences_and_changes_none(corpus: list[Shard], vocabulary: Vocabulary) -> None:
    batch = loader(corpus, vocabulary, batch_size=40).batch(0)
    ordered = longest_first(batch)
    assert np.all(np.diff(np.diff(ordered.offsets)) <= 0)
    assert np.all(np.diff(ordered.masked_positions) > 0)
    assert rows_of(ordered) == rows_of(batch)


def rows_of(batch: PretrainingBatch) -> list[tuple[object, ...]]:
    """Return the tokens, positions, segments, masks and label of each sequence, sorted."""
    cuts, is_masked = batch.offsets[1:-1], np.isin(np.arange(len(batch.ids)), batch.masked_positions)
    columns = (batch.ids, batch.positions, batch.segments, original_ids(batch), is_masked)
    parts = [[part.tolist() for part in np.split(column, cuts)] for column in columns]
    assert batch.sentence_labels is not None
    return sorted(zip(*parts, batch.sentence_labels.tolist(), strict=True))
