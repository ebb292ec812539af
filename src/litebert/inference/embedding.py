"""Texts as vectors, from any model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from litebert.inference.pretrained import framed
from litebert.nn import Batch, Network
from litebert.tasks.finetuning import by_length
from litebert.tokenizer import Tokenizer

Pooling: TypeAlias = Literal["mean", "cls"]


@torch.inference_mode()
def embed(
    network: Network, tokenizer: Tokenizer, texts: Sequence[str], *, pooling: Pooling
) -> NDArray[np.float32]:
    """Return one vector of size H for each text: the mean of its tokens, or its [CLS]."""
    encoded = tokenizer.encode_ids(texts)
    vectors = np.zeros((len(encoded), network.config.hidden_size), dtype=np.float32)
    for rows in by_length([len(ids) + 2 for ids in encoded]):
        batch = framed(network, tokenizer, [encoded[row] for row in rows])
        read = None if pooling == "mean" else batch.first_tokens
        hidden = network.albert(batch, read).float()
        pooled = _means(hidden, batch) if pooling == "mean" else hidden
        vectors[rows] = pooled.cpu().numpy()
    return vectors


def _means(hidden: Tensor, batch: Batch) -> Tensor:
    sums = hidden.new_zeros(len(batch.lengths), hidden.shape[1])
    owner = torch.arange(len(batch.lengths), device=hidden.device).repeat_interleave(
        batch.offsets.diff()
    )
    return sums.index_add_(0, owner, hidden) / batch.offsets.diff().unsqueeze(1)
