"""Depth is a plan: for each step, which attention block and which feed-forward block to apply."""

from __future__ import annotations

from typing import NamedTuple

from litebert.config import AlbertConfig


class Step(NamedTuple):
    """Name the blocks of one step by their index in the two lists of blocks."""

    attention: int
    feed_forward: int


def depth_plan(config: AlbertConfig) -> tuple[Step, ...]:
    """Return the steps of a network, layer by layer and inner group by inner group.

    Every sharing of paper Table 4, groups and inner groups are plans; BERT is the plan `none`.
    Layer i uses group i * G // L (official modeling.py L1089, in integers).

    >>> depth_plan(AlbertConfig(num_hidden_layers=2, sharing="attention"))
    (Step(attention=0, feed_forward=0), Step(attention=0, feed_forward=1))
    """
    groups, inner = config.num_hidden_groups, config.inner_group_num
    steps = []
    for own in range(config.num_steps):
        layer, inner_index = divmod(own, inner)
        shared = layer * groups // config.num_hidden_layers * inner + inner_index
        steps.append(
            Step(
                attention=shared if config.sharing in ("all", "attention") else own,
                feed_forward=shared if config.sharing in ("all", "ffn") else own,
            )
        )
    return tuple(steps)
