"""The step that all optimizers share: two moving averages of the gradient and, if
wanted, one of the weights.

Line numbers are those of google-research/albert. Nothing is read on the host, so a step
neither waits for a GPU nor breaks a captured graph (for a graph, pass `lr` as a
0-dimensional tensor on the device and fill it in place).
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from inspect import unwrap
from typing import Any, ClassVar, TypeAlias

import torch
from torch import Tensor
from torch.optim.optimizer import Optimizer, ParamsT

from litebert.config import Options

# The moving averages of g and of g squared that each parameter has, named as upstream.
STATE_NAMES = ("adam_m", "adam_v")
# Elements that are updated together: all of base, or one kernel of xxlarge.
_AT_ONCE = 1 << 24

# the arguments of `MomentOptimizer`, and `is_adapted`, `is_matrix`, `rate_scale`
Group: TypeAlias = Mapping[str, Any]
State: TypeAlias = dict[str, Tensor]


class MomentOptimizer(Optimizer):
    """Step against m / (sqrt(v) + eps) + weight_decay p, as upstream's optimization.py
    does.

    With `bias_correction`, m and v are divided by 1 - beta^t (Kingma and Ba, arXiv
    1412.6980). With `average_decay`, an exponential moving average of the weights is
    kept: see `use_average`. `momentum` is Muon's. In each group, `is_adapted` says
    whether LAMB scales its steps, and `is_matrix` whether Muon updates it.
    """

    scales_by_norms: ClassVar[bool] = False
    """Whether LAMB's ratio scales the updates of adapted groups."""
    has_matrices: ClassVar[bool] = False
    """Whether the matrices of hidden layers have groups of their own, with a rate of
    their own (`optim.muon_learning_rate`).
    """
    corrects_bias: ClassVar[bool] = False
    """Whether moments are divided by 1 - beta^t unless that is set."""
    settings: ClassVar[Options] = {}
    """Settings of its own with their defaults (`optim.settings`), which are in each
    group.
    """

    # torch wraps these, so that torch.compile passes over them: the first call imports the
    # compiler, which takes longer than fine-tuning on a hundred texts.
    add_param_group = unwrap(Optimizer.add_param_group)
    zero_grad = unwrap(Optimizer.zero_grad)
    state_dict = unwrap(Optimizer.state_dict)
    load_state_dict = unwrap(Optimizer.load_state_dict)

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
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        defaults = {
            **self.settings,
            **(settings or {}),
            # as upstream's optimizers
            "lr": lr,
            "betas": betas,
            "eps": eps,
            "weight_decay": weight_decay,
            # our own
            "bias_correction": bias_correction,
            "average_decay": average_decay,
            "momentum": momentum,
            # what `parameter_groups` sets for each group
            "is_adapted": True,
            "is_matrix": False,
            "rate_scale": 1.0,
        }
        super().__init__(params, defaults)

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        """Update every parameter that has a gradient; return what `closure`
        returned.
        """
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            for portion in _portions(group["params"]):
                self._move(portion, group)
        return loss

    def _move(self, parameters: list[Tensor], group: Group) -> None:
        """Move parameters of a group, all with gradients, by one step, in place."""
        gradients = [p.grad for p in parameters if p.grad is not None]
        # made at the first step, or loaded from a checkpoint before it
        states = [self.state.get(p) or self.state_of(p, group) for p in parameters]
        # Counted before the update: bias correction divides the first by 1 - beta^1.
        counters = [state["step"] for state in states if "step" in state]
        if counters:
            torch._foreach_add_(counters, 1)
        updates = self.updates(parameters, gradients, states, group)
        # p -= lr u. A foreach function runs one kernel for many tensors: of the 32 that
        # base has, 19 are norms and biases, too small for kernels of their own.
        torch._foreach_mul_(updates, group["lr"])
        torch._foreach_sub_(parameters, updates)
        if group["average_decay"]:
            averages = [state["average"] for state in states]
            _move_averages(averages, parameters, counters, group["average_decay"])

    def updates(
        self,
        parameters: list[Tensor],
        gradients: list[Tensor],
        states: list[State],
        group: Group,
    ) -> tuple[Tensor, ...]:
        """Update the moments with the gradients; return the update direction of each
        parameter.
        """
        first_name, second_name = STATE_NAMES
        first = [state[first_name] for state in states]  # m, shaped as the parameters
        second = [state[second_name] for state in states]  # v, likewise
        beta1, beta2 = group["betas"]
        torch._foreach_lerp_(first, gradients, 1 - beta1)  # m += (1 - beta1) (g - m)
        torch._foreach_mul_(second, beta2)  # v = beta2 v + (1 - beta2) g²
        torch._foreach_addcmul_(second, gradients, gradients, 1 - beta2)

        # u = m / (sqrt(v) + eps): eps is outside the root, as upstream has it.
        scales = torch._foreach_sqrt(second)
        counters = list[Tensor]()  # t of each parameter, if it is counted
        # Without the correction, the first steps have full size in every coordinate. In
        # our small networks, all hidden states then collapsed into one above a rate of
        # 5e-4 (docs/choices.md); upstream relies on a long warm-up.
        if group["bias_correction"]:
            counters = [state["step"] for state in states]
            # sqrt(v / (1 - beta2^t)), before eps is added
            corrections = _corrections(counters, beta2)
            torch._foreach_div_(scales, torch._foreach_sqrt(corrections))
        torch._foreach_add_(scales, group["eps"])
        updates = torch._foreach_div(first, scales)
        if group["bias_correction"]:  # m / (1 - beta1^t)
            torch._foreach_div_(updates, _corrections(counters, beta1))

        # Decay is part of the update, not of the gradient (Loshchilov and Hutter, arXiv
        # 1711.05101).
        torch._foreach_add_(updates, parameters, alpha=group["weight_decay"])
        if self.scales_by_norms and group["is_adapted"]:
            _scale_by_norms(updates, parameters)
        return updates

    def state_names(self, group: Group) -> tuple[str, ...]:  # noqa: ARG002
        """Return the names of the tensors that are kept for each parameter of a
        group.
        """
        return STATE_NAMES

    def state_of(self, parameter: Tensor, group: Group) -> State:
        """Return the live state of a parameter by name; it starts as zeros, the average
        as a copy of the weights.
        """
        state: State = self.state[parameter]
        for name in self.state_names(group):
            state.setdefault(name, torch.zeros_like(parameter))
        # Muon makes its momentum orthogonal, whatever its size: nothing to correct.
        corrects_bias = group["bias_correction"] and not group["is_matrix"]
        if corrects_bias or group["average_decay"]:
            counter = torch.zeros((), dtype=torch.float32, device=parameter.device)
            state.setdefault("step", counter)
        if group["average_decay"]:
            state.setdefault("average", parameter.clone())
        return state


def _portions(parameters: Iterable[Tensor]) -> list[list[Tensor]]:
    """Split the parameters that have gradients into runs of at most `_AT_ONCE` elements;
    a larger parameter is alone.

    The temporaries of a step take twice the memory of a portion.
    """
    portions = list[list[Tensor]]()
    size = 0  # elements in the last portion
    for parameter in parameters:
        if parameter.grad is None:
            continue
        size += parameter.numel()
        if not portions or size > _AT_ONCE:
            portions.append([])
            size = parameter.numel()
        portions[-1].append(parameter)
    return portions


def _move_averages(
    averages: list[Tensor],
    parameters: list[Tensor],
    counters: list[Tensor],
    decay: float,
) -> None:
    """Move each average towards its parameter by 1 - d, d = min(decay, (1 + t) / (10 +
    t)).

    So it forgets the random start early, as TensorFlow's ExponentialMovingAverage does.
    What the average gains was not measured separately (docs/choices.md).

    Each t is a 0-dimensional tensor on the device, which the host does not read.
    """
    moves = torch._foreach_sub(parameters, averages)
    shares = list[Tensor]()
    for t in counters:
        kept_share = ((1 + t) / (10 + t)).clamp(max=decay)
        shares.append(1 - kept_share)
    torch._foreach_mul_(moves, shares)
    torch._foreach_add_(averages, moves)


def _scale_by_norms(updates: tuple[Tensor, ...], parameters: list[Tensor]) -> None:
    """Multiply each update by LAMB's ratio |p| / |u|, in place; the ratio is 1 where a
    norm is 0.
    """
    # (parameters,): Euclidean, over each whole tensor. Stacked, so that the ratios are
    # computed at once, and the host reads none of them.
    parameter_norms = torch.stack(torch._foreach_norm(parameters))
    update_norms = torch.stack(torch._foreach_norm(updates))
    has_ratio = (parameter_norms > 0) & (update_norms > 0)
    ratios = torch.where(has_ratio, parameter_norms / update_norms, 1.0)
    torch._foreach_mul_(updates, ratios.unbind())


def _corrections(steps: list[Tensor], beta: float) -> tuple[Tensor, ...]:
    """Return 1 - beta^t for each number of steps t, by expm1: it is exact where beta^t is
    near 1.
    """
    # log(0) raises in Python; in the limit, beta^t is 0 from the first step on
    log_beta = math.log(beta) if beta else -math.inf
    exponents = torch._foreach_mul(steps, log_beta)  # t log beta
    # 1 - exp(t log beta)
    return torch._foreach_neg(torch._foreach_expm1(exponents))


# ---- the average of the weights, in place of the weights -----------------------------


@contextmanager
def use_average(optimizer: Optimizer) -> Iterator[None]:
    """Within the block, replace the weights with their average, if one is kept; restore
    them bit for bit afterwards.
    """
    parameters = list[Tensor]()
    averages = list[Tensor]()  # one for each of these parameters
    for parameter, state in optimizer.state.items():
        if "average" in state:
            parameters.append(parameter.detach())
            averages.append(state["average"])
    # Copies, because (weight + change) - change has other bits than the weight.
    weights = [parameter.clone() for parameter in parameters]
    _copy_all(parameters, averages)
    try:
        yield
    finally:
        _copy_all(parameters, weights)


def _copy_all(targets: list[Tensor], sources: list[Tensor]) -> None:
    for target, source in zip(targets, sources, strict=True):
        target.copy_(source)
