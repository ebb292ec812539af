"""No sentence objective: one segment, masked LM alone."""

from __future__ import annotations

import numpy as np

from litebert.objectives.sentences.base import IN_ORDER, Draws, InOrder
from litebert.rng import Ints


class NoSentences(InOrder):
    """The whole chunk is one segment, and the sentence head is not trained."""

    name = "none"
    has_labels = False

    def divide(self, _draws: Draws, _start: Ints, end: Ints) -> tuple[Ints, Ints]:
        """Leave nothing to a second segment."""
        return end, np.full_like(end, IN_ORDER)
