"""Which parameters decay and adapt: all but layer norms and biases."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from torch import Tensor

_EXCLUDED = re.compile(r"LayerNorm|layer_norm|bias|norm\.")
"""Upstream's pattern (optimization.py L83), and our own modules called `norm` or `…_norm`."""


def parameter_groups(
    named_parameters: Iterable[tuple[str, Tensor]],
    *,
    weight_decay: float,
    rate_scales: Mapping[str, float] | None = None,
) -> list[dict[str, object]]:
    """Split parameters into those that decay and adapt and those that do neither, names kept.

    `rate_scales` gives factors on the learning rate by parameter name, 1 where there is none;
    parameters of one factor share a group. An empty group is left out, since torch refuses one
    beside named parameters.

    >>> import torch
    >>> ffn = torch.nn.Linear(2, 2)
    >>> for group in parameter_groups(ffn.named_parameters(), weight_decay=0.01):
    ...     print([name for name, _ in group["params"]], group["weight_decay"], group["is_adapted"])
    ['weight'] 0.01 True
    ['bias'] 0.0 False
    """
    members: dict[tuple[bool, float], list[tuple[str, Tensor]]] = {}
    for name, parameter in named_parameters:
        is_adapted = not _EXCLUDED.search(name)
        scale = (rate_scales or {}).get(name, 1.0)
        members.setdefault((is_adapted, scale), []).append((name, parameter))
    return [
        {
            "params": parameters,
            "weight_decay": weight_decay if is_adapted else 0.0,
            "is_adapted": is_adapted,
            "rate_scale": scale,
        }
        for (is_adapted, scale), parameters in sorted(
            members.items(), key=lambda item: (not item[0][0], -item[0][1])
        )
    ]
