"""Sentence objectives: how sentences of a document are paired, and what the sentence
head should predict of a pair.

Line numbers refer to the official create_pretraining_data.py, L266-386 (paper, 3.1).

A chunk is a run of consecutive sentences of one document. A sentence objective cuts it
into segments A and B, and defines the label. To add one, see
docs/extending/objective.md.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from litebert import rng
from litebert.corpus.shards import Shard, Tokens
from litebert.plugins import SENTENCE_OBJECTIVES
from litebert.rng import IntLike, Ints

IN_ORDER = 0
SWAPPED = 1
RANDOM_SECOND = 2
ALONE = 4
"""Kinds of instance: A, then B; B, then A; B is from another document; no B (labels 0,
1, 1, NO_LABEL).
"""

# the label of a sequence that the sentence head neither learns from nor is measured on
NO_LABEL = -1

# how often another document is drawn before the instance's own is accepted (L314-337)
TRIES_FOR_ANOTHER_DOCUMENT = 10


class Library:
    """Shards with documents numbered across all of them; those of shard s start at
    `first_document[s]`.
    """

    def __init__(self, shards: Sequence[Shard]) -> None:
        self.shards = tuple(shards)
        # `documents` has the start of each document, and the end of the last.
        num_documents = [len(shard.documents) - 1 for shard in shards]
        self.first_document = np.cumsum([0, *num_documents])  # (shards + 1,)
        self.num_documents = int(self.first_document[-1])


class Instance(NamedTuple):
    """An instance, as sentences of a shard: A is start to middle; B is middle to end,
    or as `kind` says.
    """

    shard: int
    start: int
    middle: int
    end: int
    kind: int
    target: int  # how many tokens it should have


@dataclass(frozen=True)
class Draws:
    """Random numbers for the sentences of one shard in one epoch, each a function of
    its sentence.
    """

    seed: int
    purpose: str
    epoch: int
    shard: int

    def uniform(self, what: str, sentence: Ints) -> NDArray[np.float64]:  # in [0, 1)
        return rng.uniform(
            self.seed, f"{self.purpose}-{what}", self.epoch, self.shard, sentence
        )

    # in [low, high]
    def integers(self, what: str, low: IntLike, high: IntLike, sentence: Ints) -> Ints:
        return rng.integers(
            self.seed,
            f"{self.purpose}-{what}",
            low,
            high,
            self.epoch,
            self.shard,
            sentence,
        )


class SentenceObjective:
    """Two neighboring segments of random lengths, in order; each objective overrides
    what differs.

    `divide` and `following` work on arrays with one entry per chunk, that is, the
    sentences start, ... end - 1 of one document. Every random number comes from `draws`
    (by sentence) or `generator` (by sample).
    """

    # the fewest sentences that a chunk may have; shorter documents are skipped
    fewest_sentences = 1
    # whether documents of one sentence are kept anyway, as sequences without a label
    keeps_single_sentences = False
    # whether there are two segments and a label for the sentence head
    has_labels = True

    def divide(self, draws: Draws, start: Ints, end: Ints) -> tuple[Ints, Ints]:
        """Return where B starts, and the kind of each instance; A has a sentence and,
        if possible, so does B.
        """
        # A takes at least one sentence and leaves one; a chunk of one sentence is all A.
        most = np.maximum(end - start - 1, 1)  # (chunks,), sentences of A
        middle = start + draws.integers("middle", 1, most, start)
        return middle, np.full_like(end, IN_ORDER)

    def following(self, _draws: Draws, _start: Ints, end: Ints) -> Ints:
        """Return where the next chunks start: after these."""
        return end

    def segments(
        self, library: Library, instance: Instance, generator: np.random.Generator
    ) -> tuple[Tokens, Tokens]:
        """Return the tokens of A and B, as `kind` defines them, before truncation."""
        shard = library.shards[instance.shard]
        first = shard.between(instance.start, instance.middle)
        if instance.kind != RANDOM_SECOND:
            second = shard.between(instance.middle, instance.end)
            if instance.kind == SWAPPED:
                return second, first
            return first, second
        missing = instance.target - first.size  # tokens
        return first, _random_second(library, instance, missing, generator)

    def label(self, kind: int) -> int:
        """Return 0 for segments in order, 1 for all others, and NO_LABEL if there is
        only one segment.
        """
        if kind == ALONE:
            return NO_LABEL
        return int(kind != IN_ORDER)


def _random_second(
    library: Library, instance: Instance, missing: int, generator: np.random.Generator
) -> Tokens:
    """Return whole sentences of another document, from a random one on, until they have
    `missing` tokens or the document ends (L314-337).
    """
    # the last draw is for the sentence, the others are for the document
    draws = generator.random(TRIES_FOR_ANOTHER_DOCUMENT + 1)
    drawn = (draws[:-1] * library.num_documents).astype(np.int64).tolist()
    # Numbers of documents count across all shards, places within one.
    shard = library.shards[instance.shard]
    place = int(np.searchsorted(shard.documents, instance.start, side="right")) - 1
    document_of_instance = int(library.first_document[instance.shard]) + place
    # the instance's own document if each try met it, as upstream
    other = document_of_instance
    for document in drawn:
        if document != document_of_instance:
            other = document
            break

    number = int(np.searchsorted(library.first_document, other, side="right")) - 1
    other_shard = library.shards[number]
    other_shard.require_unchanged()
    other_place = other - int(library.first_document[number])
    # the sentences of that document, from `begin` to before `end`
    begin, end = other_shard.documents[other_place : other_place + 2].tolist()
    start = begin + int(draws[-1] * (end - begin))
    # `sentences` has the first token of each: the first sentence that starts after
    # enough tokens is no longer needed. At least one sentence is taken.
    sentences = other_shard.sentences
    enough = int(np.searchsorted(sentences, sentences[start] + missing))
    stop = min(max(enough, start + 1), end)
    return other_shard.between(start, stop)


class OfficialOrder(SentenceObjective):
    """Sentence order as upstream draws it: a chunk of one sentence gets a random B and
    label 1.

    Thus the length of a chunk gives away some labels (create_pretraining_data.py
    L314-337).
    """

    def divide(self, draws: Draws, start: Ints, end: Ints) -> tuple[Ints, Ints]:
        middle, _ = super().divide(draws, start, end)
        # (chunks,): half of them are swapped
        kind = np.where(draws.uniform("kind", start) < 0.5, SWAPPED, IN_ORDER)
        return middle, np.where(end - start == 1, RANDOM_SECOND, kind)


class SentenceOrder(OfficialOrder):
    """Sentence order as in the paper: chunks of two sentences or more, swapped or not.

    A document of a single sentence has no order: it is one segment, for masked LM only.
    """

    fewest_sentences = 2
    # They would be lost for masked LM otherwise.
    keeps_single_sentences = True

    def divide(self, draws: Draws, start: Ints, end: Ints) -> tuple[Ints, Ints]:
        middle, kind = super().divide(draws, start, end)
        return middle, np.where(end - start == 1, ALONE, kind)


class NextSentence(SentenceObjective):
    """Next sentence (BERT, 3.1): half of the chunks get a random second segment, as
    upstream.
    """

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

    has_labels = False

    def divide(self, _draws: Draws, _start: Ints, end: Ints) -> tuple[Ints, Ints]:
        return end, np.full_like(end, IN_ORDER)


SENTENCE_OBJECTIVES.add("order", SentenceOrder())
SENTENCE_OBJECTIVES.add("order-official", OfficialOrder())
SENTENCE_OBJECTIVES.add("next", NextSentence())
SENTENCE_OBJECTIVES.add("none", NoSentences())


def sentence_objective(name: str) -> SentenceObjective:
    """Return the sentence objective of this name."""
    objective: SentenceObjective = SENTENCE_OBJECTIVES[name]
    return objective
