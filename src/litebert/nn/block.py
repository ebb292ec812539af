"""The block, written once: whoever computes it supplies linear layers, norms and attention."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple, TypeAlias

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from litebert.config import AlbertConfig
from litebert.config.schema import Activation
from litebert.nn.attention import Attend, Layout, full
from litebert.nn.batch import filled
from litebert.nn.local import local
from litebert.nn.precision import cast

Linear: TypeAlias = Callable[[Tensor, Tensor | None], Tensor]
"""(x, residual) -> x W^T + b, plus the residual if there is one."""
Norm: TypeAlias = Callable[[Tensor], Tensor]
Prepared: TypeAlias = Callable[[Tensor, Layout], Tensor]
"""A block whose weights are ready: (hidden, layout) -> hidden, of the queries alone."""

ATTENTION_KINDS: dict[str, Callable[[AlbertConfig], Attend]] = {
    "full": lambda _: full,
    "local": lambda config: partial(local, window=config.attention_window),
}
"""What `attention` in the configuration may be; docs/extending/attention.md adds one."""

ACTIVATIONS: dict[Activation, Callable[[Tensor], Tensor]] = {
    # The official "gelu" is the tanh form in every version (modeling.py L299).
    "gelu_new": lambda x: F.gelu(x, approximate="tanh"),
    "gelu_pytorch_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "gelu": F.gelu,
    "relu": F.relu,
    "tanh": torch.tanh,
    "linear": lambda x: x,
}


class AttentionPieces(NamedTuple):
    """What an attention block is computed with; `project` gives query, key and value at once."""

    project: Linear
    output: Linear
    norm: Norm
    heads: tuple[int, int]


class FeedForwardPieces(NamedTuple):
    """What a feed-forward block is computed with; `intermediate` applies the activation."""

    intermediate: Linear
    output: Linear
    norm: Norm


def attention_block(
    x: Float[Tensor, "*rows hidden"],
    pieces: AttentionPieces,
    attend: Callable[[Tensor, Tensor, Tensor], Tensor],
    of_queries: Callable[[Tensor], Tensor],
) -> Float[Tensor, "*query_rows hidden"]:
    """Return LN(x + W_o attention(W_q x, W_k x, W_v x)) of the queries (modeling.py L791)."""
    query, key, value = (
        torch.unflatten(y, -1, pieces.heads)  # (rows, heads, size)
        for y in pieces.project(x, None).chunk(3, -1)
    )
    mixed = attend(of_queries(query), key, value).flatten(-2)  # (queries, hidden)
    return pieces.norm(pieces.output(mixed, of_queries(x)))


def feed_forward_block(
    x: Float[Tensor, "*rows hidden"], pieces: FeedForwardPieces
) -> Float[Tensor, "*rows hidden"]:
    """Return LN(x + W_2 act(W_1 x)) (modeling.py L934)."""
    return pieces.norm(pieces.output(pieces.intermediate(x, None), x))


def on_batch(pieces: AttentionPieces, attend: Attend, dropout_prob: float = 0.0) -> Prepared:
    """Return an attention block on the rows of a ragged batch, filled up with zeros."""

    def apply(x: Tensor, layout: Layout) -> Tensor:
        num_tokens = len(layout.batch.ids)
        num_queries = num_tokens if layout.queries is None else len(layout.queries)

        def on_tokens(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
            real = (query[:num_queries], key[:num_tokens], value[:num_tokens])
            return filled(attend(*real, layout, dropout_prob))

        return attention_block(x, pieces, on_tokens, layout.of_queries)

    return apply


class AttentionBlock(nn.Module):
    """Self-attention, residual and layer norm."""

    def __init__(self, config: AlbertConfig) -> None:
        super().__init__()
        size = config.hidden_size
        self.query = nn.Linear(size, size)
        self.key = nn.Linear(size, size)
        self.value = nn.Linear(size, size)
        self.output = nn.Linear(size, size)
        self.norm = nn.LayerNorm(size, eps=config.layer_norm_eps)
        self.heads = (config.num_attention_heads, config.head_size)
        self.attend = ATTENTION_KINDS[config.attention](config)
        self.hidden_dropout_prob = config.hidden_dropout_prob
        self.attention_dropout_prob = config.attention_probs_dropout_prob

    def projection(self) -> tuple[Tensor, Tensor]:
        """Return weight and bias of query, key and value, side by side."""
        layers = (self.query, self.key, self.value)
        return torch.cat([x.weight for x in layers]), torch.cat([x.bias for x in layers])

    def prepare(self, dtype: torch.dtype) -> Prepared:
        """Join and cast all weights, once for every use of the block."""
        hidden_prob, attention_prob = self.hidden_dropout_prob, self.attention_dropout_prob
        pieces = AttentionPieces(
            project=_linear(*self.projection(), dtype),
            output=_linear(
                self.output.weight, self.output.bias, dtype, hidden_prob * self.training
            ),
            norm=cast_norm(self.norm, dtype),
            heads=self.heads,
        )
        return on_batch(pieces, self.attend, attention_prob * self.training)


class FeedForwardBlock(nn.Module):
    """Two layers with an activation between them, residual and layer norm."""

    def __init__(self, config: AlbertConfig) -> None:
        super().__init__()
        self.intermediate = nn.Linear(config.hidden_size, config.intermediate_size)
        self.output = nn.Linear(config.intermediate_size, config.hidden_size)
        self.norm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.hidden_act, self.activation = config.hidden_act, ACTIVATIONS[config.hidden_act]
        self.hidden_dropout_prob = config.hidden_dropout_prob

    def prepare(self, dtype: torch.dtype) -> Prepared:
        """Cast all weights, once for every use of the block."""
        inner, outer = self.intermediate, self.output
        widen = _linear(inner.weight, inner.bias, dtype)
        pieces = FeedForwardPieces(
            intermediate=lambda x, _: self.activation(widen(x, None)),
            output=_linear(
                outer.weight, outer.bias, dtype, self.hidden_dropout_prob * self.training
            ),
            norm=cast_norm(self.norm, dtype),
        )
        return lambda x, _: feed_forward_block(x, pieces)


def _linear(weight: Tensor, bias: Tensor, dtype: torch.dtype, dropout_prob: float = 0.0) -> Linear:
    """Return residual + dropout(x W^T + b) on rows of `dtype`."""
    weight_of_use, bias_of_use = cast(weight, dtype), cast(bias, dtype)

    def apply(x: Tensor, residual: Tensor | None) -> Tensor:
        product = F.dropout(F.linear(x, weight_of_use(), bias_of_use()), dropout_prob)
        return product if residual is None else residual + product

    return apply


def cast_norm(norm: nn.LayerNorm, dtype: torch.dtype) -> Norm:
    """Return a layer norm on rows of `dtype`."""
    weight, bias = cast(norm.weight, dtype), cast(norm.bias, dtype)
    return lambda x: F.layer_norm(x, norm.normalized_shape, weight(), bias(), norm.eps)
