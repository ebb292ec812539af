"""An optimizer's state as named tensors, for checkpoints without pickle."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import cast

import torch
from torch import Tensor

from litebert.errors import LitebertError, did_you_mean
from litebert.optim.moments import GroupSettings, MomentOptimizer


def state_tensors(optimizer: MomentOptimizer, named_parameters: Iterable[tuple[str, Tensor]]) -> dict[str, Tensor]:
    """Return the state of every parameter as `<parameter>/<name>`, such as `…/adam_m`.

    The tensors are the live state: write or copy them before the next step. A parameter that never
    had a gradient has zeros, so that the set of names depends on the model alone.

    Raises:
        LitebertError: LB-422, the optimizer has a parameter without a name.
    """
    names = {id(parameter): name for name, parameter in named_parameters}
    tensors: dict[str, Tensor] = {}
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            if id(parameter) not in names:
                raise _unnamed(parameter)
            state = optimizer.state_of(parameter, cast(GroupSettings, group))
            for state_name, kept in state.items():
                tensors[f"{names[id(parameter)]}/{state_name}"] = kept
    return tensors


@torch.no_grad()
def load_state_tensors(
    optimizer: MomentOptimizer, named_parameters: Iterable[tuple[str, Tensor]], tensors: Mapping[str, Tensor]
) -> None:
    """Load what `state_tensors` returned into an optimizer, so that training continues bit-equal.

    Raises:
        LitebertError: LB-423, LB-424, names, shapes or dtypes differ; then nothing is changed.
    """
    live = state_tensors(optimizer, named_parameters)
    _check_names(live, tensors)
    for name, moment in live.items():
        _check_kind(name, moment, tensors[name])
    for name, moment in live.items():
        moment.copy_(tensors[name])


def _check_names(live: Mapping[str, Tensor], loaded: Mapping[str, Tensor]) -> None:
    missing, unknown = sorted(live.keys() - loaded.keys()), sorted(loaded.keys() - live.keys())
    if not missing and not unknown:
        return
    raise LitebertError(
        "LB-423",
        "the optimizer state belongs to another model",
        received=f"{len(missing)} missing {missing[:3]}, {len(unknown)} unknown {unknown[:3]}",
        expected=did_you_mean(unknown[0], live) if unknown else f"all {len(live)} names",
        next="resume with the model configuration the checkpoint was written with",
    )


def _check_kind(name: str, live: Tensor, loaded: Tensor) -> None:
    if (live.shape, live.dtype) == (loaded.shape, loaded.dtype):
        return
    raise LitebertError(
        "LB-424",
        f"the optimizer state {name} has another shape or dtype than its parameter",
        received=f"{tuple(loaded.shape)} {loaded.dtype}",
        expected=f"{tuple(live.shape)} {live.dtype}",
        next="resume with the model configuration the checkpoint was written with",
    )


def _unnamed(parameter: Tensor) -> LitebertError:
    return LitebertError(
        "LB-422",
        "the optimizer has a parameter without a name",
        received=f"a parameter of shape {tuple(parameter.shape)}",
        expected="every parameter of the optimizer among named_parameters",
        next="pass model.named_parameters() of the model the optimizer was built for",
    )
