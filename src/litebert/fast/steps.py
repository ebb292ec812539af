"""The steps of a network, which `litebert.fast.engine` applies.

A step applies two blocks of `litebert.nn.model`, whose layers are prepared once for all
steps that share them (`litebert.fast.linear`). Query, key and value are one product, the
number of rows is rounded up to one of a few, and the last step computes only the rows
that are needed.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache, partial
from typing import NamedTuple, TypeAlias

import torch
from jaxtyping import Float
from torch import Tensor

from litebert.device import device_of
from litebert.fast.attention import Attend, Layout, attend_of
from litebert.fast.linear import Linear, MakeLinear, Norm, norm_of
from litebert.nn import Albert, AttentionBlock, Batch, FeedForwardBlock, pad_rows

Step: TypeAlias = Callable[[Tensor, Layout], Tensor]
"""(hidden, layout) -> hidden, of the layout's queries; both may end with rows that
belong to no sequence.
"""


class AttentionLayers(NamedTuple):
    """The prepared layers of an attention block."""

    project: Linear  # query, key and value at once
    attend: Attend
    output: Linear
    norm: Norm
    heads: tuple[int, int]  # their number and size
    dropout_prob: float = 0.0  # of the shares of attention


class FeedForwardLayers(NamedTuple):
    """The prepared layers of a feed-forward block."""

    intermediate: Linear  # with the activation
    output: Linear
    norm: Norm


def block(
    attention: AttentionLayers,
    feed_forward: FeedForwardLayers,
    x: Float[Tensor, "rows hidden"],
    layout: Layout,
    *,
    finish: "Finish",
) -> Float[Tensor, "query_rows hidden"]:
    """Return norm(x + attention(x)), then norm(x + feed_forward(x)), for the queries of
    the layout; `finish` is `finish_step`, possibly compiled.
    """
    num_tokens = layout.batch.ids.shape[0]
    # A few numbers of rows, so that few kernels are compiled and chosen.
    x = pad_rows(x)
    # One product for all three, (rows, 3, heads, head_size).
    projected = torch.unflatten(attention.project(x, None), -1, (3, *attention.heads))
    if x.shape[0] > num_tokens:  # a slice costs a copy in the backward pass
        projected = projected[:num_tokens]
    query, key, value = projected.unbind(1)  # (tokens, heads, head_size) each
    # (queries, heads, head_size); in the last step, of the tokens that are read
    mixed = attention.attend(
        query[layout.queries], key, value, layout, attention.dropout_prob
    )
    # Selected here, not with the query above: the order in which gradients of x are
    # summed affects their last bits.
    x = pad_rows(x[layout.queries])
    return finish(attention, feed_forward, pad_rows(mixed), x)


def finish_step(
    attention: AttentionLayers,
    feed_forward: FeedForwardLayers,
    mixed: Float[Tensor, "query_rows heads head_size"],
    x: Float[Tensor, "query_rows hidden"],
) -> Float[Tensor, "query_rows hidden"]:
    """Return the states after a step from what attention mixed: all that a step does
    row by row.
    """
    # The residual goes into the layer, which may add it in the same kernel.
    x = attention.norm(attention.output(mixed.flatten(-2), x))
    wide = feed_forward.intermediate(x, None)  # (query_rows, intermediate)
    return feed_forward.norm(feed_forward.output(wide, x))


Finish: TypeAlias = Callable[
    [AttentionLayers, FeedForwardLayers, Tensor, Tensor], Tensor
]


@lru_cache(maxsize=1)
def compiled_finish() -> Finish:
    """Return `finish_step` as one compiled graph for any number of rows, the same for
    all steps.

    Attention is left out: its kernels are compiled already, and a batch has new lengths
    in every step, for which it would be compiled anew.
    """
    return torch.compile(finish_step, fullgraph=True, dynamic=True)


def make_steps(
    albert: Albert,
    linear: MakeLinear,
    *,
    for_training: bool = False,
    is_compiled: bool = False,
    is_repeatable: bool = False,
    plan: Sequence[tuple[int, int]] | None = None,
) -> list[Step]:
    """Prepare each block of a plan (by default, the encoder's) once, and return the
    steps of the plan.
    """
    block_numbers = albert.plan if plan is None else plan
    # Rectangles copy rows, which is cheap only without a backward pass.
    attend = attend_of(
        albert.config,
        in_rectangles=device_of(albert).is_cpu and not for_training,
        is_repeatable=is_repeatable,
    )
    finish = compiled_finish() if is_compiled else finish_step

    # the layers of each block by its number: steps that share it share them
    attention = dict[int, AttentionLayers]()
    feed_forward = dict[int, FeedForwardLayers]()
    for number in {blocks[0] for blocks in block_numbers}:
        attention[number] = _attention_layers(
            albert.attention[number], linear, attend, albert.dtype
        )
    for number in {blocks[1] for blocks in block_numbers}:
        feed_forward[number] = _feed_forward_layers(
            albert.feed_forward[number], linear, albert.dtype
        )
    steps = list[Step]()
    for first, second in block_numbers:
        steps.append(
            partial(block, attention[first], feed_forward[second], finish=finish)
        )
    return steps


def _attention_layers(
    plain: AttentionBlock, linear: MakeLinear, attend: Attend, dtype: torch.dtype
) -> AttentionLayers:
    """Prepare the layers of an attention block; there is dropout only in training."""
    weight, bias = projection(plain)
    output = plain.output
    dropout_prob = 0.0  # of the output
    attention_dropout_prob = 0.0
    if plain.training:
        dropout_prob = plain.dropout.p
        attention_dropout_prob = plain.attention_dropout_prob
    return AttentionLayers(
        project=linear(weight, bias, dtype, "linear", 0.0),
        attend=attend,
        output=linear(output.weight, output.bias, dtype, "linear", dropout_prob),
        norm=norm_of(plain.norm, dtype),
        heads=plain.heads,
        dropout_prob=attention_dropout_prob,
    )


def _feed_forward_layers(
    plain: FeedForwardBlock, linear: MakeLinear, dtype: torch.dtype
) -> FeedForwardLayers:
    wide = plain.intermediate
    output = plain.output
    dropout_prob = plain.dropout.p if plain.training else 0.0
    return FeedForwardLayers(
        intermediate=linear(wide.weight, wide.bias, dtype, plain.hidden_act, 0.0),
        output=linear(output.weight, output.bias, dtype, "linear", dropout_prob),
        norm=norm_of(plain.norm, dtype),
    )


def projection(block: AttentionBlock) -> tuple[Tensor, Tensor]:
    """Return the concatenated weights (3 H, H) and biases of query, key and value."""
    layers = (block.query, block.key, block.value)
    return torch.cat([x.weight for x in layers]), torch.cat([x.bias for x in layers])


def apply_steps(
    steps: Sequence[Step], hidden: Tensor, batch: Batch, queries: Tensor | None
) -> Iterator[Tensor]:
    """Yield the states after each step; the last step computes only `queries`."""
    num_tokens = len(batch.ids)
    order = None
    layout = Layout(batch)
    for number, step in enumerate(steps, start=1):
        if number == len(steps) and queries is not None:
            # Kernels take the queries sequence by sequence; the order is restored.
            ascending, order = queries.sort()
            layout = Layout(batch, ascending)
        hidden = step(hidden, layout)
        # Rows after the tokens are padding, which the next step may keep.
        if order is None:
            yield hidden[:num_tokens]
        else:
            yield hidden[order.argsort()]
