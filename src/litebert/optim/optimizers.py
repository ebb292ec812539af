"""AdamW, used to fine-tune ALBERT, LAMB, used to pretrain it, and Muon.

Line numbers are those of google-research/albert.
"""

from typing import ClassVar

import torch
from torch import Tensor

from litebert.device import device_at
from litebert.optim.moments import STATE_NAMES, Group, MomentOptimizer, State
from litebert.plugins import OPTIMIZERS


class AdamW(MomentOptimizer):
    """Update p by lr (m / (sqrt(v) + eps) + weight_decay p), in place (optimization.py
    L120-207).

    Unlike `torch.optim.AdamW`, it has no bias correction by default: the first steps
    are larger, which is why upstream warms up. Build the groups with
    `parameter_groups`, so that norms and biases do not decay.

    >>> weight = torch.nn.Parameter(torch.tensor([0.5], dtype=torch.float64))
    >>> weight.grad = torch.tensor([0.1], dtype=torch.float64)
    >>> AdamW([weight], lr=0.01).step()
    >>> round(weight.item(), 10)
    0.4683372202
    """


class Lamb(MomentOptimizer):
    """Update p by lr ratio u in place, where u is AdamW's direction and ratio = |p| /
    |u|, never clipped.

    Official lamb_optimizer.py L66-122; You et al., arXiv 1904.00962. The ratio is 1 if
    a norm is 0, and in groups with `is_adapted=False` (norms and biases). Each
    parameter has its own ratio, as upstream's variables do: query, key and value have
    three, and a block that all layers share has one set.

    >>> weight = torch.nn.Parameter(torch.tensor([3.0, 4.0]))
    >>> weight.grad = torch.tensor([1.0, 1.0])
    >>> Lamb([weight], lr=0.1, weight_decay=0.0).step()
    >>> weight.detach()  # moved by lr |p| = 0.5, for any size of gradient
    tensor([2.6464, 3.6464])
    """

    scales_by_norms: ClassVar[bool] = True


class Muon(MomentOptimizer):
    """Update matrices by lr sqrt(max(1, rows / columns)) orth(momentum); the rest as
    AdamW.

    Jordan et al., "Muon: an optimizer for hidden layers in neural networks", 2024.
    Groups with `is_matrix` hold the matrices; their momentum is Nesterov's, and their
    rate is per unit of spectral norm. Query, key and value are separate parameters,
    orthogonalized one by one. (torch.optim.Muon takes only matrices, without an
    average.)
    """

    has_matrices: ClassVar[bool] = True
    corrects_bias: ClassVar[bool] = True

    def state_names(self, group: Group) -> tuple[str, ...]:
        return ("muon_m",) if group["is_matrix"] else STATE_NAMES

    def updates(
        self,
        parameters: list[Tensor],
        gradients: list[Tensor],
        states: list[State],
        group: Group,
    ) -> tuple[Tensor, ...]:
        if not group["is_matrix"]:
            return super().updates(parameters, gradients, states, group)
        moments = [state["muon_m"] for state in states]  # (rows, columns) each
        momentum = group["momentum"]
        torch._foreach_lerp_(moments, gradients, 1 - momentum)  # m += (1 - mu) (g - m)
        # Nesterov's look-ahead: where m would be after the same gradient once more
        ahead = torch._foreach_lerp(gradients, moments, momentum)
        updates = tuple(self.orthogonalized(direction) for direction in ahead)
        # Rows are outputs: a tall matrix may move further for the same change of its
        # outputs. This is Jordan's factor; that of Liu et al. (arXiv 2502.16982), 0.2
        # sqrt(max(rows, columns)), would take AdamW's rates.
        scales = [max(1, p.shape[0] / p.shape[1]) ** 0.5 for p in parameters]
        torch._foreach_mul_(updates, scales)
        torch._foreach_add_(updates, parameters, alpha=group["weight_decay"])
        return updates

    def orthogonalized(self, direction: Tensor) -> Tensor:
        return orthogonalize(direction)


def orthogonalize(matrix: Tensor) -> Tensor:
    """Return approximately U V^T of a matrix U S V^T: all its singular values end near
    1.

    Five Newton-Schulz steps on the matrix divided by its norm, in bf16 where that is
    fast, with the quintic that moves singular values into about [0.7, 1.2] (Jordan,
    2024). A zero matrix stays zero.
    """
    # A wide matrix has the smaller Gram matrix, (rows, rows): for a feed-forward layer
    # a sixteenth of the other.
    is_tall = matrix.shape[0] > matrix.shape[1]
    wide = matrix.T if is_tall else matrix  # (rows, columns), rows <= columns
    x = wide.to(device_at(matrix.device).product_dtype)
    x = x / (x.norm() + 1e-7)  # so that no singular value is above 1
    # Jordan's coefficients: they trade exact convergence to 1 for a steep start at 0.
    a = 3.4445
    b = -4.7750
    c = 2.0315
    for _ in range(5):  # x = a x + b (x xᵀ) x + c (x xᵀ)² x
        gram = x @ x.T  # (rows, rows)
        polynomial = torch.addmm(gram, gram, gram, beta=b, alpha=c)
        x = torch.addmm(x, polynomial, x, beta=a)
    orthogonal = x.to(matrix.dtype)
    return orthogonal.T.contiguous() if is_tall else orthogonal


OPTIMIZERS.add("lamb", Lamb)
OPTIMIZERS.add("adamw", AdamW)
OPTIMIZERS.add("muon", Muon)
