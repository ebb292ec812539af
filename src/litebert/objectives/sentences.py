"""The sentences of a corpus, and the objectives that pair them (paper, 3.1; create_pretraining_data.py L266-386).

A chunk is a run of sentences of one document. A sentence objective cuts it into segments A and B, and says what the
sentence head should answer about them. Adding one: docs/extending/objective.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from litebert import rng
from litebert.corpus import Shard
from litebert.errors import no_such_name
from litebert.rng import IntLike, Ints

Tokens = NDArray[np.uint16 | np.uint32]

IN_ORDER, SWAPPED, RANDOM_SECOND, ALONE = 0, 1, 2, 4
"""Kinds of instance: A, then B; B, then A; B is from another document; no B (labels 0, 1, 1, NO_LABEL)."""

NO_LABEL = -1  # the label of a sequence that the sentence head neither learns from nor is measured on

TRIES_FOR_ANOTHER_DOCUMENT = 10  # how often another document is drawn before the instance's own is accepted (L314-337)


class Library:
    """Shards with documents numbered across all of them; those of shard s start at `first_document[s]`.

    >>> shard = Shard(np.arange(9, dtype=np.uint16), np.array([0, 4, 9]), np.array([0, 1, 2]))
    >>> Library([shard, shard]).num_documents
    4
    """

    def __init__(self, shards: Sequence[Shard]) -> None:
        self.shards = tuple(shards)
        counts = [len(shard.documents) - 1 for shard in self.shards]
        self.first_document = np.cumsum([0, *counts], dtype=np.int64)  # (shards + 1,)
        self.num_documents = int(self.first_document[-1])


@dataclass(frozen=True)
class Instance:
    """Sentences of a shard as an instance: A is start to middle, B middle to end or by `kind`.

    `target` is how many tokens the instance should have.
    """

    shard: int
    start: int
    middle: int
    end: int
    kind: int
    target: int


@dataclass(frozen=True)
class Draws:
    """Random numbers for the sentences of one shard in one epoch, each a function of its sentence."""

    seed: int
    purpose: str
    epoch: int
    shard: int

    def uniform(self, what: str, sentence: Ints) -> NDArray[np.float64]:
        """Return a number in [0, 1) for each sentence."""
        return rng.uniform(self.seed, f"{self.purpose}-{what}", self.epoch, self.shard, sentence)

    def integers(self, what: str, low: IntLike, high: IntLike, sentence: Ints) -> Ints:
        """Return an integer in [low, high] for each sentence."""
        return rng.integers(self.seed, f"{self.purpose}-{what}", low, high, self.epoch, self.shard, sentence)


class SentenceObjective:
    """Two neighbouring segments of random lengths, in order; each objective overrides what differs.

    `divide` and `following` work on arrays with one entry per chunk, which is the sentences start, ... end - 1 of one
    document. Every random number comes from `draws` (by sentence) or `generator` (by sample).
    """

    name = "in-order"
    fewest_sentences = 1  # the fewest sentences that a chunk may have; shorter documents are skipped
    keeps_single_sentences = False
    """Whether a document of one sentence, below `fewest_sentences`, is a sequence without a label."""
    has_labels = True  # whether there are two segments and a label for the sentence head

    def divide(self, draws: Draws, start: Ints, end: Ints) -> tuple[Ints, Ints]:
        """Return where B starts, and the kind of each instance.

        A has at least one sentence and, if possible, so has B.
        """
        middle = start + draws.integers("middle", 1, np.maximum(end - start - 1, 1), start)
        return middle, np.full_like(end, IN_ORDER)

    def following(self, _draws: Draws, _start: Ints, end: Ints) -> Ints:
        """Return where the next chunks start: no sentence is used twice."""
        return end

    def segments(self, library: Library, instance: Instance, generator: np.random.Generator) -> tuple[Tokens, Tokens]:
        """Return the tokens of A and B, uncut, as `kind` says."""
        shard = library.shards[instance.shard]
        first = shard.between(instance.start, instance.middle)
        if instance.kind != RANDOM_SECOND:
            second = shard.between(instance.middle, instance.end)
            return (second, first) if instance.kind == SWAPPED else (first, second)
        # B is whole sentences of another document, from a random one on, until it has the rest of `target` tokens.
        local = int(np.searchsorted(shard.documents, instance.start, side="right")) - 1
        own = int(library.first_document[instance.shard]) + local
        draws = generator.random(TRIES_FOR_ANOTHER_DOCUMENT + 1)  # some for the document, the last for its sentence
        drawn = (draws[:-1] * library.num_documents).astype(np.int64).tolist()
        other = next((document for document in drawn if document != own), own)
        number = int(np.searchsorted(library.first_document, other, side="right")) - 1  # of its shard
        shard, local = library.shards[number], other - int(library.first_document[number])
        shard.require_unchanged()
        begin, stop = shard.documents[local : local + 2].tolist()
        start = begin + int(draws[-1] * (stop - begin))
        missing = instance.target - first.size
        reached = int(np.searchsorted(shard.sentences, shard.sentences[start] + missing))  # the first end from there on
        return first, shard.between(start, min(max(reached, start + 1), stop))

    def label(self, kind: int) -> int:
        """Return 0 for segments in order, 1 for all others, and no label where there is one segment."""
        return NO_LABEL if kind == ALONE else int(kind != IN_ORDER)


class OfficialOrder(SentenceObjective):
    """Sentence order as upstream draws it: a chunk of one sentence gets a random B and label 1.

    Thus the length of a chunk gives away some labels (create_pretraining_data.py L314-337).
    """

    name = "order-official"

    def divide(self, draws: Draws, start: Ints, end: Ints) -> tuple[Ints, Ints]:
        middle, _ = super().divide(draws, start, end)
        kind = np.where(draws.uniform("kind", start) < 0.5, SWAPPED, IN_ORDER)  # (chunks,)
        return middle, np.where(end - start == 1, RANDOM_SECOND, kind)


class SentenceOrder(OfficialOrder):
    """Sentence order as the paper says: chunks of two sentences or more, swapped or not.

    A document of a single sentence has no order: it is one segment, for masked LM alone.
    """

    name = "order"
    fewest_sentences = 2
    keeps_single_sentences = True

    def divide(self, draws: Draws, start: Ints, end: Ints) -> tuple[Ints, Ints]:
        middle, kind = super().divide(draws, start, end)
        return middle, np.where(end - start == 1, ALONE, kind)


class NextSentence(SentenceObjective):
    """Next sentence (BERT, 3.1): half of the chunks get a random second segment, as upstream."""

    name = "next"

    def divide(self, draws: Draws, start: Ints, end: Ints) -> tuple[Ints, Ints]:
        middle, _ = super().divide(draws, start, end)
        is_random = (draws.uniform("kind", start) < 0.5) | (end - start == 1)
        return middle, np.where(is_random, RANDOM_SECOND, IN_ORDER)

    def following(self, draws: Draws, start: Ints, end: Ints) -> Ints:
        middle, kind = self.divide(draws, start, end)
        # The next chunk starts with the sentences that a random B replaced (L314-337).
        return np.where(kind == RANDOM_SECOND, middle, end)


class NoSentences(SentenceObjective):
    """The whole chunk is one segment, and the sentence head is not trained."""

    name = "none"
    has_labels = False

    def divide(self, _draws: Draws, _start: Ints, end: Ints) -> tuple[Ints, Ints]:
        return end, np.full_like(end, IN_ORDER)


SENTENCE_OBJECTIVES: dict[str, SentenceObjective] = {
    each.name: each for each in (SentenceOrder(), OfficialOrder(), NextSentence(), NoSentences())
}
"""The values of `objective.sentence`. Other packages add their own here before training."""


def sentence_objective(name: str) -> SentenceObjective:
    """Return the sentence objective of this name; LB-431 if there is none.

    >>> sentence_objective("order").fewest_sentences
    2
    """
    if name not in SENTENCE_OBJECTIVES:
        what, advice = "there is no sentence objective of this name", "litebert config list pretrain"
        raise no_such_name("LB-431", what, name, SENTENCE_OBJECTIVES, next=advice)
    return SENTENCE_OBJECTIVES[name]
