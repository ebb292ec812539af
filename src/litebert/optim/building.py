"""An optimizer from a configuration, with its groups of parameters; and the norm of the
gradients that it gets.

Line numbers are those of google-research/albert.
"""

import re
from collections.abc import Iterable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from litebert.config import OptimConfig
from litebert.optim.moments import MomentOptimizer
from litebert.plugins import OPTIMIZERS

# Upstream's pattern (optimization.py L83), and our own modules called `norm` or
# `…_norm`.
_EXCLUDED = re.compile(r"LayerNorm|layer_norm|bias|norm\.")
# Matrices that map one hidden vector to another. In embedding tables and classifiers,
# rows are symbols.
_HIDDEN = re.compile(
    r"(attention|feed_forward)\.\d+\.|projection\.|pooler\.|masked_lm\.dense\."
)


def build_optimizer(
    config: OptimConfig,
    named_parameters: Iterable[tuple[str, Tensor]],
    *,
    head_scale: float = 1.0,
) -> MomentOptimizer:
    """Return the configured optimizer; norms and biases neither decay nor adapt."""
    optimizer_class: type[MomentOptimizer] = OPTIMIZERS[config.name]
    # All groups share one schedule and one learning rate; matrices multiply it by this
    # factor.
    matrix_scale = None
    if optimizer_class.has_matrices:
        matrix_scale = config.muon_learning_rate / config.learning_rate
    bias_correction = config.bias_correction
    if bias_correction is None:
        bias_correction = optimizer_class.corrects_bias
    groups = parameter_groups(
        named_parameters,
        weight_decay=config.weight_decay,
        head_scale=head_scale,
        matrix_scale=matrix_scale,
    )
    return optimizer_class(
        groups,
        config.learning_rate,
        betas=(config.beta1, config.beta2),
        eps=config.epsilon,
        weight_decay=config.weight_decay,
        bias_correction=bias_correction,
        average_decay=config.average_decay,
        momentum=config.muon_momentum,
        settings=config.settings,
    )


def parameter_groups(
    named_parameters: Iterable[tuple[str, Tensor]],
    *,
    weight_decay: float,
    head_scale: float = 1.0,
    matrix_scale: float | None = None,
) -> list[dict[str, Any]]:
    """Split named parameters into those that decay and adapt, and those that do
    neither.

    The learning rate of task heads is multiplied by `head_scale`. With `matrix_scale`,
    the matrices of hidden layers have groups of their own (`is_matrix`), with that
    factor. Torch keeps the names, under which the state is saved.
    """
    # parameters that are treated alike are one group, whose kernels run together
    parameters = dict[_Treatment, list[tuple[str, Tensor]]]()
    for name, parameter in named_parameters:
        is_matrix = False
        scale = head_scale if name.startswith("head.") else 1.0
        if matrix_scale is not None and parameter.ndim == 2 and _HIDDEN.search(name):
            is_matrix = True
            scale = scale * matrix_scale
        is_excluded = _EXCLUDED.search(name) is not None
        treatment = _Treatment(is_excluded, is_matrix, rate_scale=scale)
        parameters.setdefault(treatment, []).append((name, parameter))

    groups = list[dict[str, Any]]()
    for treatment in sorted(parameters, key=_Treatment.order):
        decay = 0.0 if treatment.is_excluded else weight_decay
        groups.append(
            {
                "params": parameters[treatment],
                "is_adapted": not treatment.is_excluded,
                "is_matrix": treatment.is_matrix,
                "rate_scale": treatment.rate_scale,
                "weight_decay": decay,
            }
        )
    return groups


class _Treatment(NamedTuple):
    """How a parameter is updated."""

    is_excluded: bool  # from decay and from adaptation
    is_matrix: bool
    rate_scale: float

    def order(self) -> tuple[bool, bool, float]:
        """Adapted groups with the highest rates come first."""
        return (self.is_excluded, self.is_matrix, -self.rate_scale)


# ---- the norm of the gradients -------------------------------------------------------


@torch.no_grad()
def clip_gradients(parameters: Iterable[Tensor], max_norm: float) -> Tensor:
    """Scale all gradients in place to a joint norm of at most `max_norm`; return the
    norm before clipping.

    The norm is a 0-dimensional tensor on the gradients' device, so the host does not
    wait. If it is not finite, the gradients are unchanged, for inspection, and the
    caller must not step. Official optimization.py L106 clips at 1.0; unlike torch's
    `clip_grad_norm_`, and like tf.clip_by_global_norm, it adds no 1e-6 to the norm.

    >>> weight = torch.nn.Parameter(torch.zeros(2))
    >>> weight.grad = torch.tensor([3.0, 4.0])
    >>> clip_gradients([weight], 1.0), weight.grad
    (tensor(5.), tensor([0.6000, 0.8000]))
    """
    assert max_norm > 0
    gradients = [p.grad for p in parameters if p.grad is not None]
    if not gradients:
        return torch.zeros(())
    # One norm of each gradient, then the norm of these: no gradient is copied.
    norms = torch.stack(torch._foreach_norm(gradients))  # (gradients,)
    norm: Tensor = torch.linalg.vector_norm(norms)  # of all elements together
    # a factor of 1 for all others, so that the host need not know which case it is
    is_long = (norm > max_norm) & norm.isfinite()
    torch._foreach_mul_(gradients, torch.where(is_long, max_norm / norm, 1.0))
    return norm
