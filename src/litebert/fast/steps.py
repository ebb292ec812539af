"""Packing: the steps of a network prepared for inference, their weights cast and packed once."""

from __future__ import annotations

from litebert.fast.int8 import Calibration, calibration_of, int8_attention, int8_feed_forward
from litebert.fast.packed import packed_attention, packed_feed_forward
from litebert.nn.block import AttentionBlock, FeedForwardBlock
from litebert.nn.model import Albert, Steps


def pack(albert: Albert) -> None:
    """Prepare the weights, as they are now, for inference, in eight bits if they are stored so.

    Training and gradients do not use what is packed; `train()` and new weights drop it.
    """
    calibration = calibration_of(albert)
    albert.use(_packed_steps(albert) if calibration is None else _int8_steps(albert, calibration))


def _packed_steps(albert: Albert) -> Steps:
    return albert.in_order(
        [packed_attention(block, albert.dtype) for block in albert.blocks(AttentionBlock)],
        [packed_feed_forward(block, albert.dtype) for block in albert.blocks(FeedForwardBlock)],
    )


def _int8_steps(albert: Albert, calibration: Calibration) -> Steps:
    """Bind the blocks, packed once, to the inputs that each step gives them."""
    attention = [int8_attention(block, calibration) for block in albert.blocks(AttentionBlock)]
    feed_forward = [
        int8_feed_forward(block, calibration) for block in albert.blocks(FeedForwardBlock)
    ]
    return [
        (attention[step.attention](i), feed_forward[step.feed_forward](i))
        for i, step in enumerate(albert.plan)
    ]
