"""Cast weights to a lower precision, with gradients that are summed in the original one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from litebert.config import Precision
from litebert.nn.block import Linear, Norm

DTYPES: dict[Precision, torch.dtype] = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
"""The dtype of activations for each precision."""


def exact_dtype(device: torch.device) -> torch.dtype:
    """Return the dtype for sums of many numbers; Apple's GPUs have no float64.

    >>> exact_dtype(torch.device("cpu")), exact_dtype(torch.device("mps"))
    (torch.float64, torch.float32)
    """
    return torch.float32 if device.type == "mps" else torch.float64


def cast(weight: Tensor, dtype: torch.dtype) -> Callable[[], Tensor]:
    """Return a function that gives the weight in `dtype`, cast once, for each of its uses.

    A shared block is used many times. The gradients of its uses are summed in float32: in bf16, a
    sum loses terms below 1/256 of it.

    >>> weight = torch.ones(1, requires_grad=True)
    >>> use = cast(weight, torch.bfloat16)
    >>> (256 * use() + use()).sum().backward()
    >>> weight.grad  # in bf16 it would be 256
    tensor([257.])
    """
    if weight.dtype == dtype:
        return lambda: weight
    copied = weight.detach().to(dtype)

    def use() -> Tensor:
        if not (torch.is_grad_enabled() and weight.requires_grad):
            return copied
        used: Tensor = _Use.apply(weight, copied)  # type: ignore[no-untyped-call]
        return used

    return use


class _Use(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, weight: Tensor, copied: Tensor) -> Tensor:
        """Return the copy; its gradient goes to the weight."""
        ctx.dtype = weight.dtype
        return copied.view_as(copied)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        """Return the gradient in the weight's precision."""
        return gradients[0].to(ctx.dtype), None


def cast_norm(norm: nn.LayerNorm, dtype: torch.dtype) -> Norm:
    """Return a layer norm on rows of `dtype`."""
    weight, bias = cast(norm.weight, dtype), cast(norm.bias, dtype)
    return lambda x: F.layer_norm(x, norm.normalized_shape, weight(), bias(), norm.eps)


def cast_linear(weight: Tensor, bias: Tensor, dtype: torch.dtype, dropout_prob: float = 0.0) -> Linear:
    """Return residual + dropout(x W^T + b) on rows of `dtype`."""
    weight_of_use, bias_of_use = cast(weight, dtype), cast(bias, dtype)

    def apply(x: Tensor, residual: Tensor | None) -> Tensor:
        product = F.dropout(F.linear(x, weight_of_use(), bias_of_use()), dropout_prob)
        return product if residual is None else residual + product

    return apply
