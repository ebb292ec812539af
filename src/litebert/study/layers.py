"""Figure 1 of the paper: what each step changes, and where the network goes beyond its depth.

The paper compares the input and the output of each layer and finds that they "are oscillating rather than converging"
(3.1). It gives neither its texts nor a criterion; ours are below.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from statistics import fmean
from typing import Literal

import torch
from pydantic import BaseModel
from torch import Tensor
from torch.autograd.functional import jvp
from torch.nn import functional as F

from litebert.errors import LitebertError
from litebert.fast.attention import Layout
from litebert.fast.engine import engine_of
from litebert.inference.model import Model
from litebert.inference.pretrained import frame
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


BEYOND = (24, 48, 96)
"""Depths at which iterates beyond the trained depth are judged."""
STILL = 0.01
"""A state that moves by less than this share of its length in a step has converged."""
RETURN = 0.5
"""States oscillate if after some period they are within this share of a step of where they were."""
MOST_PERIOD, WINDOW = 8, 8
LEAST_DEPTH = MOST_PERIOD + WINDOW
"""At a smaller depth there are too few states to find a period."""

CLOSING = 0.5
"""Iterates close in on a point if the steps shrank by this factor since half the depth."""

Verdict = Literal["converges", "closes in", "oscillates", "wanders"]


class StepChange(BaseModel):
    """Input and output of one step: means over the tokens of the texts.

    `block` is the one that the step applies, numbered by first use. `l2` is their distance,
    `cosine` their similarity, `angle` its arc in degrees, `norm` the length of the output,
    `residual` the distance as a share of the length of the input.
    """

    step: int
    block: int
    l2: float
    cosine: float
    angle: float
    norm: float
    residual: float


class Fate(BaseModel):
    """Where the iterates stand at a depth beyond the trained one.

    They converge if a step moves a state by less than 1 % of its length; oscillate if after some
    period a state is within half a step of where it was; close in if the steps shrank to a half
    since half the depth; and wander otherwise.
    `residual` is the mean over the last 8 steps; `period` and `return_residual` belong to the
    period of 2 to 8 steps after which the states come closest to where they were.
    """

    depth: int
    verdict: Verdict
    residual: float
    period: int
    return_residual: float


class Layers(BaseModel):
    """What `litebert study layers` found in one network."""

    source: str
    is_shared: bool
    num_steps: int
    num_tokens: int
    steps: list[StepChange]
    beyond: list[StepChange]
    fates: list[Fate]
    eigenvalue_at_depth: Eigenvalue
    eigenvalue_at_end: Eigenvalue

    @property
    def summary(self) -> str:
        """Say in one sentence what happens beyond the trained depth."""
        repeated = "its shared step" if self.is_shared else "its last step"
        blocks = self.steps[-1].block
        if 1 < blocks < self.num_steps:
            repeated = f"the last of its {blocks} blocks"
        fates = ", ".join(f"{fate.verdict} at step {fate.depth}" for fate in self.fates)
        last = self.fates[-1]
        return (
            f"{self.source}, trained with {self.num_steps} steps: applying {repeated} further, it "
            f"{fates}. In the end a step moves a state by {last.residual:.1%} of its length; the "
            f"dominant eigenvalue has modulus {self.eigenvalue_at_end.modulus:.2f} there and "
            f"{self.eigenvalue_at_depth.modulus:.2f} at the trained depth."
        )


def measure_layers(
    model: Model, texts: Sequence[str], *, depths: Sequence[int] = BEYOND, power_steps: int = 40
) -> Layers:
    """Measure each step of a model over the pieces of texts, [CLS] and [SEP] not counted.

    Beyond the trained depth the block of the last step is applied again and again. With one block
    that continues the plan; with several (groups, or no sharing) only the last can be iterated,
    because an equilibrium is the fixed point of one map.

    Raises:
        LitebertError: LB-749, there is no text; LB-761, no depth is beyond the trained one.
    """
    encoded = [ids for ids in model.tokenizer.encode_ids(texts) if ids]
    if not encoded:
        raise LitebertError(
            "LB-749",
            "there are no texts to measure the steps on",
            received=f"{len(texts)} texts, all of them empty",
            expected="at least one text",
            next="litebert study layers --help",
        )
    batch = frame(model.network, model.tokenizer, encoded)
    specials = torch.tensor([model.tokenizer.cls_id, model.tokenizer.sep_id])
    counted = ~torch.isin(batch.ids, specials)
    return layers_of(model.network.albert, batch, counted, source=model.source, depths=depths, power_steps=power_steps)


@torch.no_grad()
def layers_of(
    albert: Albert, batch: Batch, counted: Tensor, *, source: str, depths: Sequence[int] = BEYOND, power_steps: int = 40
) -> Layers:
    """Measure an encoder on a batch; `counted` is true for the tokens that enter the means."""
    trained, deepest = len(albert.plan), max(depths)
    blocks = list(dict.fromkeys(albert.plan))
    if deepest <= trained or min(depths) < LEAST_DEPTH:
        raise LitebertError(
            "LB-761",
            "these depths say nothing about what lies beyond the trained one",
            received=", ".join(map(str, depths)),
            expected=f"depths from {LEAST_DEPTH} on, one of them above {trained}",
            next="litebert study layers --help",
        )
    changes: list[StepChange] = []
    fates: list[Fate] = []
    residuals: list[float] = []
    recent: list[Tensor] = []
    at_depth = end = next(albert.states(batch))
    for number, state in enumerate(_iterates(albert, batch, deepest)):
        if recent:
            block = 1 + blocks.index(albert.plan[min(number, trained) - 1])
            changes.append(_change(number, block, recent[-1][counted], state[counted]))
            residuals.append(changes[-1].residual)
        recent = [*recent[-(MOST_PERIOD + WINDOW) :], state]
        if number in depths and number > trained:
            fates.append(_fate(residuals, [each[counted] for each in recent]))
        at_depth = state if number == trained else at_depth
        end = state
    return Layers(
        source=source,
        is_shared=len(set(albert.plan)) == 1,
        num_steps=trained,
        num_tokens=int(counted.sum()),
        steps=changes[:trained],
        beyond=changes[trained:],
        fates=fates,
        eigenvalue_at_depth=dominant_eigenvalue(albert, batch, at_depth, power_steps),
        eigenvalue_at_end=dominant_eigenvalue(albert, batch, end, power_steps),
    )


def _iterates(albert: Albert, batch: Batch, depth: int) -> Iterator[Tensor]:
    """Yield the embeddings and the state after each step, the last step again beyond the plan."""
    layout, state, steps = Layout(batch), next(albert.states(batch)), engine_of(albert)(albert).steps
    yield state.float()
    for number in range(depth):
        state = steps[min(number, len(steps) - 1)](state, layout)
        yield state[: len(batch.ids)].float()


def _change(step: int, block: int, before: Tensor, after: Tensor) -> StepChange:
    cosine = F.cosine_similarity(before, after, dim=-1).clamp(-1, 1)
    distance = (after - before).norm(dim=-1)
    return StepChange(
        step=step,
        block=block,
        l2=float(distance.mean()),
        cosine=float(cosine.mean()),
        angle=float(cosine.arccos().mean() * 180 / math.pi),
        norm=float(after.norm(dim=-1).mean()),
        residual=float((distance / before.norm(dim=-1)).mean()),
    )


def _fate(residuals: Sequence[float], recent: Sequence[Tensor]) -> Fate:
    """Classify the last iterates: converged, periodic, slowing down, or none of these."""
    depth = len(residuals)
    by_lag = {lag: _lagged(recent, lag) for lag in range(1, MOST_PERIOD + 1)}
    residual = by_lag.pop(1)
    returning = [lag for lag, moved in by_lag.items() if moved < RETURN * residual]
    period = returning[0] if returning else min(by_lag, key=by_lag.__getitem__)
    half_way = fmean(residuals[max(0, depth // 2 - WINDOW) : depth // 2])
    verdict: Verdict = "wanders"
    if residual < STILL:
        verdict = "converges"
    elif returning:
        verdict = "oscillates"
    elif residual < CLOSING * half_way:
        verdict = "closes in"
    return Fate(depth=depth, verdict=verdict, residual=residual, period=period, return_residual=by_lag[period])


def _lagged(recent: Sequence[Tensor], lag: int) -> float:
    """Return how far the last states are from those `lag` steps before, relative to their size."""
    pairs = list(zip(recent[-WINDOW - lag : -lag], recent[-WINDOW:], strict=True))
    return sum(float(((b - a).norm(dim=-1) / a.norm(dim=-1)).mean()) for a, b in pairs) / len(pairs)
