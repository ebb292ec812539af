"""A step of the engine: the block of `litebert.nn.model`, its products prepared once for all steps that share them.

Query, key and value are one product, rows are filled up to few counts, and the last step computes only the rows that
are read. What computes a product is chosen by who prepares it: here for training, `packed` and `int8` for inference.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, TypeAlias, TypeVar

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from litebert.config import Precision
from litebert.fast.attention import Attend, Layout, attend_of
from litebert.nn.batch import Batch, filled
from litebert.nn.model import Albert, AttentionBlock, FeedForwardBlock

DTYPES: dict[Precision, torch.dtype] = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
"""The dtype of activations for each precision."""

Linear: TypeAlias = Callable[[Tensor, Tensor | None], Tensor]
"""(x, residual) -> x W^T + b, perhaps activated, plus the residual if there is one: often one kernel."""
Norm: TypeAlias = Callable[[Tensor], Tensor]
Step: TypeAlias = Callable[[Tensor, Layout], Tensor]
"""(hidden, layout) -> hidden, of the layout's queries; both may have more rows, which belong to no sequence."""
BlockT = TypeVar("BlockT", AttentionBlock, FeedForwardBlock)


class Mixing(NamedTuple):
    """What computes an attention block; `project` gives query, key and value at once."""

    project: Linear
    attend: Attend
    output: Linear
    norm: Norm
    heads: tuple[int, int]
    dropout_prob: float = 0.0


class Widening(NamedTuple):
    """What computes a feed-forward block; `intermediate` includes the activation."""

    intermediate: Linear
    output: Linear
    norm: Norm


def block(
    mixing: Mixing, widening: Widening, x: Float[Tensor, "rows hidden"], layout: Layout
) -> Float[Tensor, "query_rows hidden"]:
    """Return norm(x + attention(x)), then norm(x + feed_forward(x)), for the queries of the layout."""
    num_tokens, x = len(layout.batch.ids), filled(x)
    projected = torch.unflatten(mixing.project(x, None), -1, (3, *mixing.heads))  # (rows, 3, heads, head_size)
    if len(x) > num_tokens:  # a slice costs a copy in the backward pass
        projected = projected[:num_tokens]
    query, key, value = projected.unbind(1)
    mixed = mixing.attend(layout.of_queries(query), key, value, layout, mixing.dropout_prob)
    x = x if layout.queries is None else filled(layout.of_queries(x))
    x = mixing.norm(mixing.output(filled(mixed).flatten(-2), x))
    return widening.norm(widening.output(widening.intermediate(x, None), x))


@dataclass(frozen=True)
class Run:
    """Compute the states of an encoder with steps, which `albert.engine` makes."""

    albert: Albert
    steps: Sequence[Step]

    def __call__(self, batch: Batch, queries: Tensor | None = None) -> Iterator[Tensor]:
        """Yield the projected embeddings, then the states after each step; in the last, compute `queries` alone."""
        num_tokens, order, layout = len(batch.ids), None, Layout(batch)
        yield (hidden := self.albert.embedding(batch).to(self.albert.dtype))
        for number, step in enumerate(self.steps, start=1):
            if number == len(self.steps) and queries is not None:
                ascending, order = queries.sort()
                layout = Layout(batch, ascending)
            hidden = step(hidden, layout)
            yield hidden[:num_tokens] if order is None else hidden[order.argsort()]


def in_order(albert: Albert, mixing: Sequence[Mixing], widening: Sequence[Widening]) -> list[Step]:
    """Return every step of the plan, given what computes each block."""
    return [partial(block, mixing[i], widening[j]) for i, j in albert.plan]


def blocks(network: nn.Module, kind: type[BlockT]) -> Iterator[BlockT]:
    """Iterate over the blocks of one kind, in the order that the plan numbers them."""
    return (module for module in network.modules() if isinstance(module, kind))


def projection(block: AttentionBlock) -> tuple[Tensor, Tensor]:
    """Return weight and bias of query, key and value, side by side."""
    layers = (block.query, block.key, block.value)
    return torch.cat([x.weight for x in layers]), torch.cat([x.bias for x in layers])


def training_steps(albert: Albert) -> list[Step]:
    """Return all steps, with dropout in training and with gradients; weights are joined and cast once for them."""
    attend, dtype = attend_of(albert.config, for_training=True), albert.dtype
    mixing = [
        Mixing(
            project=cast_linear(*projection(each), dtype),
            attend=attend,
            output=cast_linear(each.output.weight, each.output.bias, dtype, each.dropout.p * each.training),
            norm=cast_norm(each.norm, dtype),
            heads=each.heads,
            dropout_prob=each.attention_dropout_prob * each.training,
        )
        for each in blocks(albert, AttentionBlock)
    ]
    return in_order(albert, mixing, [_widening(each, dtype) for each in blocks(albert, FeedForwardBlock)])


def _widening(block: FeedForwardBlock, dtype: torch.dtype) -> Widening:
    inner, outer = block.intermediate, block.output
    widen = cast_linear(inner.weight, inner.bias, dtype)
    return Widening(
        intermediate=lambda x, _: block.activation(widen(x, None)),
        output=cast_linear(outer.weight, outer.bias, dtype, block.dropout.p * block.training),
        norm=cast_norm(block.norm, dtype),
    )


def cast_norm(norm: nn.LayerNorm, dtype: torch.dtype) -> Norm:
    """Return a layer norm on rows of `dtype`."""
    weight, bias = cast(norm.weight, dtype), cast(norm.bias, dtype)
    return lambda x: F.layer_norm(x, norm.normalized_shape, weight(), bias(), norm.eps)


def cast_linear(weight: Tensor, bias: Tensor, dtype: torch.dtype, dropout_prob: float = 0.0) -> Linear:
    """Return residual + dropout(x W^T + b) on rows of `dtype`."""
    weight_of_use, bias_of_use = cast(weight, dtype), cast(bias, dtype)

    def apply(x: Tensor, residual: Tensor | None) -> Tensor:
        product = F.dropout(F.linear(x, weight_of_use(), bias_of_use()), dropout_prob)
        return product if residual is None else residual + product

    return apply


def cast(weight: Tensor, dtype: torch.dtype) -> Callable[[], Tensor]:
    """Return a function that gives the weight in `dtype`, cast once, for each of its uses.

    A shared block is used many times. The gradients of its uses are summed in float32: in bf16, a sum loses terms
    below 1/256 of it.

    >>> weight = torch.ones(1, requires_grad=True)
    >>> use = cast(weight, torch.bfloat16)
    >>> (256 * use() + use()).sum().backward()
    >>> weight.grad  # in bf16 it would be 256
    tensor([257.])
    """
    if weight.dtype == dtype:
        return lambda: weight
    copied = weight.detach().to(dtype)

    def use() -> Tensor:
        if not (torch.is_grad_enabled() and weight.requires_grad):
            return copied
        used: Tensor = _Use.apply(weight, copied)  # type: ignore[no-untyped-call]
        return used

    return use


class _Use(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, weight: Tensor, copied: Tensor) -> Tensor:
        """Return the copy; its gradient goes to the weight."""
        ctx.dtype = weight.dtype
        return copied.view_as(copied)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        """Return the gradient in the weight's precision."""
        return gradients[0].to(ctx.dtype), None


def exact_dtype(device: torch.device) -> torch.dtype:
    """Return the dtype for sums of many numbers; Apple's GPUs have no float64.

    >>> exact_dtype(torch.device("cpu")), exact_dtype(torch.device("mps"))
    (torch.float64, torch.float32)
    """
    return torch.float32 if device.type == "mps" else torch.float64
