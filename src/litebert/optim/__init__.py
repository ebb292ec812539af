"""Optimizers and schedules by the official rules; every name here is public."""

from litebert.optim.adamw import AdamW
from litebert.optim.average import averaged
from litebert.optim.build import build_optimizer, build_schedule
from litebert.optim.clip import clip_gradients
from litebert.optim.groups import parameter_groups
from litebert.optim.lamb import Lamb, trust_ratios
from litebert.optim.moments import MomentOptimizer
from litebert.optim.muon import Muon
from litebert.optim.schedule import Schedule, linear, official, wsd
from litebert.optim.state import load_state_tensors, state_tensors

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
