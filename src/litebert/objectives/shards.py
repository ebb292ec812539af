"""A corpus as the objectives read it: shards of sentences, and documents numbered across them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from litebert.rng import Ints

Tokens = NDArray[np.uint16 | np.uint32]


class ShardArrays(Protocol):
    """The arrays of one shard; no sentence and no document is empty.

    `tokens` holds all pieces end to end; `sentences` (n + 1,) is where each sentence starts in
    `tokens`, `documents` (m + 1,) where each document starts in `sentences`; the last entry of each
    is the total.
    """

    @property
    def tokens(self) -> Tokens: ...
    @property
    def sentences(self) -> Ints: ...
    @property
    def documents(self) -> Ints: ...
    def require_unchanged(self) -> None: ...


@dataclass(frozen=True)
class PlainShard:
    """One shard as plain arrays, which index faster than memory maps; nothing is copied."""

    tokens: Tokens
    sentences: Ints
    documents: Ints
    shard: ShardArrays | None = None

    def require_unchanged(self) -> None:
        """Raise DamagedError if the files behind the arrays have changed."""
        if self.shard:
            self.shard.require_unchanged()

    def between(self, start: int, stop: int) -> Tokens:
        """Return the tokens of sentences start, start + 1, ... stop - 1.

        Raises:
            DamagedError: The corpus has changed since it was opened.
        """
        self.require_unchanged()
        return self.tokens[self.sentences[start] : self.sentences[stop]].copy()


@dataclass(frozen=True)
class Library:
    """Shards with documents numbered across all of them; shard s starts at `first_document[s]`."""

    texts: tuple[PlainShard, ...]
    first_document: Ints

    @classmethod
    def of(cls, shards: Sequence[ShardArrays]) -> Library:
        """Open shards for reading.

        >>> tokens = np.arange(9, dtype=np.uint16)
        >>> shard = PlainShard(tokens, np.array([0, 4, 9]), np.array([0, 1, 2]))
        >>> Library.of([shard, shard]).num_documents
        4
        """
        texts = [PlainShard(np.asarray(s.tokens), np.asarray(s.sentences), np.asarray(s.documents), s) for s in shards]
        counts = [len(text.documents) - 1 for text in texts]
        return cls(tuple(texts), np.cumsum([0, *counts], dtype=np.int64))

    @property
    def num_documents(self) -> int:
        """The number of documents in all shards."""
        return int(self.first_document[-1])

    def document_of(self, shard: int, sentence: int) -> int:
        """Return the number of the document that contains a sentence of a shard."""
        self.texts[shard].require_unchanged()
        local = np.searchsorted(self.texts[shard].documents, sentence, side="right") - 1
        return int(self.first_document[shard] + local)

    def sentences_of(self, document: int) -> tuple[int, int, int]:
        """Return the shard of a document, its first sentence there and the one after its last."""
        shard = int(np.searchsorted(self.first_document, document, side="right")) - 1
        self.texts[shard].require_unchanged()
        local = document - int(self.first_document[shard])
        first, stop = self.texts[shard].documents[local : local + 2].tolist()
        return shard, first, stop
