"""Studies of the architecture: its parameters and costs, and the paper's experiments repeated.

Nothing that needs torch is imported before it is used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from litebert.study.sizes import Sizes, sizes_of

if TYPE_CHECKING:
    from litebert.study.ablation import Ablation, Plan, ablate, read_ablation
    from litebert.study.claims import Costs, measure_costs
    from litebert.study.layers import Layers, measure_layers

__all__ = [
    "Ablation",
    "Costs",
    "Layers",
    "Plan",
    "Sizes",
    "ablate",
    "measure_costs",
    "measure_layers",
    "read_ablation",
    "sizes_of",
]

_HOMES = {
    "Ablation": "ablation",
    "Costs": "claims",
    "Layers": "layers",
    "Plan": "ablation",
    "ablate": "ablation",
    "measure_costs": "claims",
    "measure_layers": "layers",
    "read_ablation": "ablation",
}


def __getattr__(name: str) -> object:
    """Import a study when it is first used."""
    if name in _HOMES:
        return getattr(importlib.import_module(f"litebert.study.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'litebert.study' has no attribute {name!r}")
