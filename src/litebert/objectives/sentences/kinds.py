"""The sentence objectives: those of the paper, of upstream and of BERT, three others, and none."""

from __future__ import annotations

import numpy as np

from litebert.objectives.sentences.base import (
    ALONE,
    IN_ORDER,
    RANDOM_SECOND,
    SWAPPED,
    Draws,
    InOrder,
    Instance,
    drawn_middle,
)
from litebert.objectives.shards import Library, Tokens
from litebert.rng import Ints


class OfficialOrder(InOrder):
    """Sentence order as upstream draws it: a chunk of one sentence gets a random B and label 1.

    Thus the length of a chunk gives away some labels (create_pretraining_data.py L314-337).
    """

    name = "order-official"

    def divide(self, draws: Draws, start: Ints, end: Ints) -> tuple[Ints, Ints]:
        """Swap half of the chunks; a chunk of one sentence gets a random B instead."""
        kind = np.where(draws.uniform("kind", start) < 0.5, SWAPPED, IN_ORDER)
        return drawn_middle(draws, start, end), np.where(end - start == 1, RANDOM_SECOND, kind)


class SentenceOrder(OfficialOrder):
    """Sentence order as the paper says: chunks of two sentences or more, swapped or not.

    A document of a single sentence has no order: it is one segment, for masked LM alone.
    """

    name = "order"
    fewest_sentences = 2
    keeps_single_sentences = True

    def divide(self, draws: Draws, start: Ints, end: Ints) -> tuple[Ints, Ints]:
        """Swap half of the chunks."""
        middle, kind = super().divide(draws, start, end)
        return middle, np.where(end - start == 1, ALONE, kind)


class NextSentence(InOrder):
    """Next sentence (BERT, 3.1): half of the chunks get a random second segment, as upstream."""

    name = "next"

    def divide(self, draws: Draws, start: Ints, end: Ints) -> tuple[Ints, Ints]:
        """Take a random B for half of the chunks, and for every chunk of one sentence."""
        is_random = (draws.uniform("kind", start) < 0.5) | (end - start == 1)
        return drawn_middle(draws, start, end), np.where(is_random, RANDOM_SECOND, IN_ORDER)

    def following(self, draws: Draws, start: Ints, end: Ints) -> Ints:
        """Start the next chunk with the sentences that a random B replaced (L314-337)."""
        middle, kind = self.divide(draws, start, end)
        return np.where(kind == RANDOM_SECOND, middle, end)


class NoSentences(InOrder):
    """The whole chunk is one segment, and the sentence head is not trained."""

    name = "none"
    has_labels = False

    def divide(self, _draws: Draws, _start: Ints, end: Ints) -> tuple[Ints, Ints]:
        """Give the whole chunk to the first segment."""
        return end, np.full_like(end, IN_ORDER)


class HalvesApart(InOrder):
    """Both halves of a chunk are separate sequences; each must find the other by its vector.

    The negatives are the halves of all other chunks of the step (as in the inverse cloze task,
    arXiv 1906.00300): nearly all come from other documents.
    """

    name = "contrast"
    fewest_sentences = 2
    is_contrast = True


class SameDocument(NextSentence):
    """Whether two segments are from one document; if so, a sentence between them is left out.

    The gap removes the coherence of the pair and keeps its topic: the objective is a contrast of
    documents, with one negative per pair.
    """

    name = "document"
    fewest_sentences = 3

    def divide(self, draws: Draws, start: Ints, end: Ints) -> tuple[Ints, Ints]:
        """Give B at least two sentences, of which the first is left out."""
        middle = start + draws.integers("middle", 1, np.maximum(end - start - 2, 1), start)
        is_random = draws.uniform("kind", start) < 0.5
        return middle, np.where(is_random, RANDOM_SECOND, IN_ORDER)

    def segments(self, library: Library, instance: Instance, generator: np.random.Generator) -> tuple[Tokens, Tokens]:
        """Return A, and B after the gap or from another document."""
        if instance.kind == RANDOM_SECOND:
            return super().segments(library, instance, generator)
        text = library.texts[instance.shard]
        first = text.between(instance.start, instance.middle)
        return first, text.between(instance.middle + 1, instance.end)


SHUFFLED = 3
"""The kind of an instance whose sentences, three or more, are in another, random order."""


class Shuffle(InOrder):
    """Half of the chunks have all their sentences shuffled, within and across both segments."""

    name = "shuffle"
    fewest_sentences = 3

    def divide(self, draws: Draws, start: Ints, end: Ints) -> tuple[Ints, Ints]:
        """Shuffle half of the chunks."""
        kind = np.where(draws.uniform("kind", start) < 0.5, SHUFFLED, IN_ORDER)
        return drawn_middle(draws, start, end), kind

    def segments(self, library: Library, instance: Instance, generator: np.random.Generator) -> tuple[Tokens, Tokens]:
        """Return A and B, each with as many sentences as if they were in order."""
        if instance.kind != SHUFFLED:
            return super().segments(library, instance, generator)
        text = library.texts[instance.shard]
        order = generator.permutation(instance.end - instance.start)
        if (np.diff(order) > 0).all():
            order = np.roll(order, 1)  # the one order that would contradict the label
        sentences = [text.between(s, s + 1) for s in (instance.start + order).tolist()]
        in_first = instance.middle - instance.start
        return np.concatenate(sentences[:in_first]), np.concatenate(sentences[in_first:])
