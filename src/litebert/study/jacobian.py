"""The dominant eigenvalue of a step's Jacobian, by power iteration."""

from __future__ import annotations

import math

import torch
from pydantic import BaseModel
from torch import Tensor
from torch.autograd.functional import jvp

from litebert.nn import Albert, Batch

SEED = 12_345


class Eigenvalue(BaseModel):
    """The modulus of the dominant eigenvalue, and how the iterated direction turns.

    With a modulus below 1 the step is locally a contraction. `turn` is the cosine between a
    direction and its image: near 1 the eigenvalue is real and positive; near -1 it is real and
    negative (a period of two steps); in between there is a complex pair, or several eigenvalues
    have the same modulus.
    """

    modulus: float
    turn: float


@torch.enable_grad()
def dominant_eigenvalue(albert: Albert, batch: Batch, state: Tensor, power_steps: int) -> Eigenvalue:
    """Iterate v -> J v / |J v| at a state of the first sequence, all of its tokens together.

    The modulus is the geometric mean of the growth |J v| / |v| over the second half of the
    iterations, because a complex pair makes the growth oscillate. The plain blocks are used: a
    product with the Jacobian differentiates twice, which the fused blocks cannot.
    """
    length, last = batch.lengths[0], albert.plan[-1]
    alone = Batch.from_flat(batch.ids[:length], batch.segments[:length], (length,))
    attend, transform = albert.attention[last.attention], albert.feed_forward[last.feed_forward]
    point = state[:length].detach().float()

    def step(x: Tensor) -> Tensor:
        moved: Tensor = transform(attend(x, alone))
        return moved

    draws = torch.Generator().manual_seed(SEED)
    direction = torch.randn(point.shape, generator=draws)
    direction = direction / direction.norm()
    growths, turns = [], []
    for _ in range(power_steps):
        image: Tensor = jvp(step, point, direction)[1]  # type: ignore[no-untyped-call]
        growth = image.norm()
        growths.append(math.log(max(float(growth), 1e-30)))
        turns.append(float((direction * image).sum() / growth))
        direction = image / growth
    half = growths[len(growths) // 2 :]
    return Eigenvalue(modulus=math.exp(sum(half) / len(half)), turn=turns[-1])
