"""Turn texts into vectors, with any model, and search them in memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from litebert.answers import Match, Results
from litebert.errors import LitebertError
from litebert.fast.moving import mean_by_sequence
from litebert.folder import Pooling, SentenceVectors
from litebert.inference.pretrained import framed
from litebert.nn import Batch, Network
from litebert.tasks.finetuning import by_length
from litebert.tokenizer import Tokenizer


@torch.inference_mode()
def embed(
    network: Network, tokenizer: Tokenizer, texts: Sequence[str], *, vectors: SentenceVectors
) -> NDArray[np.float32]:
    """Return the vectors of texts, shape (texts, H); texts longer than the model are cut."""
    longest, positions = vectors.max_length, network.config.max_position_embeddings
    encoded = tokenizer.encode_ids([tokenizer.beginning(vectors.prompt + text, positions) for text in texts])
    found = np.zeros((len(encoded), network.config.hidden_size), dtype=np.float32)
    for rows in by_length([len(ids) + 2 for ids in encoded]):
        batch = framed(network, tokenizer, [encoded[row] for row in rows], longest=longest)
        read = batch.first_tokens if vectors.pooling == "cls" else None
        pooled = pooled_rows(network.albert(batch, read).float(), batch, vectors.pooling)
        if vectors.normalize:
            pooled = F.normalize(pooled)
        found[rows] = pooled.cpu().numpy()
    return found


def pooled_rows(hidden: Tensor, batch: Batch, pooling: Pooling) -> Tensor:
    """Reduce the rows of each sequence to one; for `cls` there is only one."""
    if pooling == "cls":
        return hidden
    if pooling == "max":
        return torch.segment_reduce(hidden, "max", lengths=batch.offsets.diff())
    return mean_by_sequence(hidden, batch)


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
