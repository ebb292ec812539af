"""The step that all optimizers share: two moments per parameter, as upstream keeps them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from typing import TypedDict, cast, overload

import torch
from torch import Tensor
from torch.optim.optimizer import Optimizer, ParamsT

from litebert.errors import LitebertError
from litebert.optim.average import follow

STATE_NAMES = ("adam_m", "adam_v")
"""The state of each parameter, named as upstream: the moving means of g and g squared."""
_AT_ONCE = 1 << 24
"""Numbers that are updated together: all of base, or one kernel of xxlarge."""


class GroupSettings(TypedDict):
    """The settings of a parameter group.

    `is_adapted` is for LAMB, `is_matrix` and `momentum` are for Muon. With `average_decay` 0 no
    average of the weights is kept.
    """

    lr: float | Tensor
    betas: tuple[float, float]
    eps: float
    weight_decay: float
    is_adapted: bool
    is_matrix: bool
    bias_correction: bool
    average_decay: float
    momentum: float


class MomentOptimizer(Optimizer):
    """Step against m / (sqrt(v) + eps) + weight_decay p, as upstream's optimization.py does.

    With `bias_correction`, m and v are divided by 1 - beta^t (Kingma and Ba, arXiv 1412.6980).
    With `average_decay`, an exponential moving average of the weights is kept: see `averaged`.

    Nothing is read on the host, so a step neither waits for a GPU nor breaks a captured graph (in
    that case, pass `lr` as a 0-dimensional tensor on the device and fill it in place).
    """

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 1e-3,
        *,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-6,
        weight_decay: float = 0.01,
        bias_correction: bool = False,
        average_decay: float = 0.0,
        momentum: float = 0.95,
    ) -> None:
        official = {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay}
        ours = {"bias_correction": bias_correction, "average_decay": average_decay}
        by_group = {"is_adapted": True, "is_matrix": False, "rate_scale": 1.0}
        super().__init__(params, {**official, **ours, "momentum": momentum, **by_group})

    def add_param_group(self, param_group: dict[str, object]) -> None:
        """Add a group of parameters with its own settings; raise LB-420 if one is out of range."""
        _check_settings(cast(GroupSettings, {**self.defaults, **param_group}))
        super().add_param_group(param_group)

    @overload
    def step(self, closure: None = None) -> None: ...

    @overload
    def step(self, closure: Callable[[], float]) -> float: ...

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:
        """Update every parameter that has a gradient; return what `closure` returned."""
        with torch.enable_grad():
            loss = closure() if closure else None
        for group in self.param_groups:
            for parameters in _portions(p for p in group["params"] if p.grad is not None):
                self._step(parameters, cast(GroupSettings, group))
        return loss

    def _step(self, parameters: list[Tensor], settings: GroupSettings) -> None:
        states = [self.state_of(parameter, settings) for parameter in parameters]
        if "step" in states[0]:
            torch._foreach_add_([state["step"] for state in states], 1)
        updates = self._updates(parameters, states, settings)
        torch._foreach_mul_(updates, settings["lr"])
        torch._foreach_sub_(parameters, updates)
        if settings["average_decay"]:
            follow(states, parameters, settings["average_decay"])

    def moments(self, parameter: Tensor) -> tuple[Tensor, Tensor]:
        """Return the live moments (m, v) of a parameter in its shape, zeros at first."""
        state = self.state[parameter]
        first, second = (state.setdefault(n, torch.zeros_like(parameter)) for n in STATE_NAMES)
        return first, second

    def state_of(self, parameter: Tensor, settings: GroupSettings) -> dict[str, Tensor]:
        """Return the live state of a parameter by name; zeros at first.

        The average starts as a copy of the weights.
        """
        state: dict[str, Tensor] = self.state[parameter]
        names = self.state_names(settings)
        for name in names:
            if name not in state and name == "step":
                state[name] = torch.zeros((), dtype=torch.float32, device=parameter.device)
            elif name not in state:
                is_average = name == "average"
                state[name] = parameter.clone() if is_average else torch.zeros_like(parameter)
        return {name: state[name] for name in names}

    def state_names(self, settings: GroupSettings) -> tuple[str, ...]:
        """Return the names of the state tensors of each parameter in a group."""
        average = ("average",) if settings["average_decay"] else ()
        counts = average or settings["bias_correction"]
        return (*STATE_NAMES, *(("step",) if counts else ()), *average)

    def _updates(
        self, parameters: list[Tensor], states: list[dict[str, Tensor]], settings: GroupSettings
    ) -> tuple[Tensor, ...]:
        """Update the moments with the gradients; return the direction of each parameter."""
        gradients = [dense_gradient(parameter) for parameter in parameters]
        first, second = ([state[name] for state in states] for name in STATE_NAMES)
        beta1, beta2 = settings["betas"]
        torch._foreach_lerp_(first, gradients, 1 - beta1)  # m += (1 - beta1) (g - m)
        torch._foreach_mul_(second, beta2)
        torch._foreach_addcmul_(second, gradients, gradients, 1 - beta2)
        scales = torch._foreach_sqrt(second)  # eps is added outside the root, as upstream does
        if settings["bias_correction"]:
            steps = [state["step"] for state in states]
            torch._foreach_div_(scales, torch._foreach_sqrt(_corrections(steps, beta2)))
        torch._foreach_add_(scales, settings["eps"])
        updates = torch._foreach_div(first, scales)
        if settings["bias_correction"]:
            torch._foreach_div_(updates, _corrections(steps, beta1))
        torch._foreach_add_(updates, parameters, alpha=settings["weight_decay"])
        return updates


def _portions(parameters: Iterable[Tensor]) -> Iterator[list[Tensor]]:
    """Yield the parameters in portions: a step's temporaries take twice their memory."""
    portion, size = list[Tensor](), 0
    for parameter in parameters:
        if portion and size + parameter.numel() > _AT_ONCE:
            yield portion
            portion, size = [], 0
        portion.append(parameter)
        size += parameter.numel()
    if portion:
        yield portion


def _corrections(steps: list[Tensor], beta: float) -> tuple[Tensor, ...]:
    """Return 1 - beta^t for each step t, by expm1, which is exact for small t."""
    powers = torch._foreach_mul(steps, math.log(beta)) if beta else [s * -torch.inf for s in steps]
    return torch._foreach_neg(torch._foreach_expm1(powers))


def dense_gradient(parameter: Tensor) -> Tensor:
    """Return a parameter's gradient; raise LB-421 if it is sparse."""
    assert parameter.grad is not None
    if parameter.grad.layout is not torch.strided:
        raise LitebertError(
            "LB-421",
            "the optimizer does not support a sparse gradient",
            received=f"{parameter.grad.layout} of shape {tuple(parameter.shape)}",
            expected="a dense gradient: both moments change in every step, even where g is 0",
            next="build the embedding with sparse=False",
        )
    return parameter.grad


def _check_settings(settings: GroupSettings) -> None:
    lr, eps, weight_decay = settings["lr"], settings["eps"], settings["weight_decay"]
    beta1, beta2 = settings["betas"]
    is_average = 0 <= settings["average_decay"] < 1
    is_rate = isinstance(lr, Tensor) or lr >= 0
    are_betas = 0 <= beta1 < 1 and 0 <= beta2 < 1
    if is_rate and are_betas and eps > 0 and weight_decay >= 0 and is_average:
        return
    raise LitebertError(
        "LB-420",
        "an optimizer setting is out of range",
        received=f"lr={lr}, betas=({beta1}, {beta2}), eps={eps}, weight_decay={weight_decay}, "
        f"average_decay={settings['average_decay']}",
        expected="lr >= 0, betas and average_decay in [0, 1), eps > 0, weight_decay >= 0",
        next="omit the settings that you need not change: the defaults are the official values",
    )
