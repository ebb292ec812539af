"""Same document: do two segments that are no neighbours come from one document?"""

from __future__ import annotations

import numpy as np

from litebert.objectives.sentences.base import (
    IN_ORDER,
    RANDOM_SECOND,
    Draws,
    Instance,
)
from litebert.objectives.sentences.kinds import NextSentence
from litebert.objectives.shards import Library, Tokens
from litebert.rng import Ints


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
