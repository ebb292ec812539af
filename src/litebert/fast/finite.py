"""Refuse NaN and infinity in weights that are read, and in the outputs of a network."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import isfinite

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from litebert.errors import DamagedError
from litebert.fast.exits import heads_of
from litebert.nn import AlbertForTask, Network


def require_finite(
    code: str, what: str, tensors: Mapping[str, Tensor | NDArray[np.floating]], *, expected: str, next: str
) -> None:
    """Check that weights are finite.

    Raises:
        DamagedError: They are not; the caller gives the code, the message and the next step.
    """
    for name, tensor in tensors.items():
        if not _is_finite(tensor):
            received = f"NaN or infinity in {name}"
            raise DamagedError(code, what, received=received, expected=expected, next=next)


def _is_finite(tensor: Tensor | NDArray[np.floating]) -> bool:
    if isinstance(tensor, np.ndarray):
        return bool(np.isfinite(tensor).all())
    has_ends = tensor.is_floating_point() and tensor.numel() > 0
    # aminmax copies nothing, and returns NaN if there is one.
    return not has_ends or all(bool(end.isfinite()) for end in tensor.aminmax())


def refuse_non_finite(network: Network) -> None:
    """Let a network raise LB-472 from now on instead of returning outputs that are not finite."""
    heads = heads_of(network) if isinstance(network, AlbertForTask) else [network.masked_lm, network.sentence_order]
    for module in (network.albert, *heads):
        module.register_forward_hook(lambda _, __, outputs: _check_outputs(network, outputs))


def _check_outputs(network: Network, outputs: Tensor | tuple[Tensor, ...]) -> None:
    tensors = (outputs,) if isinstance(outputs, Tensor) else outputs
    # A finite sum means finite numbers; but a sum of finite numbers may overflow.
    if all(isfinite(x.detach().sum()) or bool(x.isfinite().all()) for x in tensors):
        return
    name, largest = max(_magnitudes(network), key=lambda found: (found[1] != found[1], found[1]))
    raise DamagedError(
        "LB-472",
        "the network returns NaN or infinity",
        received=f"the largest weight is {largest:.3g}, in {name}",
        expected="finite weights, usually below 100",
        next="make or fetch the model again; in bf16, try fp32 first",
    )


def _magnitudes(network: nn.Module) -> Iterator[tuple[str, float]]:
    """Yield the largest absolute value of each tensor of weights; NaN if one is."""
    for name, tensor in network.state_dict().items():
        if not tensor.is_meta and tensor.numel():
            yield name, float(tensor.float().abs().max())
