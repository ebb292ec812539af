"""Clipping by the global norm, before the optimizer's step."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

from litebert.errors import LitebertError


@torch.no_grad()
def clip_gradients(parameters: Iterable[Tensor], max_norm: float) -> Tensor:
    """Scale all gradients in place to a joint norm of at most `max_norm`; return the norm before.

    The norm is a 0-dimensional tensor on the gradients' device, so the host does not wait. If it is
    not finite, the gradients are unchanged, for inspection, and the caller must not step. Gradients
    within the limit keep their exact bits (official optimization.py L106: 1.0;
    tf.clip_by_global_norm).

    >>> weight = torch.nn.Parameter(torch.zeros(2))
    >>> weight.grad = torch.tensor([3.0, 4.0])
    >>> clip_gradients([weight], 1.0), weight.grad
    (tensor(5.), tensor([0.6000, 0.8000]))
    """
    if not max_norm > 0:
        raise LitebertError(
            "LB-425",
            "gradients cannot be clipped to this norm",
            received=f"max_norm={max_norm}",
            expected="a number above 0",
            next="use 1.0, as the official runs did",
        )
    gradients = [each.grad for each in parameters if each.grad is not None]
    if not gradients:
        return torch.zeros(())
    norm: Tensor = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(gradients)))
    scale = max_norm / norm.clamp(min=max_norm)
    torch._foreach_mul_(gradients, torch.where(norm.isfinite(), scale, 1.0))
    return norm
