"""The step that AdamW and LAMB share: two moments per parameter, without bias correction."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypedDict, cast, overload

import torch
from torch import Tensor
from torch.optim.optimizer import Optimizer, ParamsT

from litebert.errors import LitebertError

STATE_NAMES = ("adam_m", "adam_v")
"""What is kept for each parameter, in upstream's words: the moving means of g and g squared."""
_AT_ONCE = 1 << 24
"""Numbers that are updated together: all of base, a kernel of xxlarge."""


class Settings(TypedDict):
    """Hold what a group may set: in torch's words, and `is_adapted`, which LAMB reads."""

    lr: float | Tensor
    betas: tuple[float, float]
    eps: float
    weight_decay: float
    is_adapted: bool


class MomentOptimizer(Optimizer):
    """Step against m / (sqrt(v) + eps) + weight_decay p, as upstream's optimization.py does.

    Nothing is read on the host, so a step neither waits for a GPU nor breaks a captured graph
    (there, give `lr` as a 0-dimensional tensor on the device and fill it in place).
    """

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 1e-3,
        *,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-6,
        weight_decay: float = 0.01,
    ) -> None:
        defaults = {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay}
        super().__init__(params, {**defaults, "is_adapted": True, "rate_scale": 1.0})

    def add_param_group(self, param_group: dict[str, object]) -> None:
        """Add a group of parameters with settings of their own; refuse settings out of range."""
        _check_settings(cast(Settings, {**self.defaults, **param_group}))
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
                updates = self._updates(parameters, cast(Settings, group))
                torch._foreach_mul_(updates, group["lr"])
                torch._foreach_sub_(parameters, updates)
        return loss

    def moments(self, parameter: Tensor) -> tuple[Tensor, Tensor]:
        """Return the live moments (m, v) of a parameter in its shape, zeros at first."""
        state = self.state[parameter]
        for name in STATE_NAMES:
            if name not in state:
                state[name] = torch.zeros_like(parameter)
        return state["adam_m"], state["adam_v"]

    def _updates(self, parameters: list[Tensor], settings: Settings) -> tuple[Tensor, ...]:
        """Take the gradients into the moments; return the direction of each parameter."""
        gradients = [_dense_gradient(parameter) for parameter in parameters]
        first, second = map(list, zip(*map(self.moments, parameters), strict=True))
        beta1, beta2 = settings["betas"]
        torch._foreach_lerp_(first, gradients, 1 - beta1)
        torch._foreach_mul_(second, beta2)
        torch._foreach_addcmul_(second, gradients, gradients, 1 - beta2)
        scales = torch._foreach_sqrt(second)
        torch._foreach_add_(scales, settings["eps"])
        updates = torch._foreach_div(first, scales)
        torch._foreach_add_(updates, parameters, alpha=settings["weight_decay"])
        return updates


def _portions(parameters: Iterable[Tensor]) -> Iterator[list[Tensor]]:
    """Yield the parameters a few at a time: what a step works out for them takes memory twice."""
    portion, size = list[Tensor](), 0
    for parameter in parameters:
        if portion and size + parameter.numel() > _AT_ONCE:
            yield portion
            portion, size = [], 0
        portion.append(parameter)
        size += parameter.numel()
    if portion:
        yield portion


def _dense_gradient(parameter: Tensor) -> Tensor:
    assert parameter.grad is not None
    if parameter.grad.layout is not torch.strided:
        raise LitebertError(
            "LB-421",
            "the optimizer was given a sparse gradient",
            received=f"{parameter.grad.layout} of shape {tuple(parameter.shape)}",
            expected="a dense gradient: both moments change at every step, also where g is 0",
            next="build the embedding with sparse=False",
        )
    return parameter.grad


def _check_settings(settings: Settings) -> None:
    lr, eps, weight_decay = settings["lr"], settings["eps"], settings["weight_decay"]
    beta1, beta2 = settings["betas"]
    is_rate = isinstance(lr, Tensor) or lr >= 0
    if is_rate and 0 <= beta1 < 1 and 0 <= beta2 < 1 and eps > 0 and weight_decay >= 0:
        return
    raise LitebertError(
        "LB-420",
        "an optimizer setting is out of range",
        received=f"lr={lr}, betas=({beta1}, {beta2}), eps={eps}, weight_decay={weight_decay}",
        expected="lr >= 0, both betas in [0, 1), eps > 0, weight_decay >= 0",
        next="leave out what you need not change: the defaults are the official values",
    )
