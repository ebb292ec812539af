"""The sentence objectives: those of the paper, of upstream and of BERT, three others, and none."""

from __future__ import annotations

import numpy as np

from litebert.objectives.sentences.base import (
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
    """Sentence order as upstream draws it: a single sentence gets a random document and label 1.

    So the length of a chunk gives some labels away (create_pretraining_data.py L314-337).
    """

    name = "order-official"

    def divide(self, draws: Draws, start: Ints, end: Ints) -> tuple[Ints, Ints]:
        """Swap every second chunk; a chunk of one sentence has no neighbour to be swapped with."""
        kind = np.where(draws.uniform("kind", start) < 0.5, SWAPPED, IN_ORDER)
        return drawn_middle(draws, start, end), np.where(end - start == 1, RANDOM_SECOND, kind)


class SentenceOrder(OfficialOrder):
    """Sentence order as the paper says: chunks of two sentences or more, swapped or not."""

    name = "order"
    fewest_sentences = 2


class NextSentence(InOrder):
    """Next sentence (BERT, 3.1): half of the chunks get a random second segment, as upstream."""

    name = "next"

    def divide(self, draws: Draws, start: Ints, end: Ints) -> tuple[Ints, Ints]:
        """Take a random B for every second chunk, and for each of a single sentence."""
        is_random = (draws.uniform("kind", start) < 0.5) | (end - start == 1)
        return drawn_middle(draws, start, end), np.where(is_random, RANDOM_SECOND, IN_ORDER)

    def following(self, draws: Draws, start: Ints, end: Ints) -> Ints:
        """Start the next chunk with what a random B displaced (L314-337)."""
        middle, kind = self.divide(draws, start, end)
        return np.where(kind == RANDOM_SECOND, middle, end)


class NoSentences(InOrder):
    """The whole chunk is one segment, and the sentence head is not trained."""

    name = "none"
    has_labels = False

    def divide(self, _draws: Draws, _start: Ints, end: Ints) -> tuple[Ints, Ints]:
        """Leave nothing to a second segment."""
        return end, np.full_like(end, IN_ORDER)


class HalvesApart(InOrder):
    """Both halves of a chunk are sequences of their own; each is to find the other by its vector.

    The wrong answers are the halves of all other chunks of the step (as inverse cloze tasks draw
    them, arXiv 1906.00300), so a step has many pairs of two documents and few neighbours.
    """

    name = "contrast"
    fewest_sentences = 2
    is_contrast = True


class SameDocument(NextSentence):
    """Pairs of one document beside pairs of two; a sentence is missing between the former.

    The missing sentence takes the coherence out of the pair and leaves its subject: a contrast of
    documents, as contrastive objectives draw it, with one other document a pair.
    """

    name = "document"
    fewest_sentences = 3

    def divide(self, draws: Draws, start: Ints, end: Ints) -> tuple[Ints, Ints]:
        """Leave at least two sentences to B, of which the first is dropped."""
        middle = start + draws.integers("middle", 1, np.maximum(end - start - 2, 1), start)
        is_random = draws.uniform("kind", start) < 0.5
        return middle, np.where(is_random, RANDOM_SECOND, IN_ORDER)

    def segments(
        self, library: Library, instance: Instance, generator: np.random.Generator
    ) -> tuple[Tokens, Tokens]:
        """Return A, and B after the gap or from another document."""
        if instance.kind == RANDOM_SECOND:
            return super().segments(library, instance, generator)
        text = library.texts[instance.shard]
        first = text.between(instance.start, instance.middle)
        return first, text.between(instance.middle + 1, instance.end)


SHUFFLED = 3
"""Kind of an instance whose sentences, three or more, stand in a random other order."""


class Shuffle(InOrder):
    """Half of the chunks have all their sentences shuffled, within and across both segments."""

    name = "shuffle"
    fewest_sentences = 3

    def divide(self, draws: Draws, start: Ints, end: Ints) -> tuple[Ints, Ints]:
        """Shuffle every second chunk."""
        kind = np.where(draws.uniform("kind", start) < 0.5, SHUFFLED, IN_ORDER)
        return drawn_middle(draws, start, end), kind

    def segments(
        self, library: Library, instance: Instance, generator: np.random.Generator
    ) -> tuple[Tokens, Tokens]:
        """Return A and B with as many sentences as in order."""
        if instance.kind != SHUFFLED:
            return super().segments(library, instance, generator)
        text = library.texts[instance.shard]
        order = generator.permutation(instance.end - instance.start)
        if (np.diff(order) > 0).all():
            order = np.roll(order, 1)  # the one order that would contradict the label
        sentences = [text.between(s, s + 1) for s in (instance.start + order).tolist()]
        in_first = instance.middle - instance.start
        return np.concatenate(sentences[:in_first]), np.concatenate(sentences[in_first:])
