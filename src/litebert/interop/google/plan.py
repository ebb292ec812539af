"""Compare what a network needs with what a checkpoint has, before any number is read."""

from __future__ import annotations

import math
from dataclasses import dataclass

from litebert.config import AlbertConfig, HeadConfig
from litebert.errors import DamagedError
from litebert.fast.empty import without_numbers
from litebert.folder.names import tensor_names
from litebert.interop.google.names import STEP, is_slot
from litebert.interop.google.source import Checkpoint
from litebert.nn import AlbertForPretraining, AlbertForTask


@dataclass(frozen=True)
class Wanted:
    """A parameter of a network, and its tensor in a model folder."""

    parameter: str
    tensor: str
    shape: tuple[int, ...]

    @property
    def num_parameters(self) -> int:
        """The number of its elements."""
        return math.prod(self.shape)


@dataclass(frozen=True)
class ImportPlan:
    """What is taken from a checkpoint; `extra` is kept although the network does not use it."""

    source: Checkpoint
    config: AlbertConfig
    head: HeadConfig | None
    found: tuple[Wanted, ...]
    missing: tuple[Wanted, ...]
    extra: tuple[Wanted, ...]

    @property
    def used(self) -> list[str]:
        """Official names of the variables that are read."""
        tensors = [wanted.tensor for wanted in (*self.found, *self.extra)]
        return [name for tensor in tensors for name in self.source.variables_of(tensor)]

    @property
    def unused(self) -> list[str]:
        """Official names of the variables that are not used, except the optimizer's."""
        left = set(self.source.stored) - set(self.used) - {STEP}
        return sorted(name for name in left if not is_slot(name))


def plan_import(source: Checkpoint, config: AlbertConfig, head: HeadConfig | None) -> ImportPlan:
    """Find every parameter's variable.

    The pretraining heads and their pooler may be missing, as in TF-Hub modules; the encoder and a
    task head may not.

    Raises:
        DamagedError: LB-721, a variable has another shape; LB-723, one is missing.
    """
    wanted = _parameters(config, head)
    extra = _idle_pooler(config) if head is not None and not head.is_pooled else []
    for each in (*wanted, *extra):
        require_shape(source, each)
    found, missing = _divided(source, wanted)
    needed = [each for each in missing if each.tensor.startswith("albert.") and "pooler" not in each.tensor]
    _require_none(source, missing if head is not None else needed)
    return ImportPlan(source, config, head, found, missing, _divided(source, extra)[0])


def require_shape(source: Checkpoint, wanted: Wanted, slot: str = "") -> None:
    """Refuse a variable or a moment whose shape is not that of the parameter."""
    shape = source.shape(wanted.tensor, slot)
    if shape not in (None, wanted.shape):
        raise DamagedError(
            "LB-721",
            f"{source.bundle.prefix} and its configuration do not belong together",
            received=f"{source.name(wanted.tensor)} of shape {list(shape or ())}",
            expected=f"{list(wanted.shape)} (kernels as [out, in])",
            next="give the configuration that belongs to the checkpoint with --config",
        )


def _parameters(config: AlbertConfig, head: HeadConfig | None) -> list[Wanted]:
    """Return the parameters of a one-block network, with its block repeated for every group."""
    single = {"num_hidden_layers": 1, "num_hidden_groups": 1, "inner_group_num": 1}
    one = config.model_copy(update=single)
    with without_numbers():
        network = AlbertForTask(one, head) if head else AlbertForPretraining(one)
    wanted = []
    for name, parameter in network.state_dict().items():
        each = Wanted(name, tensor_names(name, one, head)[0], tuple(parameter.shape))
        is_in_block = "albert_layers" in each.tensor
        wanted += _repeated(each, config) if is_in_block else [each]
    return wanted


def _repeated(wanted: Wanted, config: AlbertConfig) -> list[Wanted]:
    inner = config.inner_group_num
    return [
        Wanted(
            wanted.parameter.replace(".0.", f".{block}."),
            wanted.tensor.replace("groups.0.", f"groups.{block // inner}.").replace(
                "layers.0.", f"layers.{block % inner}."
            ),
            wanted.shape,
        )
        for block in range(config.num_hidden_groups * inner)
    ]


def _idle_pooler(config: AlbertConfig) -> list[Wanted]:
    """Return the pooler, which the official graph has under every head, used or not."""
    size = config.hidden_size
    shapes = {"albert.pooler.weight": (size, size), "albert.pooler.bias": (size,)}
    return [Wanted(name, name, shape) for name, shape in shapes.items()]


def _divided(source: Checkpoint, wanted: list[Wanted]) -> tuple[tuple[Wanted, ...], tuple[Wanted, ...]]:
    """Return what the checkpoint has and what it lacks."""
    shapes = {each: source.shape(each.tensor) for each in wanted}
    return (
        tuple(each for each in wanted if shapes[each] is not None),
        tuple(each for each in wanted if shapes[each] is None),
    )


def _require_none(source: Checkpoint, missing: tuple[Wanted, ...] | list[Wanted]) -> None:
    if missing:
        raise DamagedError(
            "LB-723",
            f"{source.bundle.prefix} lacks variables that its network needs",
            received=f"no {', '.join(source.name(each.tensor) for each in missing)}",
            expected="every variable of the encoder, and of the task head",
            next="check the configuration, or fetch the checkpoint again",
        )
