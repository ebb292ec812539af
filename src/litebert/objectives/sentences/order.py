"""Sentence order (paper 3.1): are two neighbouring segments in order, or swapped?"""

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
