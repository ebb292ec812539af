"""Optimizers and schedules by the official rules; every name here is public."""

from litebert.optim.optimizers import (
    AdamW,
    Lamb,
    MomentOptimizer,
    Muon,
    averaged,
    build_optimizer,
    clip_gradients,
    load_state_tensors,
    parameter_groups,
    state_tensors,
    trust_ratios,
)
from litebert.optim.schedule import Schedule, build_schedule, linear, official, wsd

__all__ = [
    "AdamW",
    "Lamb",
    "MomentOptimizer",
    "Muon",
    "Schedule",
    "averaged",
    "build_optimizer",
    "build_schedule",
    "clip_gradients",
    "linear",
    "load_state_tensors",
    "official",
    "parameter_groups",
    "state_tensors",
    "trust_ratios",
    "wsd",
]
