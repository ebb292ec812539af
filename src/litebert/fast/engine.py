"""The engine: `albert.engine` makes the steps of an encoder, for training or packed for inference.

    accelerate(network)            # from now on the same numbers, sooner
    pack(network.eval().albert)    # and sooner still, until the weights change

`run = engine(albert); run(batch)` yields the states. An engine keeps how it was set up, not what it has packed, when a
network is copied or pickled: the copy packs its own weights when it is first used.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from importlib.util import find_spec
from math import isfinite
from typing import Any, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from litebert.config import Backend
from litebert.errors import DamagedError, no_such_name
from litebert.fast.int8 import int8_steps, is_int8
from litebert.fast.steps import Run, Step, packed_steps, training_steps
from litebert.nn.heads import Network
from litebert.nn.model import Albert

Stamps = list[tuple[int, int]]
"""The address of each weight and the number of writes to it."""


class Engine:
    """Makes the steps of an encoder; a network has one in `albert.engine`."""

    def __init__(self) -> None:
        self.is_checkpointed = False
        self._is_packed, self._backend = False, "torch"  # what a copy does again when it is first used
        self._packed: tuple[Stamps, Sequence[Step]] | None = None

    def __call__(self, albert: Albert) -> Run:
        """Return what computes the states at the depth of the encoder."""
        if self._is_packed and not self.is_current(albert):
            self._is_packed, self._packed = False, None
        if self._is_packed and not torch.is_grad_enabled():
            if self._packed is None:
                self.pack(albert, self._backend)
            assert self._packed is not None
            steps = self._packed[1]
        else:
            steps = training_steps(albert)
            if self.is_checkpointed:
                steps = [partial(checkpoint, step, use_reentrant=False) for step in steps]
        return Run(albert, steps[: albert.depth])

    def pack(self, albert: Albert, backend: str = "torch") -> None:
        """Pack the current weights for inference; short single texts are computed by the backend."""
        steps: Sequence[Step] = int8_steps(albert) if is_int8(albert) else packed_steps(albert)
        if backend != "torch":
            from litebert.fast.onnx_step import with_graphs

            steps = with_graphs(albert, steps, is_forced=backend == "onnxruntime")
        self._packed, self._is_packed, self._backend = (_stamps(albert), steps), True, backend

    def is_current(self, albert: Albert) -> bool:
        """Tell whether the weights, as they are now, are packed, or those of a copy are about to be."""
        is_same = self._packed is None or self._packed[0] == _stamps(albert)
        return self._is_packed and not albert.training and is_same

    def __getstate__(self) -> dict[str, Any]:
        """Leave packed weights out of copies and pickles: they are addresses, layouts and kernels of this process."""
        return self.__dict__ | {"_packed": None}


def _stamps(albert: Albert) -> Stamps:
    return [
        (weight.data_ptr(), 0 if weight.is_inference() else weight._version)
        for module in albert.modules()
        for weight in module._parameters.values()
        if weight is not None
    ]


def engine_of(albert: Albert) -> Engine:
    """Return the engine of an encoder, which gets one if it has none."""
    if not isinstance(albert.engine, Engine):
        albert.engine = Engine()
    return albert.engine


def accelerate(network: Network) -> None:
    """Let a network use the engine from now on; the results are the same, but faster.

    Weights are joined and cast once for all steps that share them, rows are filled up, and attention uses the kernel
    that suits the device and the lengths.
    """
    engine_of(network.albert)


def checkpoint_gradients(albert: Albert) -> None:
    """Keep only each step's input for the backward pass, and recompute the rest there."""
    engine_of(albert).is_checkpointed = True


def pack(albert: Albert) -> None:
    """Pack the current weights for inference, in eight bits if they are stored so.

    Training and gradients use the weights themselves; if these change, packed ones are dropped.
    """
    engine_of(albert).pack(albert)


def is_packed(albert: Albert) -> bool:
    """Tell whether the weights, as they are now, are packed."""
    return isinstance(albert.engine, Engine) and albert.engine.is_current(albert)


def use_backend(albert: Albert, backend: str) -> None:
    """Compute single short texts with onnxruntime; with "auto", where it is installed and faster.

    A packed network in fp32 gets a graph per distinct step. A network in bf16, in eight bits or with unsupported
    operators stays unchanged.
    """
    if backend not in get_args(Backend):
        raise no_such_name("LB-975", "there is no such backend", str(backend), get_args(Backend), next='backend="auto"')
    is_installed = all(find_spec(package) for package in ("onnx", "onnxruntime"))
    if backend != "torch" and (backend != "auto" or is_installed) and is_packed(albert):
        engine_of(albert).pack(albert, backend)


# NaN and infinity: refused in weights that are read, and in what a network returns.


def require_finite(
    code: str, what: str, tensors: Mapping[str, Tensor | NDArray[np.floating]], *, expected: str, next: str
) -> None:
    """Refuse weights that are not finite; the caller gives the code, the message and the next step."""
    for name, tensor in tensors.items():
        if isinstance(tensor, np.ndarray):
            is_finite = bool(np.isfinite(tensor).all())
        else:  # aminmax copies nothing, and returns NaN if there is one
            has_ends = tensor.is_floating_point() and tensor.numel() > 0
            is_finite = not has_ends or all(bool(end.isfinite()) for end in tensor.aminmax())
        if not is_finite:
            raise DamagedError(code, what, received=f"NaN or infinity in {name}", expected=expected, next=next)


def refuse_non_finite(network: Network) -> None:
    """Let a network raise LB-472 from now on instead of returning outputs that are not finite."""
    for child in network.children():
        for module in child if isinstance(child, nn.ModuleList) else [child]:  # the heads after each step
            module.register_forward_hook(_check_outputs)


def _check_outputs(module: nn.Module, _inputs: object, outputs: Tensor | tuple[Tensor, ...]) -> None:
    tensors = (outputs,) if isinstance(outputs, Tensor) else outputs
    # A finite sum means finite numbers; but a sum of finite numbers may overflow.
    if all(isfinite(x.detach().sum()) or bool(x.isfinite().all()) for x in tensors):
        return
    weights = (
        (name, x.float().abs().max().item()) for name, x in module.state_dict().items() if x.numel() and not x.is_meta
    )
    name, largest = max(weights, key=lambda found: (found[1] != found[1], found[1]))  # NaN above all
    raise DamagedError(
        "LB-472",
        "the network returns NaN or infinity",
        received=f"the largest weight is {largest:.3g}, in {name}",
        expected="finite weights, usually below 100",
        next="make or fetch the model again; in bf16, try fp32 first",
    )
