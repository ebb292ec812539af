"""How weights begin: a normal of std .02 cut at two sigma, biases zero (modeling.py L442)."""

from __future__ import annotations

import torch
from torch import nn

from litebert.config import Precision

DTYPES: dict[Precision, torch.dtype] = {"fp32": torch.float32, "bf16": torch.bfloat16}
"""The dtype of activations for each precision."""


def initialise(module: nn.Module, *, std: float, generator: torch.Generator | None = None) -> None:
    """Set kernels and tables to a truncated normal that is not rescaled (real std .88 of `std`)."""
    for name, parameter in module.named_parameters():
        if name.endswith("bias"):
            nn.init.zeros_(parameter)
        elif parameter.ndim == 1:
            nn.init.ones_(parameter)
        else:
            nn.init.trunc_normal_(parameter, 0.0, std, -2 * std, 2 * std, generator)
