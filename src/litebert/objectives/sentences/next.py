"""Next sentence (BERT, 3.1): does B follow A, or is it from another document?"""

from __future__ import annotations

import numpy as np

from litebert.objectives.sentences.base import (
    IN_ORDER,
    RANDOM_SECOND,
    Draws,
    InOrder,
    drawn_middle,
)
from litebert.rng import Ints


class NextSentence(InOrder):
    """Half of the chunks lose their second segment to a random one, as upstream draws it."""

    name = "next"

    def divide(self, draws: Draws, start: Ints, end: Ints) -> tuple[Ints, Ints]:
        """Take a random B for every second chunk, and for each of a single sentence."""
        is_random = (draws.uniform("kind", start) < 0.5) | (end - start == 1)
        return drawn_middle(draws, start, end), np.where(is_random, RANDOM_SECOND, IN_ORDER)

    def following(self, draws: Draws, start: Ints, end: Ints) -> Ints:
        """Start the next chunk with what a random B displaced (L314-337)."""
        middle, kind = self.divide(draws, start, end)
        return np.where(kind == RANDOM_SECOND, middle, end)
