"""What a sentence objective is: how a chunk becomes two segments, and what label they have."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from litebert import rng
from litebert.objectives.shards import Library, Tokens
from litebert.rng import IntLike, Ints

IN_ORDER, SWAPPED, RANDOM_SECOND, ALONE = 0, 1, 2, 4
"""Kinds of instance: A, then B; B, then A; B is from another document; no B (labels 0, 1, 1, -1)."""

NO_LABEL = -1
"""The label of a sequence that the sentence head neither learns from nor is measured on."""

TRIES_FOR_ANOTHER_DOCUMENT = 10
"""How often another document is drawn before the instance's own is accepted (L314-337)."""


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
    """Random numbers for the sentences of one shard in one epoch, a function of the sentence."""

    seed: int
    purpose: str
    epoch: int
    shard: int

    def uniform(self, what: str, sentence: Ints) -> NDArray[np.float64]:
        """Return a number in [0, 1) for each sentence."""
        return rng.uniform(self.seed, f"{self.purpose}-{what}", self.epoch, self.shard, sentence)

    def integers(self, what: str, low: IntLike, high: IntLike, sentence: Ints) -> Ints:
        """Return an integer in [low, high] for each sentence."""
        purpose = f"{self.purpose}-{what}"
        return rng.integers(self.seed, purpose, low, high, self.epoch, self.shard, sentence)


class SentenceObjective(Protocol):
    """How chunks of sentences are cut into segments that the sentence head tells apart.

    A chunk is the sentences start, ... end - 1 of one document. All methods but `segments` work on
    arrays with one entry per chunk; every random number comes from `draws` or `generator`.
    """

    @property
    def name(self) -> str:
        """Its name in `objective.sentence`."""

    @property
    def fewest_sentences(self) -> int:
        """The fewest sentences that a chunk may have; shorter documents are skipped."""

    @property
    def keeps_single_sentences(self) -> bool:
        """Whether a document of one sentence, below `fewest_sentences`, is a sequence without a label."""

    @property
    def has_labels(self) -> bool:
        """Whether there are two segments and a label 0 or 1 for the sentence head."""

    @property
    def is_contrast(self) -> bool:
        """Whether the segments are two sequences, each to find the other within its batch."""

    def divide(self, draws: Draws, start: Ints, end: Ints) -> tuple[Ints, Ints]:
        """Return where the second segment starts, and the kind of each instance."""

    def following(self, draws: Draws, start: Ints, end: Ints) -> Ints:
        """Return where the next chunks start."""

    def segments(self, library: Library, instance: Instance, generator: np.random.Generator) -> tuple[Tokens, Tokens]:
        """Return the tokens of both segments, uncut."""

    def label(self, kind: int) -> int:
        """Return the label that the sentence head should predict."""


class InOrder:
    """Two neighbouring segments of random lengths, in order: what every objective starts from."""

    name = "in-order"
    fewest_sentences = 1
    keeps_single_sentences = False
    has_labels = True
    is_contrast = False

    def divide(self, draws: Draws, start: Ints, end: Ints) -> tuple[Ints, Ints]:
        """Draw where A ends; every instance is in order."""
        return drawn_middle(draws, start, end), np.full_like(end, IN_ORDER)

    def following(self, _draws: Draws, _start: Ints, end: Ints) -> Ints:
        """Return the ends: no sentence is used twice."""
        return end

    def segments(self, library: Library, instance: Instance, generator: np.random.Generator) -> tuple[Tokens, Tokens]:
        """Return A and B as `kind` says."""
        text = library.texts[instance.shard]
        first = text.between(instance.start, instance.middle)
        if instance.kind == RANDOM_SECOND:
            return first, random_text(library, instance, instance.target - first.size, generator)
        second = text.between(instance.middle, instance.end)
        return (second, first) if instance.kind == SWAPPED else (first, second)

    def label(self, kind: int) -> int:
        """Return 0 for segments in order, 1 for all others, and no label where there is one segment."""
        return NO_LABEL if kind == ALONE else int(kind != IN_ORDER)


def drawn_middle(draws: Draws, start: Ints, end: Ints) -> Ints:
    """Draw where A ends: at least one sentence after the start and, if possible, before the end."""
    return start + draws.integers("middle", 1, np.maximum(end - start - 1, 1), start)


def random_text(library: Library, instance: Instance, target: int, generator: np.random.Generator) -> Tokens:
    """Return `target` tokens or more of another document, from a random sentence on."""
    own = library.document_of(instance.shard, instance.start)
    draws = generator.random(TRIES_FOR_ANOTHER_DOCUMENT + 1)
    drawn = (draws[:-1] * library.num_documents).astype(np.int64).tolist()
    other = next((document for document in drawn if document != own), own)
    shard, first, stop = library.sentences_of(other)
    start = first + int(draws[-1] * (stop - first))
    sentences = library.texts[shard].sentences
    reached = int(np.searchsorted(sentences, sentences[start] + target))
    return library.texts[shard].between(start, min(max(reached, start + 1), stop))
