"""Smaller rates for what lies deeper: layer-wise decay of the learning rate."""

from __future__ import annotations

import re

from litebert.nn import AlbertForTask

_BLOCK = re.compile(r"albert\.(attention|feed_forward)\.(\d+)\.")


def rate_scales(network: AlbertForTask, decay: float) -> dict[str, float]:
    """Return a factor on the rate by parameter: `decay` to the number of layers above it.

    Head and pooler have 1. A shared block counts by its mean depth, as all its uses move it alike;
    embeddings lie below everything. A decay of 1 scales nothing.
    """
    if decay == 1:
        return {}
    plan, steps_a_layer = network.albert.plan, network.config.inner_group_num
    uses: dict[tuple[str, int], list[int]] = {}
    for index, step in enumerate(plan):
        above = (len(plan) - 1 - index) // steps_a_layer
        uses.setdefault(("attention", step.attention), []).append(above)
        uses.setdefault(("feed_forward", step.feed_forward), []).append(above)
    scales = {}
    for name, _ in network.named_parameters():
        if match := _BLOCK.match(name):
            above_all = uses[match[1], int(match[2])]
            scales[name] = decay ** (1 + sum(above_all) / len(above_all))
        elif name.startswith("albert.embedding."):
            scales[name] = decay ** (1 + network.config.num_hidden_layers)
    return scales
