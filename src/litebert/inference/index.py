"""Texts by their nearness to a query: a small index in memory.

For millions of texts, put `vectors` into FAISS or hnswlib: they are float32, normalised, one row a
text, and their inner product is the cosine.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from litebert.errors import LitebertError
from litebert.inference.results import Results


@dataclass(frozen=True)
class Match:
    """A text, its number among those searched, and its cosine with the query."""

    number: int
    text: str
    score: float


@dataclass(frozen=True)
class TextIndex:
    """Texts with their vectors; `embed` is the model that made them."""

    texts: tuple[str, ...]
    vectors: NDArray[np.float32]
    embed: Callable[[Sequence[str]], NDArray[np.float32]]

    def search(self, query: str, *, top: int = 10) -> Results[Match]:
        """Return the nearest texts, best first.

        Raises:
            LitebertError: LB-937, there are no texts.
        """
        if not self.texts:
            raise LitebertError(
                "LB-937",
                "there is nothing to search",
                received="no texts",
                expected="one text or more",
                next='litebert search "a query" texts.txt',
            )
        scores = self.vectors @ self.embed([query])[0]
        best = np.argsort(-scores, kind="stable")[:top]
        return Results(Match(int(n), self.texts[n], float(scores[n])) for n in best)
