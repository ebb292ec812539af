"""The heads that read vectors of texts: of a text or a pair in one sequence, or of two
texts that are read apart.
"""

from typing import ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from litebert.config import AlbertConfig, HeadConfig
from litebert.nn import Batch, LinearHead, TaskHead, pool_rows, sequence_of
from litebert.plugins import TASK_HEADS


class VectorHead(nn.Module):
    """One linear layer on the vector of a text or, for a pair, also on how its two
    vectors differ.

    A model of text vectors learns the mean of the tokens; its [CLS] means little, and
    it has no pooler. For a pair, the layer also reads |a - b| and a * b (Reimers &
    Gurevych 2019), where a and b are the means over each text, scaled to unit variance.
    For a single text both features are zero.
    """

    num_parts: ClassVar[int] = 3  # of what the layer reads, each as wide as a vector

    def __init__(self, config: AlbertConfig, head: HeadConfig) -> None:
        super().__init__()
        self.dense = nn.Linear(self.num_parts * config.hidden_size, head.num_outputs)
        self.dropout_prob = config.classifier_dropout_prob

    def forward(
        self, hidden: Float[Tensor, "tokens hidden"], batch: Batch
    ) -> Float[Tensor, "rows outputs"]:
        """Return the logits of each text or pair."""
        rows = self.rows(hidden, batch)
        logits: Tensor = self.dense(F.dropout(rows, self.dropout_prob, self.training))
        return logits

    def rows(
        self, hidden: Float[Tensor, "tokens hidden"], batch: Batch
    ) -> Float[Tensor, "rows width"]:
        """Return what the layer reads of each text or pair."""
        num_halves = 2 * len(batch.lengths)  # a sequence has two, for two texts
        # which half each token is in, (tokens,)
        half = 2 * sequence_of(batch) + batch.segments.clamp(max=1)
        zeros = hidden.new_zeros(num_halves, hidden.shape[1])
        sums = zeros.index_add(0, half, hidden)  # (halves, hidden)
        has_token = batch.segments.new_zeros(num_halves).index_fill(0, half, 1)
        is_pair = has_token[1::2, None]  # (sequences, 1)
        return vector_rows(sums[0::2], sums[1::2], is_pair)


def vector_rows(
    first: Float[Tensor, "sequences hidden"],
    second: Float[Tensor, "sequences hidden"],
    is_pair: Int[Tensor, "sequences 1"],
) -> Float[Tensor, "sequences three_hidden"]:
    """Return the input of a VectorHead's layer, from the sums over the tokens of both
    texts: a layer norm makes the same of a sum as of a mean.
    """
    width = first.shape[-1:]
    u = F.layer_norm(first, width)
    v = F.layer_norm(second, width)
    whole = F.layer_norm(first + second, width)
    # without a second text, the last two parts are 0
    distance = (u - v).abs() * is_pair
    product = u * v * is_pair
    return torch.cat([whole, distance, product], -1)


class PairHead(VectorHead):
    """One linear layer on the vectors u, v of two texts that are read alone, and on
    |u - v| and u * v (Reimers & Gurevych 2019).

    A model of text vectors was trained on single texts: of those it knows more than of
    two texts in one sequence. Sequences 2i and 2i + 1 are pair i.
    """

    num_parts: ClassVar[int] = 4

    def rows(
        self, hidden: Float[Tensor, "tokens hidden"], batch: Batch
    ) -> Float[Tensor, "rows width"]:
        means = pool_rows(hidden, batch, "mean")
        # (sequences, hidden), to unit variance
        vectors = F.layer_norm(means, means.shape[-1:])
        u = vectors[0::2]
        v = vectors[1::2]
        return torch.cat([u, v, (u - v).abs(), u * v], dim=-1)


# ---- the records ---------------------------------------------------------------------

CLASSIFIER = "output_weights"  # of official checkpoints
TASK_HEADS.add(
    "sequence-classification",
    TaskHead(
        make=LinearHead,
        reads="pooled",
        has_labels=True,
        purpose="classifies texts or pairs of texts",
        pipeline="text-classification",
        class_name="SequenceClassification",
        is_in_transformers=True,
        layers={"dense": "classifier"},
        variable=CLASSIFIER,
    ),
)
TASK_HEADS.add(
    "vector-classification",
    TaskHead(
        make=VectorHead,
        reads="texts",
        has_labels=True,
        purpose="classifies texts or pairs of texts by their vectors",
        pipeline="text-classification",
        class_name="VectorClassification",
        layers={"dense": "classifier"},
    ),
)
TASK_HEADS.add(
    "pair-classification",
    TaskHead(
        make=PairHead,
        reads="pairs",
        has_labels=True,
        purpose="classifies pairs of texts by the vectors of both",
        pipeline="text-classification",
        class_name="PairClassification",
        layers={"dense": "classifier"},
        refusal="it reads the two texts of a pair apart, which other programs do not",
    ),
)
