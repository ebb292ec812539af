"""Default learning rate and length of fine-tuning, by the size of the network and the data.

The recipes have the values of the paper, for networks of its sizes and amount of pretraining. With
these, smaller networks never get beyond the commonest label. The values here were chosen from runs
on small data: benchmarks/tasks/RESULTS.md, "500 rows".
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from litebert.config import FinetuneConfig, Origin, Resolved

PUBLISHED_SIZE = 768
"""Hidden size of the smallest published network (Table 1); recipes are for this size and up."""
MEASURED_SIZE, MEASURED_RATE = 256, 1e-4
"""At 1e-3, and at 3e-4 with more steps, the measured network gave every example one answer."""
MIN_STEPS, MIN_EPOCHS, MAX_EPOCHS = 150, 3, 20
MEAN_SIZE, MEAN_RATE, MEAN_STEPS, MEAN_HEAD_SCALE = 384, 2e-4, 75, 10.0
"""For a head on the mean of the tokens, with bias correction; twice the steps make pairs worse.

The encoder is pretrained and the head is not: with ten times the rate for the head, MRPC reaches
67.8 instead of 66.4, where always answering the commonest label gets 65.6.
"""


@dataclass(frozen=True)
class Suited:
    """The defaults that suit a network and its data."""

    learning_rate: float
    warmup_steps: float
    epochs: float
    head_rate_scale: float = 1.0


def suited(hidden_size: int, num_features: int, batch_size: int, *, reads_mean: bool = False) -> Suited:
    """Return rate, warm-up and epochs for a network smaller than the published ones.

    The rate falls as the network grows, and is never above the measured one. Small data get more
    epochs, so that there are enough steps.

    >>> suited(256, 500, 32)
    Suited(learning_rate=0.0001, warmup_steps=0.1, epochs=10, head_rate_scale=1.0)
    >>> suited(512, 67_349, 32)
    Suited(learning_rate=5e-05, warmup_steps=0.1, epochs=3, head_rate_scale=1.0)
    >>> suited(384, 500, 32, reads_mean=True)
    Suited(learning_rate=0.0002, warmup_steps=0.1, epochs=5, head_rate_scale=10.0)
    """
    size, peak, steps, head_scale = MEASURED_SIZE, MEASURED_RATE, MIN_STEPS, 1.0
    if reads_mean:
        size, peak, steps, head_scale = MEAN_SIZE, MEAN_RATE, MEAN_STEPS, MEAN_HEAD_SCALE
    rate = peak * min(1.0, size / hidden_size)
    epochs = math.ceil(steps * batch_size / num_features)
    return Suited(rate, 0.1, min(max(epochs, MIN_EPOCHS), MAX_EPOCHS), head_scale)


def with_suited(
    resolved: Resolved[FinetuneConfig], hidden_size: int, num_features: int, *, reads_mean: bool = False
) -> Resolved[FinetuneConfig]:
    """Set suitable defaults; they override recipes and schema defaults, but not files or flags."""
    config, origins = resolved.config, resolved.origins
    free = {name for name, origin in origins.items() if origin.kind in ("default", "recipe")}
    if hidden_size >= PUBLISHED_SIZE:
        return resolved
    batch_size = config.train.batch_size
    fitting = suited(hidden_size, num_features, batch_size, reads_mean=reads_mean)
    changes: dict[str, float] = {}
    if reads_mean and "optim.bias_correction" in free:
        changes["optim.bias_correction"] = True
    if reads_mean and "optim.head_rate_scale" in free:
        changes["optim.head_rate_scale"] = fitting.head_rate_scale
    if "optim.learning_rate" in free:
        changes["optim.learning_rate"] = fitting.learning_rate
    if "optim.warmup_steps" in free:
        changes["optim.warmup_steps"] = fitting.warmup_steps
    if {"train.epochs", "train.steps"} <= free:
        changes |= {"train.epochs": fitting.epochs, "train.steps": 0}
    sections = {
        section: getattr(config, section).model_copy(
            update={name.partition(".")[2]: value for name, value in changes.items() if name.startswith(f"{section}.")}
        )
        for section in ("optim", "train")
    }
    measured = {name: Origin("suited") for name in changes}
    return Resolved(config.model_copy(update=sections), origins | measured)
