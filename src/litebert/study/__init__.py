"""Studies of the architecture: its parameters and costs, and the paper's experiments repeated."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from litebert.study.sizes import Sizes, sizes_of

if TYPE_CHECKING:
    from litebert.study.findings import Costs, Layers
    from litebert.study.models import measure_costs, measure_layers
    from litebert.study.trials import ablate

__all__ = ["Costs", "Layers", "Sizes", "ablate", "measure_costs", "measure_layers", "sizes_of"]

_HOMES = {"Costs": "findings", "Layers": "findings", "ablate": "trials"}
_HOMES |= {"measure_costs": "models", "measure_layers": "models"}  # imported when first used: measuring needs torch


def __getattr__(name: str) -> object:
    if name in _HOMES:
        return getattr(import_module(f"litebert.study.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'litebert.study' has no attribute {name!r}")
