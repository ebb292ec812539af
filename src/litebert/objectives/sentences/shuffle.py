"""Sentence shuffling: are the sentences of a chunk in order, or shuffled?"""

from __future__ import annotations

import numpy as np

from litebert.objectives.sentences.base import IN_ORDER, Draws, InOrder, Instance, drawn_middle
from litebert.objectives.shards import Library, Tokens
from litebert.rng import Ints

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
