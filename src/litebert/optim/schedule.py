"""Learning rates as pure functions of the step: a warm-up, then one of three decays.

Steps count from 0, so the last update has step `total_steps - 1`. All rates are in [0, peak], and 0 from `total_steps`
on; `warmup_steps` is below `total_steps`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import TypeAlias

from litebert.config import OptimConfig
from litebert.errors import LitebertError

Schedule: TypeAlias = Callable[[int], float]


def build_schedule(config: OptimConfig, *, total_steps: int) -> Schedule:
    """Return the configured learning rate as a function of the step; a warm-up below 1 is a share of all steps.

    >>> rate = build_schedule(OptimConfig(schedule="official"), total_steps=125_000)
    >>> rate(3_124), rate(3_125), rate(62_500)
    (0.0017594368, 0.001716, 0.00088)
    """
    warmup = config.warmup_steps
    if warmup >= total_steps > 1:
        raise LitebertError(
            "LB-426",
            "the warm-up is not shorter than the training",
            received=f"optim.warmup_steps={warmup:g}, {total_steps} steps in all",
            expected="fewer warm-up steps than steps, or a share below 1",
            next="set optim.warmup_steps=0.1",
        )
    steps = min(round(warmup * total_steps if warmup < 1 else warmup), total_steps - 1)
    shapes: dict[str, Callable[..., float]] = {
        "official": official,
        "linear": linear,
        "wsd": partial(wsd, decay_share=config.decay_share),
    }
    return partial(shapes[config.schedule], peak=config.learning_rate, warmup_steps=steps, total_steps=total_steps)


def official(step: int, *, peak: float, warmup_steps: int, total_steps: int) -> float:
    """Return upstream's rate, which drops where the warm-up ends (optimization.py L28-64).

    The decay counts from step 0 and not from the end of the warm-up, so `peak` is never reached:

    >>> rates = [official(s, peak=1.0, warmup_steps=5, total_steps=10) for s in range(11)]
    >>> rates[:5], rates[5:]
    ([0.0, 0.2, 0.4, 0.6, 0.8], [0.5, 0.4, 0.3, 0.2, 0.1, 0.0])
    """
    if step < warmup_steps:
        return peak * step / warmup_steps
    return peak * _share_left(step, start=0, end=total_steps)


def linear(step: int, *, peak: float, warmup_steps: int, total_steps: int) -> float:
    """Return the rate of a straight rise to `peak` and a straight fall to 0, without a jump.

    >>> [linear(s, peak=1.0, warmup_steps=2, total_steps=6) for s in range(7)]
    [0.0, 0.5, 1.0, 0.75, 0.5, 0.25, 0.0]
    """
    if step < warmup_steps:
        return peak * step / warmup_steps
    return peak * _share_left(step, start=warmup_steps, end=total_steps)


def wsd(step: int, *, peak: float, warmup_steps: int, total_steps: int, decay_share: float) -> float:
    """Return the rate of warm-up, stable, decay: the last `decay_share` falls by 1 - sqrt.

    Before the decay the rate does not depend on `total_steps`, so training can continue from any
    stable checkpoint, or decay from there (Hägele et al., arXiv 2405.18392). The decay never
    starts before the end of the warm-up.

    >>> [wsd(s, peak=1.0, warmup_steps=2, total_steps=8, decay_share=0.5) for s in range(9)]
    [0.0, 0.5, 1.0, 1.0, 1.0, 0.5, 0.29..., 0.13..., 0.0]
    """
    if step < warmup_steps:
        return peak * step / warmup_steps
    decay_steps = max(1, round(decay_share * total_steps))
    start = max(warmup_steps, total_steps - decay_steps)
    return peak * (1 - math.sqrt(1 - _share_left(step, start=start, end=total_steps)))


def _share_left(step: int, *, start: int, end: int) -> float:
    """Return how much of [start, end] lies ahead of `step`: 1 before it, 0 after."""
    return min(1.0, max(0.0, (end - step) / (end - start)))
