"""Texts as vectors, from any model."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from litebert.folder import Pooling, SentenceVectors
from litebert.inference.pretrained import framed
from litebert.nn import Batch, Network
from litebert.tasks.finetuning import by_length
from litebert.tokenizer import Tokenizer


@torch.inference_mode()
def embed(
    network: Network, tokenizer: Tokenizer, texts: Sequence[str], *, vectors: SentenceVectors
) -> NDArray[np.float32]:
    """Return one vector of size H for each text."""
    encoded = tokenizer.encode_ids([vectors.prompt + text for text in texts])
    longest = vectors.max_length
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
    lengths = batch.offsets.diff()
    if pooling == "max":
        return torch.segment_reduce(hidden, "max", lengths=lengths)
    owner = torch.arange(len(lengths), device=hidden.device).repeat_interleave(lengths)
    sums = hidden.new_zeros(len(lengths), hidden.shape[1]).index_add_(0, owner, hidden)
    return sums / lengths.unsqueeze(1)
