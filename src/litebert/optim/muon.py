"""Muon: matrices move by their orthogonalised momentum, everything else by Adam."""

from __future__ import annotations

import torch
from torch import Tensor

from litebert.optim.moments import GroupSettings, MomentOptimizer, dense_gradient

_COEFFICIENTS = (3.4445, -4.7750, 2.0315)
"""The quintic whose iteration moves singular values into about [0.7, 1.2] (Jordan, 2024)."""
_ITERATIONS = 5


class Muon(MomentOptimizer):
    """Update matrices by lr sqrt(max(1, rows / columns)) orth(momentum); the rest as AdamW.

    Jordan et al., "Muon: an optimizer for hidden layers in neural networks", 2024. Groups with
    `is_matrix` have the matrices; their momentum is Nesterov's, and their rate is per unit of
    spectral norm. Query, key and value are separate parameters, so each is orthogonalised alone.

    >>> weight = torch.nn.Parameter(torch.zeros(2, 2))
    >>> weight.grad = torch.tensor([[5.0, 0.0], [0.0, 0.1]])
    >>> Muon([{"params": [weight], "is_matrix": True}], lr=1.0).step()
    >>> bool((weight.diagonal() < -0.6).all())  # both directions count alike
    True
    """

    def state_names(self, settings: GroupSettings) -> tuple[str, ...]:
        """Return the names of the state tensors; matrices have one moment."""
        if not settings["is_matrix"]:
            return super().state_names(settings)
        return ("muon_m", "step", "average") if settings["average_decay"] else ("muon_m",)

    def _updates(
        self, parameters: list[Tensor], states: list[dict[str, Tensor]], settings: GroupSettings
    ) -> tuple[Tensor, ...]:
        if not settings["is_matrix"]:
            return super()._updates(parameters, states, settings)
        gradients = [dense_gradient(parameter) for parameter in parameters]
        moments = [state["muon_m"] for state in states]
        momentum = settings["momentum"]
        torch._foreach_lerp_(moments, gradients, 1 - momentum)
        ahead = torch._foreach_lerp(gradients, moments, momentum)  # Nesterov's look-ahead
        updates = tuple(orthogonalised(each) for each in ahead)
        torch._foreach_mul_(updates, [max(1, p.shape[0] / p.shape[1]) ** 0.5 for p in parameters])
        torch._foreach_add_(updates, parameters, alpha=settings["weight_decay"])
        return updates


def orthogonalised(matrix: Tensor) -> Tensor:
    """Return approximately U V^T of a matrix U S V^T: all its singular values end near 1.

    Five Newton-Schulz steps on the matrix divided by its norm, in bf16 where that is fast. A zero
    matrix stays zero.
    """
    dtype = torch.bfloat16 if _has_bf16(matrix.device) else matrix.dtype
    is_tall = matrix.shape[0] > matrix.shape[1]
    x = (matrix.T if is_tall else matrix).to(dtype)
    x = x / (x.norm() + 1e-7)
    a, b, c = _COEFFICIENTS
    for _ in range(_ITERATIONS):
        gram = x @ x.T
        x = torch.addmm(x, torch.addmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    x = x.to(matrix.dtype)
    return x.T.contiguous() if is_tall else x


def _has_bf16(device: torch.device) -> bool:
    if device.type == "cuda":
        return torch.cuda.get_device_capability(device) >= (8, 0)
    return device.type != "cpu" or torch.cpu._is_avx512_bf16_supported()
