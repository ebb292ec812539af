"""Turn an instance into tokens: A and B, truncated and framed (create_pretraining_data.py L314)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from litebert.errors import DamagedError
from litebert.objectives.sentences import Instance, SentenceObjective
from litebert.objectives.shards import Library, Tokens
from litebert.objectives.vocabulary import Vocabulary
from litebert.rng import Ints


@dataclass(frozen=True)
class FramedPair:
    """Hold `[CLS] A [SEP] B [SEP]` or `[CLS] A [SEP]`; `first_length` tokens are segment 0."""

    ids: Ints
    first_length: int
    label: int


def frame(
    library: Library,
    instance: Instance,
    *,
    sentence: SentenceObjective,
    vocabulary: Vocabulary,
    max_seq_length: int,
    generator: np.random.Generator,
) -> FramedPair:
    """Return the tokens of an instance between special tokens, at most `max_seq_length` in all.

    Raises:
        DamagedError: LB-402, the shard contains ids that are not in the vocabulary.
    """
    first, second = sentence.segments(library, instance, generator)
    separators = [vocabulary.sep_id]
    room = max_seq_length - (3 if second.size else 2)
    first_size, second_size = truncated_sizes(first.size, second.size, room)
    parts: list[Tokens | list[int]] = [[vocabulary.cls_id], _cut(first, first_size, generator), separators]
    if second.size:
        parts += [_cut(second, second_size, generator), separators]
    ids = np.concatenate(parts, dtype=np.int64)
    if ids.max() >= vocabulary.size:
        raise _foreign_token(ids, instance, vocabulary)
    return FramedPair(ids, first_size + 2, sentence.label(instance.kind))


def truncated_sizes(first: int, second: int, room: int) -> tuple[int, int]:
    """Return two sizes that fit `room`: the larger (the second, if equal) shrinks first (L601-616).

    >>> truncated_sizes(300, 400, 509), truncated_sizes(100, 900, 509), truncated_sizes(5, 6, 509)
    ((255, 254), (100, 409), (5, 6))
    """
    first = min(first, max(room - second, (room + 1) // 2))
    return first, min(second, room - first)


def _cut(tokens: Tokens, size: int, generator: np.random.Generator) -> Tokens:
    """Shorten to `size`, taking each surplus token from the front or the back, p = 0.5 each."""
    surplus = tokens.size - size
    front = np.count_nonzero(generator.random(surplus) < 0.5)
    return tokens[front : front + size]


def _foreign_token(ids: Ints, instance: Instance, vocabulary: Vocabulary) -> DamagedError:
    return DamagedError(
        "LB-402",
        f"shard {instance.shard} of the corpus has a token that is not in the vocabulary",
        received=f"id {ids.max()} near sentence {instance.start}",
        expected=f"ids below {vocabulary.size}, the size of the vocabulary",
        next="litebert corpus check",
    )
