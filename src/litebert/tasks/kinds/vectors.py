"""A classifier on the vectors of texts, for models that were taught such vectors."""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from litebert.config import AlbertConfig, HeadConfig
from litebert.nn import Batch


class VectorHead(nn.Module):
    """One linear layer on the vector of a text, and on how the vectors of a pair differ.

    Models of text vectors are taught the mean of the tokens: their [CLS] holds little, and they
    have no pooler. Of a pair the layer reads |a - b| and a * b, too (Reimers & Gurevych 2019),
    where a and b are the means of unit variance; of one text these are zero.
    """

    def __init__(self, config: AlbertConfig, head: HeadConfig) -> None:
        super().__init__()
        self.dense = nn.Linear(3 * config.hidden_size, head.num_outputs)
        self.dropout_prob = config.classifier_dropout_prob

    def forward(
        self, hidden: Float[Tensor, "tokens hidden"], batch: Batch
    ) -> Float[Tensor, "sequences outputs"]:
        """Return the logits of each sequence."""
        return self.logits(self.rows(hidden, batch))

    def rows(
        self, hidden: Float[Tensor, "tokens hidden"], batch: Batch
    ) -> Float[Tensor, "sequences three_hidden"]:
        """Return what the linear layer reads of each sequence."""
        num_texts, sizes = len(batch.lengths), batch.offsets.diff()
        text = torch.arange(num_texts, device=hidden.device).repeat_interleave(sizes)
        place = 2 * text + batch.segments.clamp(max=1)
        sums = hidden.new_zeros(2 * num_texts, hidden.shape[1]).index_add(0, place, hidden)
        first, second = sums.view(num_texts, 2, -1).unbind(1)
        has_token = batch.segments.new_zeros(2 * num_texts).index_fill(0, place, 1)
        return vector_rows(first, second, has_token[1::2, None])

    def logits(self, rows: Float[Tensor, "sequences three_hidden"]) -> Tensor:
        """Return the logits of rows."""
        logits: Tensor = self.dense(F.dropout(rows, self.dropout_prob, self.training))
        return logits


def vector_rows(
    first: Float[Tensor, "sequences hidden"],
    second: Float[Tensor, "sequences hidden"],
    is_pair: Int[Tensor, "sequences 1"],
) -> Float[Tensor, "sequences three_hidden"]:
    """Return what a VectorHead reads of the sums over the tokens of both texts.

    Layer norm gives the same of a sum and of a mean.
    """
    a, b, both = (F.layer_norm(x, x.shape[-1:]) for x in (first, second, first + second))
    return torch.cat([both, (a - b).abs() * is_pair, a * b * is_pair], -1)
