"""Learning-rate schedules: a warm-up, then a decay.

Line numbers are those of google-research/albert.
"""

import math
from collections.abc import Callable
from typing import TypeAlias

from litebert.config import OptimConfig
from litebert.errors import LitebertError

Schedule: TypeAlias = Callable[[int], float]
"""step -> learning rate"""
# The longest warm-up of a run by the clock, as a share of its steps.
MOST_WARMUP = 0.1


def build_schedule(
    config: OptimConfig, *, total_steps: int, is_by_clock: bool = False
) -> Schedule:
    """Return the configured learning rate as a pure function of the step, which counts
    from 0.

    The warm-up (below 1: a share of all steps) is linear; the rate is 0 from
    `total_steps` on. In a run by the clock, whose number of steps nobody chose, a
    warm-up given in steps takes at most a tenth of them. `official` (optimization.py
    L28-64) and `linear` decay linearly. `wsd` stays at the peak until the last
    `decay_share`, then falls by 1 - sqrt; a run can continue from any checkpoint before
    the decay (Hägele et al., arXiv 2405.18392).

    >>> def rates(name: str) -> list[float]:
    ...     config = OptimConfig(schedule=name, learning_rate=1.0, warmup_steps=2, decay_share=0.5)
    ...     return [round(build_schedule(config, total_steps=8)(step), 2) for step in range(9)]
    >>> rates("official")  # upstream's decay counts from step 0: it drops where the warm-up ends, below the peak
    [0.0, 0.5, 0.75, 0.62, 0.5, 0.38, 0.25, 0.12, 0.0]
    >>> rates("linear")
    [0.0, 0.5, 1.0, 0.83, 0.67, 0.5, 0.33, 0.17, 0.0]
    >>> rates("wsd")
    [0.0, 0.5, 1.0, 1.0, 1.0, 0.5, 0.29, 0.13, 0.0]
    """  # noqa: E501
    warmup_steps = _warmup_steps(config, total_steps, is_by_clock=is_by_clock)
    decay_start = _decay_start(config, warmup_steps, total_steps)
    peak = config.learning_rate
    is_wsd = config.schedule == "wsd"

    def rate(step: int) -> float:
        if step < warmup_steps:
            return peak * step / warmup_steps  # 0 at the first step, as upstream
        # the share of the decay that is left: 1 before it, 0 after the last step
        share = (total_steps - step) / (total_steps - decay_start)
        left = min(1.0, max(0.0, share))
        if is_wsd:  # steep at first: most of the decay is at low rates
            return peak * (1 - math.sqrt(1 - left))
        return peak * left

    return rate


def _warmup_steps(config: OptimConfig, total_steps: int, *, is_by_clock: bool) -> int:
    """Return the number of steps of the warm-up; raise LB-426 unless it is shorter than
    the training.
    """
    warmup = config.warmup_steps  # a number of steps or, below 1, a share of all
    is_share = warmup < 1
    if is_by_clock and not is_share:
        warmup = min(warmup, max(1, MOST_WARMUP * total_steps))
    if warmup >= total_steps > 1:
        raise LitebertError(
            "LB-426",
            "the warm-up is not shorter than the training",
            received=f"optim.warmup_steps={warmup:g}, {total_steps} steps in all",
            next="set optim.warmup_steps=0.1",
        )
    steps = round(warmup * total_steps) if is_share else round(warmup)
    # One step is left for the decay, even in a training of a single step.
    return min(steps, total_steps - 1)


def _decay_start(config: OptimConfig, warmup_steps: int, total_steps: int) -> int:
    """Return the step from which the configured schedule counts its decay."""
    if config.schedule == "official":
        return 0
    if config.schedule == "linear":
        return warmup_steps
    decay_steps = max(1, round(config.decay_share * total_steps))
    # a long decay waits for the end of the warm-up
    return max(warmup_steps, total_steps - decay_steps)
