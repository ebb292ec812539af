"""AdamW as in ALBERT's fine-tuning: decoupled decay, no bias correction."""

from __future__ import annotations

from litebert.optim.moments import MomentOptimizer


class AdamW(MomentOptimizer):
    """Update p by lr (m / (sqrt(v) + eps) + weight_decay p), in place (optimization.py L120-207).

    Unlike `torch.optim.AdamW`, it has no bias correction by default: the first steps are larger,
    which is why upstream warms up. Build the groups with `parameter_groups`, so that norms and
    biases do not decay.

    >>> import torch
    >>> weight = torch.nn.Parameter(torch.tensor([0.5], dtype=torch.float64))
    >>> weight.grad = torch.tensor([0.1], dtype=torch.float64)
    >>> AdamW([weight], lr=0.01).step()
    >>> round(weight.item(), 10)
    0.4683372202
    """
