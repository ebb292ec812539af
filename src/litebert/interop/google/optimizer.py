"""The optimizer's state beside the weights: two moments of every variable, and its steps."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from litebert.config import AlbertConfig
from litebert.errors import LitebertError
from litebert.files import read_json, write_json
from litebert.folder.weights import read_tensors
from litebert.interop.google.names import SLOTS, is_slot
from litebert.interop.google.plan import ImportPlan, Wanted, require_shape
from litebert.interop.google.source import Checkpoint
from litebert.interop.google.streamed import write_tensors

OPTIMIZER_FILE, STATE_FILE = "optimizer.safetensors", "state.json"
"""As in the checkpoints of a run; of state.json only `step` is written and read."""


def require_optimizer(source: Checkpoint) -> None:
    """Refuse a checkpoint whose optimizer cannot be kept.

    Raises:
        LitebertError: LB-724, it has none; LB-725, its variables are not those of our network.
    """
    if not any(map(is_slot, source.stored)):
        raise LitebertError(
            "LB-724",
            f"{source.bundle.prefix} has no optimizer",
            received=f"no variable that ends in /{SLOTS[0]}",
            expected="a checkpoint that training wrote; the released ones have none",
            next="omit --optimizer",
        )
    if source.is_folded:
        raise _other_variables("a word table and its map, which become one table")


def write_optimizer(folder: Path, plan: ImportPlan) -> int:
    """Write the moments under the names of `state_tensors`, and return the number of steps.

    A variable that never had a gradient has no moments in the checkpoint; zeros are written.
    """
    moments = {f"{each.parameter}/{slot}": (each, slot) for each in (*plan.found, *plan.missing) for slot in SLOTS}
    for each, slot in moments.values():
        require_shape(plan.source, each, slot)
    shapes = {name: each.shape for name, (each, _) in moments.items()}
    write_tensors(folder / OPTIMIZER_FILE, shapes, lambda name: _moment(plan.source, *moments[name]))
    step = plan.source.step or 0
    write_json(folder / STATE_FILE, {"step": step})
    return step


def read_optimizer(
    folder: Path, parameters: Mapping[str, Tensor], config: AlbertConfig
) -> tuple[dict[str, Tensor], int]:
    """Return the moments of all parameters, by the names of `state_tensors`, and the steps.

    Raises:
        LitebertError: LB-725, Google's code would have other variables; LB-726, the folder has no
            such optimizer.
    """
    if config.sharing != "all":
        raise _other_variables(f"sharing {config.sharing}, whose moments are sums over layers")
    path = folder / OPTIMIZER_FILE
    tensors = read_tensors(path) if path.is_file() else {}
    expected = {f"{name}/{slot}": each.shape for name, each in parameters.items() for slot in SLOTS}
    if {name: tensor.shape for name, tensor in tensors.items()} != expected:
        raise LitebertError(
            "LB-726",
            f"{folder} has no optimizer of this network",
            received=f"{len(tensors)} tensors in {OPTIMIZER_FILE}" if tensors else f"no {path}",
            expected=f"both moments of all {len(parameters)} parameters",
            next="give a checkpoint folder of a run, runs/NAME/checkpoints/step-N",
        )
    step = read_json(folder / STATE_FILE, command=f"ls -l {folder}").get("step")
    return tensors, step if isinstance(step, int) and 0 <= step < 1 << 63 else 0


def _moment(source: Checkpoint, wanted: Wanted, slot: str) -> NDArray[np.float32]:
    if source.variables_of(wanted.tensor, slot):
        return source.read(wanted.tensor, slot)
    return np.zeros(wanted.shape, np.float32)


def _other_variables(received: str) -> LitebertError:
    return LitebertError(
        "LB-725",
        "this optimizer cannot be carried over: its moments belong to other variables",
        received=received,
        expected="a network whose variables are the same on both sides, one by one",
        next="omit --optimizer",
    )
