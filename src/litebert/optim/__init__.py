"""Optimizers: LAMB and AdamW as upstream has them, and Muon; their schedules and state.

`moments` is the step that all share, `optimizers` what differs, `building` makes one
from a configuration.
"""

from litebert.optim.building import build_optimizer, clip_gradients, parameter_groups
from litebert.optim.moments import Group, MomentOptimizer, State, use_average
from litebert.optim.optimizers import AdamW, Lamb, Muon, orthogonalize
from litebert.optim.schedules import Schedule, build_schedule
from litebert.optim.state import (
    load_state_tensors,
    require_same_layout,
    state_tensors,
)

__all__ = [
    "AdamW",
    "Group",
    "Lamb",
    "MomentOptimizer",
    "Muon",
    "Schedule",
    "State",
    "build_optimizer",
    "build_schedule",
    "clip_gradients",
    "load_state_tensors",
    "orthogonalize",
    "parameter_groups",
    "require_same_layout",
    "state_tensors",
    "use_average",
]
