"""Layers stored in eight bits, symmetric with one scale per row; as modules they use float32.

Files have `quantized` and `scale` instead of `weight`.
"""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F


class Int8Linear(nn.Module):
    """A linear layer stored in eight bits; as a module it computes in float32."""

    quantized: Int[Tensor, "outputs inputs"]
    scale: Float[Tensor, " outputs"]
    bias: Float[Tensor, " outputs"]
    dropout_prob = 0.0

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        _register(self, linear.weight)
        self.register_buffer("bias", linear.bias.detach())

    @property
    def weight(self) -> Float[Tensor, "outputs inputs"]:
        """The dequantized weight."""
        return self.quantized * self.scale[:, None]

    def forward(self, x: Float[Tensor, "... inputs"], residual: Tensor | None = None) -> Float[Tensor, "... outputs"]:
        """Return x W^T + b, plus the residual if there is one."""
        product = F.linear(x, self.weight, self.bias)
        return product if residual is None else residual + product


class Int8Embedding(nn.Module):
    """A table of vectors stored in eight bits, with one scale per row."""

    quantized: Int[Tensor, "rows size"]
    scale: Float[Tensor, " rows"]

    def __init__(self, embedding: nn.Embedding) -> None:
        super().__init__()
        _register(self, embedding.weight)

    @property
    def weight(self) -> Float[Tensor, "rows size"]:
        """The dequantized table."""
        return self.quantized * self.scale[:, None]

    def forward(self, ids: Int[Tensor, "*shape"]) -> Float[Tensor, "*shape size"]:
        """Return the rows of `ids`."""
        return self.quantized[ids] * self.scale[ids][..., None]


def _register(module: nn.Module, weight: Tensor) -> None:
    if weight.is_meta:  # shapes alone: computing on the meta device would load torch's compiler
        scale = torch.empty(len(weight), device="meta")
        quantized = torch.empty(weight.shape, dtype=torch.int8, device="meta")
    else:
        weight = weight.detach().float()
        scale = weight.abs().amax(1).clamp(min=1e-12) / 127
        quantized = (weight / scale[:, None]).round().to(torch.int8)
    module.register_buffer("quantized", quantized)
    module.register_buffer("scale", scale)
