"""The block, written once over the linear layers, norms and attention that compute it."""

from collections.abc import Callable, Sequence
from pkgutil import resolve_name
from typing import NamedTuple, TypeAlias

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from litebert.config import ATTENTION_KINDS, AlbertConfig
from litebert.config.schema import Activation
from litebert.nn.attention import Attend
from litebert.nn.batch import Layout

Linear: TypeAlias = Callable[[Tensor, Tensor | None], Tensor]
"""(x, residual) -> x W^T + b, plus the residual if there is one."""
Norm: TypeAlias = Callable[[Tensor], Tensor]
Half: TypeAlias = Callable[[Tensor, Layout], Tensor]
"""One half of a step, attention or feed-forward: (hidden, layout) -> hidden, of the queries."""
Steps: TypeAlias = Sequence[tuple[Half, Half]]
"""The attention and the feed-forward of each step."""

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
    """What computes an attention block; `project` gives query, key and value at once."""

    project: Linear
    output: Linear
    norm: Norm
    heads: tuple[int, int]


def attention_block(
    x: Float[Tensor, "*rows hidden"],
    pieces: AttentionPieces,
    attend: Callable[[Tensor, Tensor, Tensor], Tensor],
    of_queries: Callable[[Tensor], Tensor],
) -> Float[Tensor, "*query_rows hidden"]:
    """Return LN(x + W_o attention(W_q x, W_k x, W_v x)) of the queries (modeling.py L791)."""
    projected = torch.unflatten(pieces.project(x, None), -1, (3, *pieces.heads))
    query, key, value = projected.unbind(-3)  # (rows, heads, head_size) each
    mixed = attend(of_queries(query), key, value).flatten(-2)  # (queries, hidden)
    return pieces.norm(pieces.output(mixed, of_queries(x)))


def feed_forward_block(
    x: Float[Tensor, "*rows hidden"], intermediate: Linear, output: Linear, norm: Norm
) -> Float[Tensor, "*rows hidden"]:
    """Return LN(x + W_2 act(W_1 x)), where `intermediate` is act(W_1 x) (modeling.py L934)."""
    return norm(output(intermediate(x, None), x))


class Dense(nn.Linear):
    """residual + dropout(x W^T + b), in the dtype of x."""

    def __init__(self, inputs: int, outputs: int, dropout_prob: float = 0.0) -> None:
        super().__init__(inputs, outputs)
        self.dropout_prob = dropout_prob

    def forward(self, x: Tensor, residual: Tensor | None = None) -> Tensor:
        """Return the product, plus the residual if there is one."""
        product = F.linear(x, self.weight.to(x.dtype), self.bias.to(x.dtype))
        product = F.dropout(product, self.dropout_prob, self.training)
        return product if residual is None else residual + product


class LayerNorm(nn.LayerNorm):
    """A layer norm in the dtype of x."""

    def forward(self, x: Tensor) -> Tensor:
        """Normalise each row."""
        weight, bias = self.weight.to(x.dtype), self.bias.to(x.dtype)
        return F.layer_norm(x, self.normalized_shape, weight, bias, self.eps)


class AttentionBlock(nn.Module):
    """Self-attention, residual and layer norm."""

    def __init__(self, config: AlbertConfig) -> None:
        super().__init__()
        size = config.hidden_size
        self.query, self.key, self.value = (Dense(size, size) for _ in range(3))
        self.output = Dense(size, size, config.hidden_dropout_prob)
        self.norm = LayerNorm(size, eps=config.layer_norm_eps)
        self.heads = (config.num_attention_heads, config.head_size)
        self.attend: Attend = resolve_name(ATTENTION_KINDS[config.attention])(config)
        self.dropout_prob = config.attention_probs_dropout_prob

    def projection(self) -> tuple[Tensor, Tensor]:
        """Return weight and bias of query, key and value, side by side."""
        layers = (self.query, self.key, self.value)
        return torch.cat([x.weight for x in layers]), torch.cat([x.bias for x in layers])

    def forward(self, x: Tensor, layout: Layout) -> Tensor:
        """Compute the block for the queries of the layout."""
        weight, bias = (y.to(x.dtype) for y in self.projection())
        pieces = AttentionPieces(lambda x, _: F.linear(x, weight, bias), self.output, self.norm, self.heads)
        prob = self.dropout_prob * self.training
        return attention_block(x, pieces, lambda q, k, v: self.attend(q, k, v, layout, prob), layout.of_queries)


class FeedForwardBlock(nn.Module):
    """Two layers with an activation between them, residual and layer norm."""

    def __init__(self, config: AlbertConfig) -> None:
        super().__init__()
        size, wide = config.hidden_size, config.intermediate_size
        self.intermediate = Dense(size, wide)
        self.output = Dense(wide, size, config.hidden_dropout_prob)
        self.norm = LayerNorm(size, eps=config.layer_norm_eps)
        self.hidden_act, self.activation = config.hidden_act, ACTIVATIONS[config.hidden_act]

    def forward(self, x: Tensor, _layout: Layout) -> Tensor:
        """Compute the block for each row."""
        return feed_forward_block(x, lambda y, _: self.activation(self.intermediate(y)), self.output, self.norm)
