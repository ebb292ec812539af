"""From an instance to a batch: tokens framed, words masked (create_pretraining_data.py L426-540), laid end to end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from litebert.config import ObjectiveConfig
from litebert.corpus import Shard
from litebert.objectives.sentences import Instance, Library, SentenceObjective, Tokens
from litebert.rng import Ints

MASKED_SHARE, KEPT_SHARE = 0.8, 0.1
"""Shares of the chosen tokens that become [MASK], and stay; others become random (BERT, 3.1)."""
ENOUGH_PIECES = 20_000_000  # the most pieces that are counted for their frequency; more would hardly change a logarithm


@dataclass(frozen=True)
class Vocabulary:
    """The ids that frame and mask; `starts_word` (size,) marks pieces that begin a word."""

    size: int
    cls_id: int
    sep_id: int
    mask_id: int
    starts_word: NDArray[np.bool_]


def log_frequencies(shards: Sequence[Shard], vocab_size: int) -> NDArray[np.float32]:
    """Return log p of every piece, shape (vocab,), with one added to each count.

    In a large corpus only the first part of every shard is counted.

    >>> text = Shard(np.array([3, 1, 1], np.uint16), np.array([0, 3]), np.array([0, 1]))
    >>> (7 * np.exp(log_frequencies([text], 4))).round().tolist()
    [1.0, 3.0, 1.0, 2.0]
    """
    counts = np.ones(vocab_size, dtype=np.int64)
    for shard in shards:
        counts += np.bincount(shard.tokens[: ENOUGH_PIECES // len(shards)], minlength=vocab_size)
    logs: NDArray[np.float64] = np.log(counts / counts.sum())
    return logs.astype(np.float32)


# ---- one instance as tokens -----------------------------------------------------------------------------------------


def frame(
    library: Library,
    instance: Instance,
    sentence: SentenceObjective,
    vocabulary: Vocabulary,
    max_seq_length: int,
    generator: np.random.Generator,
) -> tuple[Ints, int]:
    """Return the ids of `[CLS] A [SEP] B [SEP]` or `[CLS] A [SEP]`, and how many of them are segment 0."""
    first, second = sentence.segments(library, instance, generator)
    sizes = truncated_sizes(first.size, second.size, max_seq_length - (3 if second.size else 2))
    parts: list[Tokens | list[int]] = [[vocabulary.cls_id]]
    for tokens, size in zip((first, second), sizes, strict=True):
        if tokens.size or tokens is first:
            # Each surplus token goes from the front or the back with p = 0.5 (L601-616), so the front loses a binomial.
            front = np.count_nonzero(generator.random(tokens.size - size) < 0.5)
            parts += [tokens[front : front + size], [vocabulary.sep_id]]
    ids = np.concatenate(parts, dtype=np.int64)
    assert ids.max() < vocabulary.size, "the corpus was made with another vocabulary"
    return ids, sizes[0] + 2


def truncated_sizes(first: int, second: int, room: int) -> tuple[int, int]:
    """Return two sizes that fit `room`: the larger (the second, if equal) shrinks first (L601-616).

    >>> truncated_sizes(300, 400, 509), truncated_sizes(100, 900, 509), truncated_sizes(5, 6, 509)
    ((255, 254), (100, 409), (5, 6))
    """
    first = min(first, max(room - second, (room + 1) // 2))
    return first, min(second, room - first)


# ---- masked LM: choose tokens and replace them ----------------------------------------------------------------------


class Masking(NamedTuple):
    """The chosen positions of a sequence, ascending, and the ids that replace them."""

    positions: Ints
    replacements: Ints


def mask(ids: Ints, *, vocabulary: Vocabulary, config: ObjectiveConfig, generator: np.random.Generator) -> Masking:
    """Choose runs of 1 to `ngram` words up to the budget, then a replacement for each token.

    >>> vocabulary = Vocabulary(9, cls_id=2, sep_id=3, mask_id=4, starts_word=np.ones(9, bool))
    >>> ids = np.array([2, 5, 6, 7, 3, 8, 5, 3])
    >>> generator = np.random.Generator(np.random.Philox(0))
    >>> len(mask(ids, vocabulary=vocabulary, config=ObjectiveConfig(), generator=generator).positions)
    1
    """
    maskable = np.flatnonzero((ids != vocabulary.cls_id) & (ids != vocabulary.sep_id))  # (tokens,) positions
    starts_word = vocabulary.starts_word[ids[maskable]] | (not config.whole_word)  # (tokens,)
    starts_word[:1] = True  # other pieces belong to the word before them, even across a [SEP]
    begins = np.flatnonzero(starts_word)  # (words,)
    order = generator.random(begins.size).argsort()  # (words,): which run is tried first
    law = np.cumsum(run_length_law(config))[:-1]
    runs = np.searchsorted(law, generator.random(begins.size), side="right") + 1  # (words,): words of the run at each

    # Words lie end to end here, so that a run is one interval and the loop handles slices of bytes.
    bounds = begins.tolist() + [maskable.size] * int(runs.max(initial=0))
    taken, budget = bytearray(maskable.size), num_to_predict(ids.size, config)
    for word, run in zip(order.tolist(), runs.tolist(), strict=True):
        start, stop = bounds[word], bounds[word + run]
        while stop - start > budget and run > 1:  # a shorter n-gram may still fit
            run -= 1
            stop = bounds[word + run]
        if stop - start > budget or 1 in taken[start:stop]:  # or overlaps an earlier one
            continue
        taken[start:stop] = b"\x01" * (stop - start)
        budget -= stop - start
        if not budget:
            break
    positions = maskable[np.frombuffer(taken, dtype=np.bool_)]  # (masked,)

    # Each token, not run, becomes [MASK], stays, or becomes any piece, even a special one (L535).
    originals = ids[positions]
    choice, piece = generator.random((2, positions.size))  # (masked,) each
    random_pieces = (piece * vocabulary.size).astype(np.int64)
    kept_or_random = np.where(choice < MASKED_SHARE + KEPT_SHARE, originals, random_pieces)
    return Masking(positions, np.where(choice < MASKED_SHARE, vocabulary.mask_id, kept_or_random))


def num_to_predict(length: int, config: ObjectiveConfig) -> int:
    """Return the most tokens that are predicted; `length` includes the special ones.

    >>> [num_to_predict(length, ObjectiveConfig()) for length in (3, 30, 50, 512)]  # halves to even
    [1, 4, 8, 77]
    """
    wanted = max(1, round(length * config.mask_prob))
    return wanted if config.max_predictions is None else min(wanted, config.max_predictions)


def run_length_law(config: ObjectiveConfig) -> NDArray[np.float64]:
    """Return p(n) for runs of n = 1 .. ngram words, proportional to 1/n (paper, 4.2) or reversed.

    >>> run_length_law(ObjectiveConfig()) * 11
    array([6., 3., 2.])
    """
    weights = 1 / np.arange(1, config.ngram + 1, dtype=np.float64)
    law: NDArray[np.float64] = weights / weights.sum()
    return law if config.favor_shorter_ngram else law[::-1]


# ---- samples as a batch ---------------------------------------------------------------------------------------------


class Sample(NamedTuple):
    """One sequence."""

    ids: Ints
    first_length: int  # how many ids are segment 0
    label: int | None  # None: no sentence task
    masking: Masking


@dataclass(frozen=True)
class PretrainingBatch:
    """Masked sequences and their targets, all int64, without padding."""

    ids: Ints  # (tokens,)
    positions: Ints  # (tokens,), within the sequence
    segments: Ints  # (tokens,)
    offsets: Ints  # (sequences + 1,)
    masked_positions: Ints  # (masked,), on the token axis
    masked_ids: Ints  # (masked,), the original tokens there
    sentence_labels: Ints | None  # (sequences,): 0 in order, 1 swapped or random, NO_LABEL alone; None without the task


def collate(samples: Sequence[Sample]) -> PretrainingBatch:
    """Lay samples end to end."""
    lengths = np.array([sample.ids.size for sample in samples])  # (sequences,)
    first_lengths = np.array([sample.first_length for sample in samples])
    offsets = np.concatenate(([0], np.cumsum(lengths)))  # (sequences + 1,)
    positions = np.arange(offsets[-1]) - np.repeat(offsets[:-1], lengths)  # (tokens,), from 0 in each sequence
    num_masked = [sample.masking.positions.size for sample in samples]
    masked_positions = np.concatenate([sample.masking.positions for sample in samples])  # (masked,)
    masked_positions += np.repeat(offsets[:-1], num_masked)  # from places in a sequence to places in the batch
    ids = np.concatenate([sample.ids for sample in samples])  # (tokens,)
    masked_ids = ids[masked_positions]
    ids[masked_positions] = np.concatenate([sample.masking.replacements for sample in samples])
    return PretrainingBatch(
        ids=ids,
        positions=positions,
        segments=(positions >= np.repeat(first_lengths, lengths)).astype(np.int64),
        offsets=offsets,
        masked_positions=masked_positions,
        masked_ids=masked_ids,
        sentence_labels=None if samples[0].label is None else np.array([sample.label for sample in samples]),
    )


def longest_first(batch: PretrainingBatch) -> PretrainingBatch:
    """Sort sequences by length, because attention is fastest on neighbours of equal length."""
    return of_sequences(batch, np.argsort(-np.diff(batch.offsets), kind="stable"))


def of_sequences(batch: PretrainingBatch, order: Ints) -> PretrainingBatch:
    """Return the sequences at the numbers in `order`, each at most once."""
    lengths = np.diff(batch.offsets)
    offsets = np.concatenate(([0], np.cumsum(lengths[order])))
    shifts = batch.offsets[:-1][order] - offsets[:-1]  # (sequences that stay,)
    tokens = np.arange(offsets[-1]) + np.repeat(shifts, lengths[order])  # (tokens that stay,): where each came from
    went_to = np.full_like(batch.ids, -1)  # -1: its sequence is left out
    went_to[tokens] = np.arange(tokens.size)
    places = went_to[batch.masked_positions]
    masked = np.argsort(places)[np.count_nonzero(places < 0) :]  # ascending, without those that are left out
    labels = batch.sentence_labels
    return PretrainingBatch(
        ids=batch.ids[tokens],
        positions=batch.positions[tokens],
        segments=batch.segments[tokens],
        offsets=offsets,
        masked_positions=places[masked],
        masked_ids=batch.masked_ids[masked],
        sentence_labels=None if labels is None else labels[order],
    )
