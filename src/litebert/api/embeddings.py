"""An embedder with the two methods that LangChain and similar libraries call."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from litebert.config import Precision
from litebert.inference import Model


@dataclass(frozen=True)
class Embeddings:
    """An embedder for LangChain, LlamaIndex and anything else that calls these two methods.

    >>> vector = Embeddings().embed_query("a cat")
    >>> len(vector) == Embeddings().model.network.config.hidden_size
    True
    """

    path: str | Path | None = None
    precision: Precision = "fp32"

    @cached_property
    def model(self) -> Model:
        """The model, loaded when it is first used."""
        return Model.load(self.path, precision=self.precision)

    def embed_documents(self, texts: Sequence[str]) -> list[list[float]]:
        """Return a vector for each text."""
        return [[float(x) for x in vector] for vector in self.model.embed(list(texts))]

    def embed_query(self, text: str) -> list[float]:
        """Return the vector of a query."""
        return self.embed_documents([text])[0]
