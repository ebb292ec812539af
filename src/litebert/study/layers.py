"""Figure 1 of the paper: what each step changes, and where the network goes beyond its depth.

The paper compares the input and the output of each layer and finds that they "are oscillating rather than converging"
(3.1). It gives neither its texts nor a criterion; ours are below.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from statistics import fmean

import torch
from torch import Tensor
from torch.autograd.functional import jvp
from torch.nn import functional as F

from litebert.errors import LitebertError
from litebert.fast.attention import Layout
from litebert.fast.steps import engine_of
from litebert.inference.model import Model
from litebert.inference.texts import frame
from litebert.nn import Albert, Batch
from litebert.study.findings import Eigenvalue, Fate, Layers, StepChange, Verdict

BEYOND = (24, 48, 96)
"""Depths at which iterates beyond the trained depth are judged."""
STILL = 0.01
"""A state that moves by less than this share of its length in a step has converged."""
RETURN = 0.5
"""States oscillate if after some period they are within this share of a step of where they were."""
CLOSING = 0.5
"""Iterates close in on a point if the steps shrank by this factor since half the depth."""
MOST_PERIOD, WINDOW = 8, 8
LEAST_DEPTH = MOST_PERIOD + WINDOW
"""At a smaller depth there are too few states to find a period."""
SEED = 12_345


def measure_layers(
    model: Model, texts: Sequence[str], *, depths: Sequence[int] = BEYOND, power_steps: int = 40
) -> Layers:
    """Measure each step of a model over the pieces of texts, [CLS] and [SEP] not counted.

    Beyond the trained depth the block of the last step is applied again and again. With one block that continues the
    plan; with several (groups, or no sharing) only the last can be iterated, because an equilibrium is the fixed point
    of one map.
    """
    encoded = [ids for ids in model.tokenizer.encode_ids(texts) if ids]
    if not encoded:
        what = "there are no texts to measure the steps on, or all of them are empty"
        raise LitebertError("LB-749", what, next="litebert study layers --help")
    batch = frame(model.network, model.tokenizer, encoded)
    counted = ~torch.isin(batch.ids, torch.tensor([model.tokenizer.cls_id, model.tokenizer.sep_id]))
    return layers_of(model.network.albert, batch, counted, source=model.source, depths=depths, power_steps=power_steps)


@torch.no_grad()
def layers_of(
    albert: Albert, batch: Batch, counted: Tensor, *, source: str, depths: Sequence[int] = BEYOND, power_steps: int = 40
) -> Layers:
    """Measure an encoder on a batch; `counted` is true for the tokens that enter the means."""
    trained, blocks = len(albert.plan), list(dict.fromkeys(albert.plan))
    if not depths or max(depths) <= trained or min(depths) < LEAST_DEPTH:
        raise LitebertError(
            "LB-761",
            "these depths say nothing about what lies beyond the trained one",
            expected=f"depths from {LEAST_DEPTH} on, one of them above {trained}",
            next="litebert study layers --help",
        )
    changes, fates, recent = list[StepChange](), list[Fate](), list[Tensor]()
    at_depth = end = next(albert.states(batch))
    for number, state in enumerate(_iterates(albert, batch, max(depths))):
        now = state[counted]  # `recent` are those of the last states
        if recent:
            block = 1 + blocks.index(albert.plan[min(number, trained) - 1])
            changes.append(_change(number, block, recent[-1], now))
        recent = [*recent[-LEAST_DEPTH:], now]
        if number in depths and number > trained:
            fates.append(fate_of([change.residual for change in changes], recent))
        at_depth = state if number == trained else at_depth
        end = state
    return Layers(
        source=source,
        is_shared=len(blocks) == 1,
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
    layout, state, steps = Layout(batch), next(albert.states(batch)), engine_of(albert).steps(albert)
    yield state.float()
    for number in range(depth):
        state = steps[min(number, len(steps) - 1)](state, layout)
        yield state[: len(batch.ids)].float()


def _change(step: int, block: int, before: Tensor, after: Tensor) -> StepChange:
    cosine = F.cosine_similarity(before, after, dim=-1).clamp(-1, 1)
    distance, norm = (after - before).norm(dim=-1), after.norm(dim=-1)
    means = {"l2": distance, "cosine": cosine, "angle": cosine.arccos() * 180 / math.pi, "norm": norm}
    means["residual"] = distance / before.norm(dim=-1)
    return StepChange(step=step, block=block, **{name: float(each.mean()) for name, each in means.items()})


def fate_of(residuals: Sequence[float], recent: Sequence[Tensor]) -> Fate:
    """Classify the last iterates: converged, periodic, slowing down, or none of these."""

    def moved(lag: int) -> float:
        """How far the last states are from those `lag` steps before, relative to their size."""
        pairs = zip(recent[-WINDOW - lag : -lag], recent[-WINDOW:], strict=True)
        return sum(float(((b - a).norm(dim=-1) / a.norm(dim=-1)).mean()) for a, b in pairs) / WINDOW

    depth, residual = len(residuals), moved(1)
    by_lag = {lag: moved(lag) for lag in range(2, MOST_PERIOD + 1)}
    returning = [lag for lag, distance in by_lag.items() if distance < RETURN * residual]
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


@torch.enable_grad()
def dominant_eigenvalue(albert: Albert, batch: Batch, state: Tensor, power_steps: int) -> Eigenvalue:
    """Iterate v -> J v / |J v| at a state of the first sequence, all of its tokens together.

    The modulus is the geometric mean of the growth |J v| / |v| over the second half of the iterations, because a
    complex pair makes the growth oscillate. The plain blocks are used: a product with the Jacobian differentiates
    twice, which the fused blocks cannot.
    """
    length, last = batch.lengths[0], albert.plan[-1]
    alone = Batch.from_flat(batch.ids[:length], batch.segments[:length], (length,))
    attend, transform = albert.attention[last.attention], albert.feed_forward[last.feed_forward]
    point = state[:length].detach().float()

    def step(x: Tensor) -> Tensor:
        after: Tensor = transform(attend(x, alone))
        return after

    direction = torch.randn(point.shape, generator=torch.Generator().manual_seed(SEED))
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
