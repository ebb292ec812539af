"""Sorting a batch by length moves sequences and changes none."""

import numpy as np

from litebert.objectives import PretrainingBatch, longest_first


def _rows(batch: PretrainingBatch) -> set[tuple[object, ...]]:
    rows = set()
    labels = batch.sentence_labels
    for i, (start, stop) in enumerate(zip(batch.offsets[:-1], batch.offsets[1:], strict=True)):
        here = (batch.masked_positions >= start) & (batch.masked_positions < stop)
        rows.add(
            (
                tuple(batch.ids[start:stop].tolist()),
                tuple(batch.positions[start:stop].tolist()),
                tuple(batch.segments[start:stop].tolist()),
                tuple((batch.masked_positions[here] - start).tolist()),
                tuple(batch.masked_ids[here].tolist()),
                None if labels is None else int(labels[i]),
            )
        )
    return rows


def test_sequences_keep_their_tokens_masks_and_labels() -> None:
    batch = PretrainingBatch(
        ids=np.arange(12),
        positions=np.array([0, 1, 0, 1, 2, 3, 0, 1, 0, 1, 2, 3]),
        segments=np.array([0, 1, 0, 0, 1, 1, 0, 1, 0, 1, 1, 1]),
        offsets=np.array([0, 2, 6, 8, 12]),
        masked_positions=np.array([1, 2, 5, 11]),
        masked_ids=np.array([91, 92, 95, 911]),
        sentence_labels=np.array([0, 1, 1, 0]),
    )
    sorted_batch = longest_first(batch)
    assert np.diff(sorted_batch.offsets).tolist() == [4, 4, 2, 2]
    assert np.all(np.diff(sorted_batch.masked_positions) > 0)
    assert _rows(sorted_batch) == _rows(batch)
