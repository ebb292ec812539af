"""A classifier on text vectors, for models that were trained to give such vectors."""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from litebert.config import AlbertConfig, HeadConfig
from litebert.nn import Batch


class VectorHead(nn.Module):
    """One linear layer on the vector of a text or, for a pair, also on how its vectors differ.

    A model of text vectors learns the mean of the tokens; its [CLS] says little, and it has no
    pooler. For a pair, the layer also reads |a - b| and a * b (Reimers & Gurevych 2019), where a
    and b are the means over each text, scaled to unit variance. For a single text both are zero.
    """

    def __init__(self, config: AlbertConfig, head: HeadConfig) -> None:
        super().__init__()
        self.dense = nn.Linear(3 * config.hidden_size, head.num_outputs)
        self.dropout_prob = config.classifier_dropout_prob

    def forward(self, hidden: Float[Tensor, "tokens hidden"], batch: Batch) -> Float[Tensor, "sequences outputs"]:
        """Return the logits of each sequence."""
        return self.logits(self.rows(hidden, batch))

    def rows(self, hidden: Float[Tensor, "tokens hidden"], batch: Batch) -> Float[Tensor, "sequences three_hidden"]:
        """Return the input of the linear layer for each sequence."""
        num_texts, sizes = len(batch.lengths), batch.offsets.diff()
        text = torch.arange(num_texts, device=hidden.device).repeat_interleave(sizes)
        place = 2 * text + batch.segments.clamp(max=1)
        sums = hidden.new_zeros(2 * num_texts, hidden.shape[1]).index_add(0, place, hidden)
        first, second = sums.view(num_texts, 2, -1).unbind(1)
        has_token = batch.segments.new_zeros(2 * num_texts).index_fill(0, place, 1)
        return vector_rows(first, second, has_token[1::2, None])

    def logits(self, rows: Float[Tensor, "sequences three_hidden"]) -> Tensor:
        """Return the logits of what `rows` returned."""
        logits: Tensor = self.dense(F.dropout(rows, self.dropout_prob, self.training))
        return logits


def vector_rows(
    first: Float[Tensor, "sequences hidden"],
    second: Float[Tensor, "sequences hidden"],
    is_pair: Int[Tensor, "sequences 1"],
) -> Float[Tensor, "sequences three_hidden"]:
    """Return the input of a VectorHead's layer, given the sums over the tokens of both texts.

    The layer norm of a sum is that of the mean.
    """
    a, b, both = (F.layer_norm(x, x.shape[-1:]) for x in (first, second, first + second))
    return torch.cat([both, (a - b).abs() * is_pair, a * b * is_pair], -1)
