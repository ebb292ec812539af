"""Parameter groups: all parameters decay and adapt, except layer norms and biases."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from torch import Tensor

_EXCLUDED = re.compile(r"LayerNorm|layer_norm|bias|norm\.")
"""Upstream's pattern (optimization.py L83), and our own modules called `norm` or `…_norm`."""

_HIDDEN = re.compile(r"(attention|feed_forward)\.\d+\.|projection\.|pooler\.|masked_lm\.dense\.")


def parameter_groups(
    named_parameters: Iterable[tuple[str, Tensor]],
    *,
    weight_decay: float,
    rate_scales: Mapping[str, float] | None = None,
    matrix_scale: float | None = None,
) -> list[dict[str, object]]:
    """Split named parameters into those that decay and adapt, and those that do neither.

    With `matrix_scale`, the matrices of hidden layers have separate groups (`is_matrix`), whose
    learning rate is that factor times the others'. `rate_scales` are factors on the learning rate
    by parameter name, 1 by default; parameters with the same factor share a group. Empty groups are
    omitted, since torch refuses them together with named parameters.

    >>> import torch
    >>> ffn = torch.nn.Linear(2, 2)
    >>> for group in parameter_groups(ffn.named_parameters(), weight_decay=0.01):
    ...     print([name for name, _ in group["params"]], group["weight_decay"], group["is_adapted"])
    ['weight'] 0.01 True
    ['bias'] 0.0 False
    """
    members: dict[tuple[bool, bool, float], list[tuple[str, Tensor]]] = {}
    for name, parameter in named_parameters:
        is_adapted = not _EXCLUDED.search(name)
        scale = (rate_scales or {}).get(name, 1.0)
        is_matrix = matrix_scale is not None and is_hidden_matrix(name, parameter)
        if is_matrix and matrix_scale is not None:
            scale *= matrix_scale
        members.setdefault((is_adapted, is_matrix, scale), []).append((name, parameter))
    return [
        {
            "params": parameters,
            "weight_decay": weight_decay if is_adapted else 0.0,
            "is_adapted": is_adapted,
            "is_matrix": is_matrix,
            "rate_scale": scale,
        }
        for (is_adapted, is_matrix, scale), parameters in sorted(
            members.items(), key=lambda item: (not item[0][0], item[0][1], -item[0][2])
        )
    ]


def is_hidden_matrix(name: str, parameter: Tensor) -> bool:
    """Tell whether a parameter maps one hidden vector to another.

    Embedding tables and the output layer of a classifier do not: their rows are symbols.
    """
    return parameter.ndim == 2 and bool(_HIDDEN.search(name))
