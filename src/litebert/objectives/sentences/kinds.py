"""The sentence objectives of the paper, of upstream, of BERT, and none."""

from __future__ import annotations

import numpy as np

from litebert.objectives.sentences.base import (
    IN_ORDER,
    RANDOM_SECOND,
    SWAPPED,
    Draws,
    InOrder,
    drawn_middle,
)
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


class Order(OfficialOrder):
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
