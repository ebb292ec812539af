"""The network on padded rectangles, which exporters can trace: no ragged batch, no control flow.

Every block is prepared once and applied at its steps, so that a weight is one constant however
often it is used. Weights are stored as [in, out], so that each product has a constant operand.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from torch import Tensor, nn

from litebert.nn import Albert
from litebert.nn.block import AttentionBlock, AttentionPieces, FeedForwardBlock, attention_block, feed_forward_block
from litebert.tasks.kinds.family import NEVER

INPUTS = ("input_ids", "attention_mask", "token_type_ids")


class Reader(nn.Module):
    """Compute the outputs `output_names` from hidden states, mask and segments.

    `shortest` is the least length that it can read.
    """

    output_names: tuple[str, ...]
    shortest = 1


class PaddedNetwork(nn.Module):
    """Map ids, mask (1 = a token) and segments, int64 (batch, length), to named outputs.

    Padding is on the right and does not change outputs. `lengths` are those it can read.
    """

    axes: tuple[str, ...] = ("batch", "length")

    def __init__(self, encoder: PaddedEncoder, readers: Sequence[Reader]) -> None:
        super().__init__()
        self.encoder, self.readers = encoder, nn.ModuleList(readers)
        self.lengths = range(max(reader.shortest for reader in readers), 1 + len(encoder.position))
        self.output_names = tuple(name for reader in readers for name in reader.output_names)

    def forward(self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor) -> tuple[Tensor, ...]:
        """Return the outputs in the order of `output_names`."""
        hidden = self.encoder(input_ids, attention_mask, token_type_ids)
        parts = [reader(hidden, attention_mask, token_type_ids) for reader in self.readers]
        return tuple(output for part in parts for output in part)


class PaddedChoices(PaddedNetwork):
    """Take (batch, choices, length) and return logits of shape (batch, choices)."""

    axes = ("batch", "choices", "length")

    def forward(self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor) -> tuple[Tensor, ...]:
        """Read every choice as a sequence of its own."""
        rows = (x.flatten(0, 1) for x in (input_ids, attention_mask, token_type_ids))
        (logits,) = super().forward(*rows)
        return (logits.reshape(input_ids.shape[:2]),)


class Affine(nn.Module):
    """x W + b, plus a residual, with W as [in, out]."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        super().__init__()
        self.weight = nn.Parameter(weight.detach().T.contiguous())
        self.bias = None if bias is None else nn.Parameter(bias.detach().clone())

    @classmethod
    def of(cls, linear: nn.Linear) -> Affine:
        """Copy a linear layer."""
        return cls(linear.weight, linear.bias)

    def forward(self, x: Tensor, residual: Tensor | None = None) -> Tensor:
        """Return x W + b, plus the residual if there is one."""
        product = x @ self.weight
        product = product if self.bias is None else product + self.bias
        return product if residual is None else residual + product


class PaddedEncoder(nn.Module):
    """Embeddings and the unrolled depth plan."""

    def __init__(self, albert: Albert) -> None:
        super().__init__()
        embedding = albert.embedding
        self.plan = albert.plan
        self.word, self.segment = embedding.word, embedding.segment
        self.position, self.norm = embedding.position.weight, embedding.norm
        projection = embedding.projection
        self.projection = Affine.of(projection) if isinstance(projection, nn.Linear) else projection
        self.attention = nn.ModuleList(_Attention(cast(AttentionBlock, b)) for b in albert.attention)
        self.feed_forward = nn.ModuleList(_FeedForward(cast(FeedForwardBlock, b)) for b in albert.feed_forward)

    def forward(self, ids: Tensor, mask: Tensor, segments: Tensor) -> Tensor:
        """Return the last hidden states, (batch, length, hidden)."""
        summed = self.word(ids) + self.position[: ids.shape[1]] + self.segment(segments)
        hidden: Tensor = self.projection(self.norm(summed))
        penalty = (1 - mask[:, None, None].to(hidden.dtype)) * NEVER  # (batch, 1, 1, length)
        for step in self.plan:
            hidden = self.attention[step.attention](hidden, penalty)
            hidden = self.feed_forward[step.feed_forward](hidden)
        return hidden


class _Attention(nn.Module):
    """Query, key and value in one product; the query's weights include 1 / sqrt(head_size)."""

    def __init__(self, block: AttentionBlock) -> None:
        super().__init__()
        self.heads = block.heads
        hidden, scale = block.output.in_features, self.heads[1] ** -0.5
        weight, bias = (x.detach().clone() for x in block.projection())
        weight[:hidden] *= scale
        bias[:hidden] *= scale
        self.fused = Affine(weight, bias)
        self.output, self.norm = Affine.of(block.output), block.norm

    def forward(self, hidden: Tensor, penalty: Tensor) -> Tensor:
        """Attend where `penalty`, (batch, 1, 1, length), is zero."""

        def attend(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
            q, k, v = (x.transpose(1, 2) for x in (query, key, value))
            scores = q @ k.transpose(-1, -2) + penalty  # (batch, heads, length, length)
            mixed: Tensor = scores.softmax(-1) @ v
            return mixed.transpose(1, 2)

        pieces = AttentionPieces(self.fused, self.output, self.norm, self.heads)
        return attention_block(hidden, pieces, attend, lambda x: x)


class _FeedForward(nn.Module):
    def __init__(self, block: FeedForwardBlock) -> None:
        super().__init__()
        self.intermediate = Affine.of(block.intermediate)
        self.output, self.norm = Affine.of(block.output), block.norm
        self.activation = block.activation

    def forward(self, hidden: Tensor) -> Tensor:
        """Apply the two layers, the residual and the norm."""

        def intermediate(x: Tensor, _: Tensor | None) -> Tensor:
            return self.activation(self.intermediate(x))

        return feed_forward_block(hidden, intermediate, self.output, self.norm)
