"""The two kinds of blocks a plan is made of; each is prepared once and applied many times."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from litebert.config import AlbertConfig
from litebert.config.schema import Activation
from litebert.nn.attention import attend
from litebert.nn.layout import Layout
from litebert.nn.rows import filled

Hidden: TypeAlias = Float[Tensor, "rows hidden"]
AskingHidden: TypeAlias = Float[Tensor, "asking_rows hidden"]
Prepared: TypeAlias = Callable[[Tensor, Layout], Tensor]

ACTIVATIONS: dict[Activation, Callable[[Tensor], Tensor]] = {
    # The official "gelu" is the tanh form in every version (modeling.py L299).
    "gelu_new": lambda x: F.gelu(x, approximate="tanh"),
    "gelu_pytorch_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "gelu": F.gelu,
    "relu": F.relu,
    "tanh": torch.tanh,
    "linear": lambda x: x,
}


class AttentionBlock(nn.Module):
    """Self-attention, residual and layer norm: LN(x + drop(W attention(x))) (modeling.py L791)."""

    def __init__(self, config: AlbertConfig) -> None:
        super().__init__()
        size = config.hidden_size
        self.query = nn.Linear(size, size)
        self.key = nn.Linear(size, size)
        self.value = nn.Linear(size, size)
        self.output = nn.Linear(size, size)
        self.norm = nn.LayerNorm(size, eps=config.layer_norm_eps)
        self.heads = (config.num_attention_heads, config.head_size)
        self.hidden_dropout_prob = config.hidden_dropout_prob
        self.attention_dropout_prob = config.attention_probs_dropout_prob

    def prepare(self, dtype: torch.dtype) -> Prepared:
        """Fuse query, key and value and cast all weights, once for every use of the block."""
        projections = (self.query, self.key, self.value)
        fused_weight = torch.cat([p.weight for p in projections]).to(dtype)
        fused_bias = torch.cat([p.bias for p in projections]).to(dtype)
        output, norm = _cast(self.output, dtype), cast_norm(self.norm, dtype)
        attention_dropout_prob = self.attention_dropout_prob if self.training else 0.0

        def apply(hidden: Hidden, layout: Layout) -> AskingHidden:
            fused = F.linear(hidden, fused_weight, fused_bias)
            query, key, value = per_token(fused, layout, self.heads)
            mixed = attend(query, key, value, layout, attention_dropout_prob)
            projected = output(filled(mixed.flatten(1)))
            dropped = F.dropout(projected, self.hidden_dropout_prob, self.training)
            return norm(asking(hidden, layout) + dropped)

        return apply


class FeedForwardBlock(nn.Module):
    """Feed-forward, residual and layer norm: LN(x + drop(W2 act(W1 x))) (modeling.py L934)."""

    def __init__(self, config: AlbertConfig) -> None:
        super().__init__()
        self.intermediate = nn.Linear(config.hidden_size, config.intermediate_size)
        self.output = nn.Linear(config.intermediate_size, config.hidden_size)
        self.norm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.hidden_act, self.activation = config.hidden_act, ACTIVATIONS[config.hidden_act]
        self.hidden_dropout_prob = config.hidden_dropout_prob

    def prepare(self, dtype: torch.dtype) -> Prepared:
        """Cast all weights, once for every use of the block."""
        intermediate, output = _cast(self.intermediate, dtype), _cast(self.output, dtype)
        norm = cast_norm(self.norm, dtype)

        def apply(hidden: Hidden, _: Layout) -> Hidden:
            wide = self.activation(intermediate(hidden))
            dropped = F.dropout(output(wide), self.hidden_dropout_prob, self.training)
            return norm(hidden + dropped)

        return apply


def per_token(fused: Tensor, layout: Layout, heads: tuple[int, int]) -> tuple[Tensor, ...]:
    """Return query, key and value of every token, each of shape (tokens, heads, head size)."""
    return fused[: len(layout.batch.ids)].view(-1, 3, *heads).unbind(1)


def asking(hidden: Hidden, layout: Layout) -> AskingHidden:
    """Return the rows that ask, filled up."""
    return hidden if layout.read is None else filled(hidden[layout.read])


def _cast(linear: nn.Linear, dtype: torch.dtype) -> Callable[[Tensor], Tensor]:
    weight, bias = linear.weight.to(dtype), linear.bias.to(dtype)
    return lambda x: F.linear(x, weight, bias)


def cast_norm(
    norm: nn.LayerNorm, dtype: torch.dtype, *, less: Tensor | float = 0.0
) -> Callable[[Tensor], Tensor]:
    """Return a layer norm on rows of `dtype`, its results less a vector."""
    weight, bias = norm.weight.to(dtype), (norm.bias - less).to(dtype)
    return lambda x: F.layer_norm(x, norm.normalized_shape, weight, bias, norm.eps)
