"""The steps of a network, computed by the engine: for training, or packed for inference."""

from __future__ import annotations

from collections.abc import Sequence

from litebert.fast.attention import full
from litebert.fast.int8 import Calibration, calibration_of, int8_attention, int8_feed_forward
from litebert.fast.local import faster
from litebert.fast.packed import packed_attention, packed_feed_forward
from litebert.fast.precision import cast_linear, cast_norm
from litebert.fast.rows import linear_on_filled, on_batch
from litebert.nn.block import (
    AttentionBlock,
    AttentionPieces,
    FeedForwardBlock,
    FeedForwardPieces,
    Prepared,
    Steps,
    blocks,
    feed_forward_block,
)
from litebert.nn.model import Albert
from litebert.nn.task import AlbertForPretraining, Network


def accelerate(network: Network) -> None:
    """Compute the network with the engine's kernels from now on; it works without, but slower.

    Weights are joined and cast once for all steps that share them, rows are filled up, and
    attention takes the kernel that suits the device and the lengths.
    """
    network.albert.make_steps = training_steps
    if isinstance(network, AlbertForPretraining):
        network.masked_lm.linear = linear_on_filled


def training_steps(albert: Albert) -> Steps:
    """Return the functions of all steps, with dropout in training and with gradients."""
    return _in_order(
        albert,
        [_attention(block, albert) for block in blocks(albert, AttentionBlock)],
        [_feed_forward(block, albert) for block in blocks(albert, FeedForwardBlock)],
    )


def pack(albert: Albert) -> None:
    """Prepare the weights, as they are now, for inference, in eight bits if they are stored so.

    Training and gradients do not use what is packed; `train()` and new weights drop it.
    """
    calibration = calibration_of(albert)
    albert.prepared = (
        _packed_steps(albert) if calibration is None else _int8_steps(albert, calibration)
    )


def _attention(block: AttentionBlock, albert: Albert) -> Prepared:
    output, dtype = block.output, albert.dtype
    pieces = AttentionPieces(
        project=cast_linear(*block.projection(), dtype),
        output=cast_linear(
            output.weight, output.bias, dtype, block.hidden_dropout_prob * block.training
        ),
        norm=cast_norm(block.norm, dtype),
        heads=block.heads,
    )
    attend = faster(block.attend, full)
    return on_batch(pieces, attend, block.attention_dropout_prob * block.training)


def _feed_forward(block: FeedForwardBlock, albert: Albert) -> Prepared:
    inner, outer, dtype = block.intermediate, block.output, albert.dtype
    widen = cast_linear(inner.weight, inner.bias, dtype)
    pieces = FeedForwardPieces(
        intermediate=lambda x, _: block.activation(widen(x, None)),
        output=cast_linear(
            outer.weight, outer.bias, dtype, block.hidden_dropout_prob * block.training
        ),
        norm=cast_norm(block.norm, dtype),
    )
    return lambda x, _: feed_forward_block(x, pieces)


def _packed_steps(albert: Albert) -> Steps:
    return _in_order(
        albert,
        [packed_attention(block, albert.dtype) for block in blocks(albert, AttentionBlock)],
        [packed_feed_forward(block, albert.dtype) for block in blocks(albert, FeedForwardBlock)],
    )


def _int8_steps(albert: Albert, calibration: Calibration) -> Steps:
    """Bind the blocks, packed once, to the inputs that each step gives them."""
    attention = [int8_attention(block, calibration) for block in blocks(albert, AttentionBlock)]
    feed_forward = [
        int8_feed_forward(block, calibration) for block in blocks(albert, FeedForwardBlock)
    ]
    return [
        (attention[step.attention](i), feed_forward[step.feed_forward](i))
        for i, step in enumerate(albert.plan)
    ]


def _in_order(
    albert: Albert, attention: Sequence[Prepared], feed_forward: Sequence[Prepared]
) -> Steps:
    """Return the functions of every step of the plan."""
    return [(attention[step.attention], feed_forward[step.feed_forward]) for step in albert.plan]
