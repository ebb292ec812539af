"""LAMB as in ALBERT's pretraining: one trust ratio per variable, never clipped."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from litebert.optim.moments import GroupSettings, MomentOptimizer


class Lamb(MomentOptimizer):
    """Update p by lr ratio u in place, where u is AdamW's direction and ratio = |p| / |u|.

    Official lamb_optimizer.py L66-122; You et al., arXiv 1904.00962. The ratio is 1 if a norm is 0,
    and in groups with `is_adapted=False` (norms and biases; `parameter_groups` sets it). Each
    parameter has its own ratio, as upstream's variables do: query, key and value have three, and a
    block that all layers share has one set.

    >>> weight = torch.nn.Parameter(torch.tensor([3.0, 4.0]))
    >>> weight.grad = torch.tensor([1.0, 1.0])
    >>> Lamb([weight], lr=0.1, weight_decay=0.0).step()
    >>> weight.detach()  # moved by lr |p| = 0.5, for any size of gradient
    tensor([2.6464, 3.6464])
    """

    def _updates(
        self, parameters: list[Tensor], states: list[dict[str, Tensor]], settings: GroupSettings
    ) -> tuple[Tensor, ...]:
        updates = super()._updates(parameters, states, settings)
        if settings["is_adapted"]:
            torch._foreach_mul_(updates, trust_ratios(parameters, updates).unbind())
        return updates


def trust_ratios(parameters: Sequence[Tensor], updates: Sequence[Tensor]) -> Tensor:
    """Return |p| / |u| for each pair, shape (pairs,); 1 where either norm is 0.

    >>> trust_ratios([torch.tensor([3.0, 4.0]), torch.zeros(2)], [torch.ones(1), torch.ones(1)])
    tensor([5., 1.])
    """
    lengths = torch.stack(torch._foreach_norm(list(parameters)))
    strides = torch.stack(torch._foreach_norm(list(updates)))
    return torch.where((lengths > 0) & (strides > 0), lengths / strides, 1.0)
