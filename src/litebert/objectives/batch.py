"""A pretraining batch: sequences lie end to end, without padding."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from litebert.objectives.masking import Masking
from litebert.objectives.pairs import FramedPair
from litebert.rng import Ints


@dataclass(frozen=True)
class PretrainingBatch:
    """Hold masked sequences and their targets, all int64.

    `ids`, `positions` (within the sequence) and `segments` have shape (tokens,), `offsets`
    (sequences + 1,). `masked_positions` (masked,) index the token axis; `masked_ids` are the
    original tokens there. `sentence_labels` (sequences,) are 0 for in order, 1 for swapped or
    random, and None where the objective has no sentence task. For a contrast they are numbers,
    equal for sequences that belong together.
    """

    ids: Ints
    positions: Ints
    segments: Ints
    offsets: Ints
    masked_positions: Ints
    masked_ids: Ints
    sentence_labels: Ints | None


def longest_first(batch: PretrainingBatch) -> PretrainingBatch:
    """Sort sequences by length, because attention is fastest on neighbours of equal length."""
    return of_sequences(batch, np.argsort(-np.diff(batch.offsets), kind="stable"))


def of_sequences(batch: PretrainingBatch, order: Ints) -> PretrainingBatch:
    """Return the sequences at the numbers in `order`, each at most once."""
    lengths = np.diff(batch.offsets)
    offsets = np.concatenate(([0], np.cumsum(lengths[order])))
    shifts = batch.offsets[:-1][order] - offsets[:-1]
    tokens = np.arange(offsets[-1]) + np.repeat(shifts, lengths[order])  # where each came from
    went_to = np.full_like(batch.ids, -1)  # -1: its sequence is left out
    went_to[tokens] = np.arange(tokens.size)
    places = went_to[batch.masked_positions]
    masked = np.argsort(places)[np.count_nonzero(places < 0) :]
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


def apart(
    pairs: Sequence[FramedPair], maskings: Sequence[Masking], *, cls_id: int
) -> tuple[tuple[FramedPair, ...], tuple[Masking, ...]]:
    """Split each pair into `[CLS] A [SEP]` and `[CLS] B [SEP]`, labelled by the pair's number.

    Masked tokens stay masked.
    """
    framed, masked = [], []
    for number, (pair, masking) in enumerate(zip(pairs, maskings, strict=True)):
        size = pair.first_length
        first, second = pair.ids[:size], np.concatenate([[cls_id], pair.ids[size:]])
        framed += [FramedPair(ids, len(ids), number) for ids in (first, second)]
        is_first = masking.positions < size
        masked += [
            Masking(masking.positions[is_first], masking.replacements[is_first]),
            Masking(masking.positions[~is_first] - size + 1, masking.replacements[~is_first]),
        ]
    return tuple(framed), tuple(masked)


def collate(pairs: Sequence[FramedPair], maskings: Sequence[Masking], *, has_sentence_task: bool) -> PretrainingBatch:
    """Lay masked pairs end to end."""
    lengths = np.array([pair.ids.size for pair in pairs])
    first_lengths = np.array([pair.first_length for pair in pairs])
    offsets = np.concatenate(([0], np.cumsum(lengths)))
    starts = np.repeat(offsets[:-1], lengths)  # (tokens,)
    positions = np.arange(offsets[-1]) - starts
    masked_counts = [masking.positions.size for masking in maskings]
    masked_starts = np.repeat(offsets[:-1], masked_counts)
    masked_positions = np.concatenate([masking.positions for masking in maskings]) + masked_starts
    ids = np.concatenate([pair.ids for pair in pairs])
    masked_ids = ids[masked_positions]
    ids[masked_positions] = np.concatenate([masking.replacements for masking in maskings])
    return PretrainingBatch(
        ids=ids,
        positions=positions,
        segments=(positions >= np.repeat(first_lengths, lengths)).astype(np.int64),
        offsets=offsets,
        masked_positions=masked_positions,
        masked_ids=masked_ids,
        sentence_labels=np.array([pair.label for pair in pairs]) if has_sentence_task else None,
    )
