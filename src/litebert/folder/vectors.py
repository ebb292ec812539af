"""How a text becomes a vector, as one value: pooling, dense layers, normalization,
prompts and similarity.

`litebert.folder.vector_files` reads this value from the files of sentence-transformers,
and writes it to them.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from litebert.config import Pooling
from litebert.device import device_at
from litebert.nn import Batch, pool_rows

Similarity = Literal["cosine", "dot", "euclidean", "manhattan"]

# The activations of a dense layer, by the class of torch that names them.
ACTIVATIONS = {
    "Identity": lambda x: x,
    "Tanh": torch.tanh,
    "ReLU": F.relu,
    "GELU": F.gelu,
    "SiLU": F.silu,
    "Sigmoid": torch.sigmoid,
}


@dataclass(frozen=True)
class DenseLayer:
    """A linear layer on vectors of texts, with an activation."""

    weight: Tensor  # (outputs, inputs)
    bias: Tensor | None  # (outputs,)
    activation: str = "Tanh"

    def __call__(self, vectors: Tensor) -> Tensor:
        """Return the outputs for vectors of shape (texts, inputs)."""
        device = device_at(vectors.device)
        outputs = F.linear(vectors, device.copy(self.weight))
        if self.bias is not None:
            outputs = outputs + device.copy(self.bias)
        activated: Tensor = ACTIVATIONS[self.activation](outputs)
        return activated


@dataclass(frozen=True)
class SentenceVectors:
    """How hidden states become one vector per text; the defaults are those of a plain
    model.
    """

    pooling: Pooling = "mean"
    normalize: bool = False
    # the longest text in pieces; if unset, only the network's positions limit texts
    max_length: int | None = None
    prompts: Mapping[str, str] = field(default_factory=dict)
    default_prompt: str | None = None  # the name of one of them
    pools_prompt: bool = True  # whether its tokens count in the pooling
    dimensions: int | None = None  # only the first ones are kept
    similarity: Similarity = "cosine"
    # after the pooling, before the normalization
    dense: tuple[DenseLayer, ...] = field(default=(), compare=False)

    def prompt(self) -> str:
        """Return the text that is put before every text; "" if there is none."""
        return self.prompts.get(self.default_prompt or "", "")

    def prompt_for(self, role: Literal["query", "document"]) -> str | None:
        """Return the name of the prompt for queries, or for the documents that they
        search, as sentence-transformers chooses it; None if there is none.
        """
        names = ("query",) if role == "query" else ("document", "passage", "corpus")
        return next((name for name in names if name in self.prompts), None)

    def pool(self, states: Tensor, batch: Batch, *, skipped: int = 0) -> Tensor:
        """Return one vector for each sequence of a batch, (sequences, width), before
        normalization.

        `states` are the last hidden states, (tokens, hidden); the first `skipped` tokens
        of every sequence do not count.
        """
        if not skipped:
            return self.project(pool_rows(states, batch, self.pooling))
        text_states, text_batch = _without_prompt(states, batch, skipped)
        return self.project(pool_rows(text_states, text_batch, self.pooling))

    def project(self, pooled: Tensor) -> Tensor:
        """Apply the dense layers to pooled states, (texts, hidden)."""
        vectors = pooled
        for layer in self.dense:
            vectors = layer(vectors)  # (texts, outputs of the layer)
        return vectors

    def width(self, hidden_size: int) -> int:
        """Return the number of dimensions before any are cut off."""
        return self.dense[-1].weight.shape[0] if self.dense else hidden_size

    def length(self, hidden_size: int) -> int:
        """Return the number of dimensions of the vectors."""
        width = self.width(hidden_size)
        return min(self.dimensions or width, width)


def _without_prompt(states: Tensor, batch: Batch, skipped: int) -> tuple[Tensor, Batch]:
    """Return the states of all tokens but the first ones of each sequence, and their
    batch; of a short sequence, the last token is kept.
    """
    # computed on the host, which knows the lengths: a GPU would have to be waited for
    lengths = torch.tensor(batch.lengths)  # (sequences,)
    num_dropped = (lengths - 1).clamp(max=skipped)  # (sequences,)
    sizes = lengths - num_dropped
    is_kept = list[Tensor]()  # (length,) for each sequence
    for length, dropped in zip(batch.lengths, num_dropped.tolist(), strict=True):
        is_kept.append(torch.arange(length) >= dropped)
    device = device_at(states.device)
    rows = device.copy(torch.cat(is_kept).nonzero().flatten())  # of the tokens kept
    offsets = torch.cat([sizes.new_zeros(1), sizes.cumsum(0)])  # (sequences + 1,)
    kept = Batch(
        ids=batch.ids[rows],
        positions=batch.positions[rows],
        segments=batch.segments[rows],
        offsets=device.copy(offsets),
        lengths=tuple(sizes.tolist()),
    )
    return states[rows], kept
