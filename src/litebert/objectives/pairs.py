"""One instance as tokens: A and B, cut to length, framed (create_pretraining_data.py L314-386)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from litebert.errors import DamagedError
from litebert.objectives.instances import IN_ORDER, RANDOM_SECOND, SWAPPED, Instance
from litebert.objectives.shards import Library, Tokens
from litebert.objectives.vocabulary import Vocabulary
from litebert.rng import Ints

TRIES_FOR_ANOTHER_DOCUMENT = 10
"""Draws of a document before the instance's own one is accepted (L314-337)."""


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
    vocabulary: Vocabulary,
    max_seq_length: int,
    generator: np.random.Generator,
) -> FramedPair:
    """Return the tokens of an instance between special tokens, at most `max_seq_length` of them.

    Raises: DamagedError where the shard holds ids that the vocabulary has not.
    """
    first, second = _segments(library, instance, generator)
    separators = [vocabulary.sep_id]
    room = max_seq_length - (3 if second.size else 2)
    first_size, second_size = truncated_sizes(first.size, second.size, room)
    parts: list[Tokens | list[int]] = [
        [vocabulary.cls_id],
        _cut(first, first_size, generator),
        separators,
    ]
    if second.size:
        parts += [_cut(second, second_size, generator), separators]
    ids = np.concatenate(parts, dtype=np.int64)
    if ids.max() >= vocabulary.size:
        raise _foreign_token(ids, instance, vocabulary)
    return FramedPair(ids, first_size + 2, int(instance.kind != IN_ORDER))


def truncated_sizes(first: int, second: int, room: int) -> tuple[int, int]:
    """Return two sizes after the larger, on a tie the second, lost one until both fit (L601-616).

    >>> truncated_sizes(300, 400, 509), truncated_sizes(100, 900, 509), truncated_sizes(5, 6, 509)
    ((255, 254), (100, 409), (5, 6))
    """
    first = min(first, max(room - second, (room + 1) // 2))
    return first, min(second, room - first)


def _segments(
    library: Library, instance: Instance, generator: np.random.Generator
) -> tuple[Tokens, Tokens]:
    text = library.texts[instance.shard]
    first = text.between(instance.start, instance.middle)
    if instance.kind == RANDOM_SECOND:
        return first, _random_text(library, instance, instance.target - first.size, generator)
    second = text.between(instance.middle, instance.end)
    return (second, first) if instance.kind == SWAPPED else (first, second)


def _random_text(
    library: Library, instance: Instance, target: int, generator: np.random.Generator
) -> Tokens:
    """Return sentences of another document, from a random one on, of `target` tokens or more."""
    own = library.document_of(instance.shard, instance.start)
    draws = generator.random(TRIES_FOR_ANOTHER_DOCUMENT + 1)
    drawn = (draws[:-1] * library.num_documents).astype(np.int64).tolist()
    other = next((document for document in drawn if document != own), own)
    shard, first, stop = library.sentences_of(other)
    start = first + int(draws[-1] * (stop - first))
    sentences = library.texts[shard].sentences
    reached = int(np.searchsorted(sentences, sentences[start] + target))
    return library.texts[shard].between(start, min(max(reached, start + 1), stop))


def _cut(tokens: Tokens, size: int, generator: np.random.Generator) -> Tokens:
    """Shorten to `size`, taking each surplus token from the front or the back with p .5."""
    surplus = tokens.size - size
    front = np.count_nonzero(generator.random(surplus) < 0.5)
    return tokens[front : front + size]


def _foreign_token(ids: Ints, instance: Instance, vocabulary: Vocabulary) -> DamagedError:
    return DamagedError(
        "LB-402",
        f"shard {instance.shard} of the corpus holds a token that the vocabulary has not",
        received=f"id {ids.max()} near sentence {instance.start}",
        expected=f"ids below {vocabulary.size}, the size of the vocabulary",
        next="litebert corpus check",
    )
