"""Which parameters decay and adapt: all but layer norms and biases."""

from __future__ import annotations

import re
from collections.abc import Iterable

from torch import Tensor

_EXCLUDED = re.compile(r"LayerNorm|layer_norm|bias|norm\.")
"""Upstream's pattern (optimization.py L83), and our own modules called `norm` or `…_norm`."""


def parameter_groups(
    named_parameters: Iterable[tuple[str, Tensor]], *, weight_decay: float
) -> list[dict[str, object]]:
    """Split parameters into those that decay and adapt and those that do neither, names kept.

    An empty group is left out, since torch refuses one beside named parameters.

    >>> import torch
    >>> ffn = torch.nn.Linear(2, 2)
    >>> for group in parameter_groups(ffn.named_parameters(), weight_decay=0.01):
    ...     print([name for name, _ in group["params"]], group["weight_decay"], group["is_adapted"])
    ['weight'] 0.01 True
    ['bias'] 0.0 False
    """
    kept: list[tuple[str, Tensor]] = []
    excluded: list[tuple[str, Tensor]] = []
    for name, parameter in named_parameters:
        (excluded if _EXCLUDED.search(name) else kept).append((name, parameter))
    groups: list[dict[str, object]] = [
        {"params": kept, "weight_decay": weight_decay, "is_adapted": True},
        {"params": excluded, "weight_decay": 0.0, "is_adapted": False},
    ]
    return [group for group in groups if group["params"]]
