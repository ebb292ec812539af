"""Scale learning rates by depth: a factor for each layer below the head, and one for the head."""

from __future__ import annotations

import re

from litebert.nn import AlbertForTask

_HEAD = re.compile(r"(head|exits)\.")
_BLOCK = re.compile(r"albert\.(attention|feed_forward)\.(\d+)\.")


def rate_scales(network: AlbertForTask, *, decay: float = 1.0, head: float = 1.0) -> dict[str, float]:
    """Return the factor on the learning rate of each parameter; absent parameters have 1."""
    scales = _scales_by_depth(network, decay)
    if head != 1:
        names = (name for name, _ in network.named_parameters() if _HEAD.match(name))
        scales |= dict.fromkeys(names, head)
    return scales


def _scales_by_depth(network: AlbertForTask, decay: float) -> dict[str, float]:
    """Return `decay` to the number of layers above each parameter.

    Head and pooler have 1. A shared block has the mean depth of its uses; embeddings are below all
    layers. A decay of 1 scales nothing.
    """
    if decay == 1:
        return {}
    plan, steps_per_layer = network.albert.plan, network.config.inner_group_num
    uses: dict[tuple[str, int], list[int]] = {}
    for index, step in enumerate(plan):
        above = (len(plan) - 1 - index) // steps_per_layer
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
