"""One training sequence as tokens, and sequences laid end to end as a batch.

Line numbers refer to the official create_pretraining_data.py.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from litebert.config import ObjectiveConfig
from litebert.corpus.shards import Tokens
from litebert.objectives.sentences import Instance, Library, sentence_objective
from litebert.rng import Ints
from litebert.tokenizer import Tokenizer

Vectors = NDArray[np.float16 | np.float32]


# ---- an instance as tokens -----------------------------------------------------------


def frame(
    library: Library,
    instance: Instance,
    tokenizer: Tokenizer,
    config: ObjectiveConfig,
    generator: np.random.Generator,
) -> tuple[Ints, int]:
    """Return the ids of `[CLS] A [SEP] B [SEP]` or `[CLS] A [SEP]`, and how many of
    them are in segment 0.
    """
    objective = sentence_objective(config.sentence)
    first, second = objective.segments(library, instance, generator)
    # [CLS], and [SEP] after each segment
    num_framing = 3 if second.size else 2
    room = config.max_seq_length - num_framing
    first_size, second_size = truncated_sizes(first.size, second.size, room)

    # In this order: every truncation draws from the same generator.
    parts: list[Tokens | list[int]] = [[tokenizer.cls_id]]
    parts += [_truncate(first, first_size, generator), [tokenizer.sep_id]]
    if second.size:
        parts += [_truncate(second, second_size, generator), [tokenizer.sep_id]]
    ids = np.concatenate(parts, dtype=np.int64)
    is_same_vocabulary = ids.max() < tokenizer.vocab_size
    assert is_same_vocabulary, "the corpus was made with another vocabulary"
    return ids, first_size + 2


def _truncate(tokens: Tokens, size: int, generator: np.random.Generator) -> Tokens:
    """Cut a segment to `size` tokens, at both ends.

    Upstream cuts each surplus token from the front or the back with p = 0.5 (L601-616):
    together, the front loses a binomial number.
    """
    num_surplus = tokens.size - size
    num_front = np.count_nonzero(generator.random(num_surplus) < 0.5)
    return tokens[num_front : num_front + size]


def truncated_sizes(first: int, second: int, room: int) -> tuple[int, int]:
    """Return two sizes that fit `room`: the larger (the second, if equal) shrinks first
    (L601-616).

    >>> truncated_sizes(300, 400, 509), truncated_sizes(100, 900, 509), truncated_sizes(5, 6, 509)
    ((255, 254), (100, 409), (5, 6))
    """
    first_size = min(first, max(room - second, (room + 1) // 2))
    return first_size, min(second, room - first_size)


# ---- sequences as a batch ------------------------------------------------------------


class MaskedSequence(NamedTuple):
    """One training sequence, and what the model must predict of it."""

    ids: Ints
    first_length: int  # how many ids are in segment 0
    label: int | None  # None: no sentence task
    masked_positions: Ints
    replacements: Ints
    vector: Vectors | None = None  # (width,), a teacher's


@dataclass(frozen=True)
class PretrainingBatch:
    """Masked sequences, the longest first, and their targets; all int64, without
    padding.
    """

    ids: Ints  # (tokens,)
    positions: Ints  # (tokens,), within the sequence
    segments: Ints  # (tokens,)
    offsets: Ints  # (sequences + 1,)
    masked_positions: Ints  # (masked,), on the token axis
    masked_ids: Ints  # (masked,), the original tokens there
    # (sequences,): 0 in order, 1 swapped or random, NO_LABEL alone; None without the
    # task
    sentence_labels: Ints | None
    # (sequences, width), a teacher's, if it has read the texts before
    vectors: Vectors | None = None

    def unmasked_ids(self) -> Ints:
        """Return the ids as they were before they were masked, shape (tokens,)."""
        ids: Ints = self.ids.copy()
        ids[self.masked_positions] = self.masked_ids
        return ids


def collate(sequences: Iterable[MaskedSequence]) -> PretrainingBatch:
    """Lay sequences end to end, the longest first: attention is fastest on neighbors of
    equal length.
    """
    rows = sorted(sequences, key=lambda row: -row.ids.size)
    lengths = np.array([row.ids.size for row in rows])  # (sequences,)
    offsets = np.concatenate(([0], np.cumsum(lengths)))  # (sequences + 1,)
    starts = offsets[:-1]  # (sequences,), of each sequence on the token axis
    # (tokens,), from 0 in each sequence
    positions = np.arange(offsets[-1]) - np.repeat(starts, lengths)
    first_lengths = np.array([row.first_length for row in rows])
    segments = positions >= np.repeat(first_lengths, lengths)

    # from positions in a sequence to positions on the token axis: (masked,)
    num_masked = [row.masked_positions.size for row in rows]
    masked_positions = np.concatenate([row.masked_positions for row in rows])
    masked_positions += np.repeat(starts, num_masked)
    ids = np.concatenate([row.ids for row in rows])  # (tokens,)
    masked_ids = ids[masked_positions]  # the targets, before they are replaced
    ids[masked_positions] = np.concatenate([row.replacements for row in rows])

    sentence_labels = None
    if rows[0].label is not None:
        sentence_labels = np.array([row.label for row in rows])
    vectors = [row.vector for row in rows if row.vector is not None]
    return PretrainingBatch(
        ids=ids,
        positions=positions,
        segments=segments.astype(np.int64),
        offsets=offsets,
        masked_positions=masked_positions,
        masked_ids=masked_ids,
        sentence_labels=sentence_labels,
        vectors=np.stack(vectors) if vectors else None,
    )
