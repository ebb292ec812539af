"""What the machine can do: the rate of one large product with packed weights, by precision.

FLOPs of a network are those of its matrix products, layers unrolled (never 6N: weights are shared).
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from benchmarks.speed.timing import Call
from litebert.config import AlbertConfig

ROWS, INNER, COLUMNS = 1_024, 768, 3_072
FLOPS = 2 * ROWS * INNER * COLUMNS


def products() -> dict[str, Call]:
    """Return a call by precision, on random numbers; private operators of torch, hence here alone.

    The int8 product is of unsigned activations, zero at 128, and signed weights.
    """
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(ROWS, INNER, generator=generator)
    weight = torch.randn(COLUMNS, INNER, generator=generator)
    calls: dict[str, Call] = {}
    for name, dtype in (("fp32", torch.float32), ("bf16", torch.bfloat16)):
        packed = torch.ops.mkldnn._reorder_linear_weight(weight.to(dtype), ROWS)
        arguments = (x.to(dtype), packed, None, "none", [], "")
        calls[name] = _called(torch.ops.mkldnn._linear_pointwise, arguments)
    unsigned = (x * 40 + 128).clamp(0, 255).to(torch.uint8)
    signed = (weight * 40).clamp(-127, 127).to(torch.int8)
    packed = torch.ops.onednn.qlinear_prepack(signed, [ROWS, INNER])
    scales, zeros = torch.full((COLUMNS,), 0.025), torch.zeros(COLUMNS, dtype=torch.int32)
    weights = (packed, scales, zeros, None)
    arguments = (unsigned, 0.025, 128, *weights, 1.0, 0, torch.float32, "none", [], "")
    calls["int8"] = _called(torch.ops.onednn.qlinear_pointwise, arguments)
    return calls


def _called(operator: torch._ops.OpOverloadPacket, arguments: tuple[object, ...]) -> Call:
    return lambda: operator(*arguments)


def forward_flops(config: AlbertConfig, lengths: Sequence[int]) -> int:
    """Count the encoder's products for sequences of these lengths, padding not counted."""
    size, wide = config.hidden_size, config.intermediate_size
    a_token = config.num_steps * 2 * (4 * size * size + 2 * size * wide)
    a_token += 2 * config.embedding_size * size
    attention = config.num_steps * 4 * size * sum(n * n for n in lengths)
    return a_token * sum(lengths) + attention


def step_flops(config: AlbertConfig, lengths: Sequence[int], num_masked: int) -> int:
    """Count a pretraining step's products: forward and, twice that, backward."""
    small = config.embedding_size
    head = 2 * num_masked * small * (config.hidden_size + config.vocab_size)
    return 3 * (forward_flops(config, lengths) + head)
