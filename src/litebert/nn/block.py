"""The block, written once: whoever computes it supplies linear layers, norms and attention."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import NamedTuple, TypeAlias, TypeVar

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from litebert.config import AlbertConfig
from litebert.config.schema import Activation
from litebert.nn.attention import Attend, Layout, attention

Linear: TypeAlias = Callable[[Tensor, Tensor | None], Tensor]
"""(x, residual) -> x W^T + b, plus the residual if there is one."""
Norm: TypeAlias = Callable[[Tensor], Tensor]
Prepared: TypeAlias = Callable[[Tensor, Layout], Tensor]
"""A block whose weights are ready: (hidden, layout) -> hidden, of the queries alone."""
Steps: TypeAlias = Sequence[tuple[Prepared, Prepared]]
"""The attention and the feed-forward of each step."""

ATTENTION_KINDS: dict[str, Callable[[AlbertConfig], Attend]] = {
    "full": lambda _: attention,
    "local": lambda config: partial(attention, window=config.attention_window),
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


BlockT = TypeVar("BlockT", "AttentionBlock", "FeedForwardBlock")


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

    def forward(self, x: Tensor, layout: Layout) -> Tensor:
        """Compute the block for the queries of the layout."""
        hidden_prob = self.hidden_dropout_prob * self.training
        attention_prob = self.attention_dropout_prob * self.training
        pieces = AttentionPieces(
            project=_linear(*self.projection()),
            output=_linear(self.output.weight, self.output.bias, hidden_prob),
            norm=_norm(self.norm),
            heads=self.heads,
        )
        return attention_block(
            x,
            pieces,
            lambda q, k, v: self.attend(q, k, v, layout, attention_prob),
            layout.of_queries,
        )


class FeedForwardBlock(nn.Module):
    """Two layers with an activation between them, residual and layer norm."""

    def __init__(self, config: AlbertConfig) -> None:
        super().__init__()
        self.intermediate = nn.Linear(config.hidden_size, config.intermediate_size)
        self.output = nn.Linear(config.intermediate_size, config.hidden_size)
        self.norm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.hidden_act, self.activation = config.hidden_act, ACTIVATIONS[config.hidden_act]
        self.hidden_dropout_prob = config.hidden_dropout_prob

    def forward(self, x: Tensor, _layout: Layout) -> Tensor:
        """Compute the block for each row."""
        widen = _linear(self.intermediate.weight, self.intermediate.bias)
        hidden_prob = self.hidden_dropout_prob * self.training
        pieces = FeedForwardPieces(
            intermediate=lambda x, _: self.activation(widen(x, None)),
            output=_linear(self.output.weight, self.output.bias, hidden_prob),
            norm=_norm(self.norm),
        )
        return feed_forward_block(x, pieces)


def blocks(network: nn.Module, kind: type[BlockT]) -> Iterator[BlockT]:
    """Iterate over the blocks of one kind, in the order that the plan numbers them."""
    return (module for module in network.modules() if isinstance(module, kind))


def _linear(weight: Tensor, bias: Tensor, dropout_prob: float = 0.0) -> Linear:
    """Return residual + dropout(x W^T + b), in the dtype of x."""

    def apply(x: Tensor, residual: Tensor | None) -> Tensor:
        product = F.linear(x, weight.to(x.dtype), bias.to(x.dtype))
        product = F.dropout(product, dropout_prob)
        return product if residual is None else residual + product

    return apply


def _norm(norm: nn.LayerNorm) -> Norm:
    """Return a layer norm in the dtype of x."""

    def apply(x: Tensor) -> Tensor:
        weight, bias = norm.weight.to(x.dtype), norm.bias.to(x.dtype)
        return F.layer_norm(x, norm.normalized_shape, weight, bias, norm.eps)

    return apply
