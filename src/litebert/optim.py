"""LAMB, used to pretrain ALBERT, AdamW, used to fine-tune it, Muon, and learning-rate
schedules.

Line numbers are those of google-research/albert. All share one step over two moments.
Nothing is read on the host, so a step neither waits for a GPU nor breaks a captured
graph (for a graph, pass `lr` as a 0-dimensional tensor on the device and fill it in
place).
"""

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, ClassVar, TypeAlias

import torch
from torch import Tensor
from torch.optim.optimizer import Optimizer, ParamsT

from litebert.config import OptimConfig
from litebert.device import device_at
from litebert.errors import LitebertError, did_you_mean, format_count
from litebert.plugins import OPTIMIZERS

# of each parameter, named as upstream: the moving averages of g and g squared
STATE_NAMES = ("adam_m", "adam_v")
MOST_WARMUP = 0.1  # the longest warm-up of a run by the clock, as a share of its steps
# elements that are updated together: all of base, or one kernel of xxlarge
_AT_ONCE = 1 << 24

# the arguments of `MomentOptimizer`, and `is_adapted`, `is_matrix`, `rate_scale`
Group: TypeAlias = Mapping[str, Any]
State: TypeAlias = dict[str, Tensor]
Schedule: TypeAlias = Callable[[int], float]  # step -> learning rate


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
        ours = {
            "bias_correction": bias_correction,
            "average_decay": average_decay,
            "momentum": momentum,
        }
        super().__init__(
            params,
            {
                **official,
                **ours,
                "is_adapted": True,
                "is_matrix": False,
                "rate_scale": 1.0,
            },
        )

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        """Update every parameter that has a gradient; return what `closure`
        returned.
        """
        with torch.enable_grad():
            loss = closure() if closure else None
        for group in self.param_groups:
            # a step's temporaries take twice the memory of a portion
            portions = list[list[Tensor]]()
            size = 0
            for parameter in group["params"]:
                if parameter.grad is not None:
                    size += parameter.numel()
                    if not portions or size > _AT_ONCE:
                        portions.append([])
                        size = parameter.numel()
                    portions[-1].append(parameter)
            for parameters in portions:
                gradients = [p.grad for p in parameters if p.grad is not None]
                states = [
                    self.state.get(parameter) or self.state_of(parameter, group)
                    for parameter in parameters
                ]
                steps = [state["step"] for state in states if "step" in state]
                if steps:
                    torch._foreach_add_(steps, 1)
                updates = self.updates(parameters, gradients, states, group)
                torch._foreach_mul_(updates, group["lr"])
                torch._foreach_sub_(parameters, updates)
                if group["average_decay"]:
                    # The average moves by 1 - d, d = min(decay, (1 + t) / (10 + t)): it
                    # forgets the random start early, as TensorFlow's does. The step t
                    # is a tensor on the device, which the host does not read.
                    averages = [state["average"] for state in states]
                    moves = torch._foreach_sub(parameters, averages)
                    keep = [
                        ((1 + t) / (10 + t)).clamp(max=group["average_decay"])
                        for t in steps
                    ]
                    torch._foreach_mul_(moves, [1 - each for each in keep])
                    torch._foreach_add_(averages, moves)
        return loss

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
        first, second = ([state[name] for state in states] for name in STATE_NAMES)
        beta1, beta2 = group["betas"]
        torch._foreach_lerp_(first, gradients, 1 - beta1)  # m += (1 - beta1) (g - m)
        torch._foreach_mul_(second, beta2)  # v = beta2 v + (1 - beta2) g²
        torch._foreach_addcmul_(second, gradients, gradients, 1 - beta2)
        # eps is added outside the root, as upstream does
        scales = torch._foreach_sqrt(second)
        if group["bias_correction"]:
            steps = [state["step"] for state in states]
            # sqrt(v / (1 - beta2^t))
            torch._foreach_div_(scales, torch._foreach_sqrt(_corrections(steps, beta2)))
        torch._foreach_add_(scales, group["eps"])
        updates = torch._foreach_div(first, scales)
        if group["bias_correction"]:
            torch._foreach_div_(updates, _corrections(steps, beta1))
        # Decay is part of the update, not of the gradient (Loshchilov and Hutter, arXiv
        # 1711.05101).
        torch._foreach_add_(updates, parameters, alpha=group["weight_decay"])
        if self.scales_by_norms and group["is_adapted"]:
            # (parameters,), Euclidean over each whole matrix
            lengths = torch.stack(torch._foreach_norm(parameters))
            strides = torch.stack(torch._foreach_norm(updates))
            ratios = torch.where((lengths > 0) & (strides > 0), lengths / strides, 1.0)
            torch._foreach_mul_(updates, ratios.unbind())
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
        if group["average_decay"] or (
            group["bias_correction"] and not group["is_matrix"]
        ):
            state.setdefault(
                "step", torch.zeros((), dtype=torch.float32, device=parameter.device)
            )
        if group["average_decay"]:
            state.setdefault("average", parameter.clone())
        return state


def _corrections(steps: list[Tensor], beta: float) -> tuple[Tensor, ...]:
    """Return 1 - beta^t for each step t, by expm1, which is exact for small t."""
    powers = (
        torch._foreach_mul(steps, math.log(beta))
        if beta
        else [s * -torch.inf for s in steps]
    )
    return torch._foreach_neg(torch._foreach_expm1(powers))


class AdamW(MomentOptimizer):
    """Update p by lr (m / (sqrt(v) + eps) + weight_decay p), in place (optimization.py
    L120-207).

    Unlike `torch.optim.AdamW`, it has no bias correction by default: the first steps
    are larger, which is why upstream warms up. Build the groups with
    `parameter_groups`, so that norms and biases do not decay.

    >>> weight = torch.nn.Parameter(torch.tensor([0.5], dtype=torch.float64))
    >>> weight.grad = torch.tensor([0.1], dtype=torch.float64)
    >>> AdamW([weight], lr=0.01).step()
    >>> round(weight.item(), 10)
    0.4683372202
    """


class Lamb(MomentOptimizer):
    """Update p by lr ratio u in place, where u is AdamW's direction and ratio = |p| /
    |u|, never clipped.

    Official lamb_optimizer.py L66-122; You et al., arXiv 1904.00962. The ratio is 1 if
    a norm is 0, and in groups with `is_adapted=False` (norms and biases). Each
    parameter has its own ratio, as upstream's variables do: query, key and value have
    three, and a block that all layers share has one set.

    >>> weight = torch.nn.Parameter(torch.tensor([3.0, 4.0]))
    >>> weight.grad = torch.tensor([1.0, 1.0])
    >>> Lamb([weight], lr=0.1, weight_decay=0.0).step()
    >>> weight.detach()  # moved by lr |p| = 0.5, for any size of gradient
    tensor([2.6464, 3.6464])
    """

    scales_by_norms: ClassVar[bool] = True


class Muon(MomentOptimizer):
    """Update matrices by lr sqrt(max(1, rows / columns)) orth(momentum); the rest as
    AdamW.

    Jordan et al., "Muon: an optimizer for hidden layers in neural networks", 2024.
    Groups with `is_matrix` hold the matrices; their momentum is Nesterov's, and their
    rate is per unit of spectral norm. Query, key and value are separate parameters,
    orthogonalised one by one. (torch.optim.Muon takes only matrices, without an
    average.)
    """

    has_matrices: ClassVar[bool] = True
    corrects_bias: ClassVar[bool] = True

    def state_names(self, group: Group) -> tuple[str, ...]:
        return ("muon_m",) if group["is_matrix"] else STATE_NAMES

    def updates(
        self,
        parameters: list[Tensor],
        gradients: list[Tensor],
        states: list[State],
        group: Group,
    ) -> tuple[Tensor, ...]:
        if not group["is_matrix"]:
            return super().updates(parameters, gradients, states, group)
        moments = [state["muon_m"] for state in states]
        # m += (1 - mu) (g - m)
        torch._foreach_lerp_(moments, gradients, 1 - group["momentum"])
        # Nesterov's look-ahead
        ahead = torch._foreach_lerp(gradients, moments, group["momentum"])
        updates = tuple(orthogonalise(each) for each in ahead)
        # Rows are outputs: a tall matrix may move further for the same change of its
        # outputs.
        torch._foreach_mul_(
            updates, [max(1, p.shape[0] / p.shape[1]) ** 0.5 for p in parameters]
        )
        torch._foreach_add_(updates, parameters, alpha=group["weight_decay"])
        return updates


OPTIMIZERS.add("lamb", Lamb)
OPTIMIZERS.add("adamw", AdamW)
OPTIMIZERS.add("muon", Muon)


def orthogonalise(matrix: Tensor) -> Tensor:
    """Return approximately U V^T of a matrix U S V^T: all its singular values end near
    1.

    Five Newton-Schulz steps on the matrix divided by its norm, in bf16 where that is
    fast, with the quintic that moves singular values into about [0.7, 1.2] (Jordan,
    2024). A zero matrix stays zero.
    """
    is_tall = matrix.shape[0] > matrix.shape[1]
    wide = matrix.T if is_tall else matrix  # for a smaller Gram matrix
    x = wide.to(device_at(matrix.device).product_dtype)
    x = x / (x.norm() + 1e-7)  # so that no singular value is above 1
    a = 3.4445
    b = -4.7750
    c = 2.0315
    for _ in range(5):  # x = a x + b (x xᵀ) x + c (x xᵀ)² x
        gram = x @ x.T
        x = torch.addmm(x, torch.addmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    x = x.to(matrix.dtype)
    return x.T.contiguous() if is_tall else x


@contextmanager
def use_average(optimizer: Optimizer) -> Iterator[None]:
    """Within the block, replace the weights with their average, if one is kept; restore
    them bit for bit afterwards.
    """
    kept = [
        (p.detach(), state["average"])
        for p, state in optimizer.state.items()
        if "average" in state
    ]
    weights = [parameter.clone() for parameter, _ in kept]
    for parameter, average in kept:
        parameter.copy_(average)
    try:
        yield
    finally:
        for (parameter, _), weight in zip(kept, weights, strict=True):
            parameter.copy_(weight)


@torch.no_grad()
def clip_gradients(parameters: Iterable[Tensor], max_norm: float) -> Tensor:
    """Scale all gradients in place to a joint norm of at most `max_norm`; return the
    norm before clipping.

    The norm is a 0-dimensional tensor on the gradients' device, so the host does not
    wait. If it is not finite, the gradients are unchanged, for inspection, and the
    caller must not step. Official optimization.py L106 clips at 1.0; unlike torch's
    `clip_grad_norm_`, and like tf.clip_by_global_norm, it adds no 1e-6 to the norm.

    >>> weight = torch.nn.Parameter(torch.zeros(2))
    >>> weight.grad = torch.tensor([3.0, 4.0])
    >>> clip_gradients([weight], 1.0), weight.grad
    (tensor(5.), tensor([0.6000, 0.8000]))
    """
    assert max_norm > 0
    gradients = [each.grad for each in parameters if each.grad is not None]
    if not gradients:
        return torch.zeros(())
    norm: Tensor = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(gradients)))
    is_long = (norm > max_norm) & norm.isfinite()
    torch._foreach_mul_(gradients, torch.where(is_long, max_norm / norm, 1.0))
    return norm


def build_schedule(
    config: OptimConfig, *, total_steps: int, is_by_clock: bool = False
) -> Schedule:
    """Return the configured learning rate as a pure function of the step, which counts
    from 0.

    The warm-up (below 1: a share of all steps) is linear; the rate is 0 from
    `total_steps` on. In a run by the clock, whose number of steps nobody chose, a
    warm-up given in steps takes at most a tenth of them. `official` (optimization.py
    L28-64) and `linear` decay linearly. `wsd` stays at the peak until the last
    `decay_share`, then falls by 1 - sqrt; a run can continue from any checkpoint before
    the decay (Hägele et al., arXiv 2405.18392).

    >>> def rates(name: str) -> list[float]:
    ...     config = OptimConfig(schedule=name, learning_rate=1.0, warmup_steps=2, decay_share=0.5)
    ...     return [round(build_schedule(config, total_steps=8)(step), 2) for step in range(9)]
    >>> rates("official")  # upstream's decay counts from step 0: it drops where the warm-up ends, below the peak
    [0.0, 0.5, 0.75, 0.62, 0.5, 0.38, 0.25, 0.12, 0.0]
    >>> rates("linear")
    [0.0, 0.5, 1.0, 0.83, 0.67, 0.5, 0.33, 0.17, 0.0]
    >>> rates("wsd")
    [0.0, 0.5, 1.0, 1.0, 1.0, 0.5, 0.29, 0.13, 0.0]
    """  # noqa: E501
    warmup = config.warmup_steps
    peak = config.learning_rate
    if warmup >= 1 and is_by_clock:
        warmup = min(warmup, max(1, MOST_WARMUP * total_steps))
    if warmup >= total_steps > 1:
        what = "the warm-up is not shorter than the training"
        lengths = f"{warmup:g}, {total_steps} steps in all"
        raise LitebertError(
            "LB-426",
            what,
            received=f"optim.warmup_steps={lengths}",
            next="set optim.warmup_steps=0.1",
        )
    steps = min(round(warmup * total_steps if warmup < 1 else warmup), total_steps - 1)
    # a long decay waits for the end of the warm-up
    decay_steps = max(1, round(config.decay_share * total_steps))
    start = {
        "official": 0,
        "linear": steps,
        "wsd": max(steps, total_steps - decay_steps),
    }[config.schedule]

    def rate(step: int) -> float:
        if step < steps:
            return peak * step / steps
        # part of the decay; 1 before it
        left = min(1.0, max(0.0, (total_steps - step) / (total_steps - start)))
        return peak * (1 - math.sqrt(1 - left) if config.schedule == "wsd" else left)

    return rate


# Build from a configuration; save to and load from a checkpoint.

# upstream's pattern (optimization.py L83), and our own modules called `norm` or
# `…_norm`
_EXCLUDED = re.compile(r"LayerNorm|layer_norm|bias|norm\.")
# matrices that map one hidden vector to another; in embedding tables and classifiers,
# rows are symbols
_HIDDEN = re.compile(
    r"(attention|feed_forward)\.\d+\.|projection\.|pooler\.|masked_lm\.dense\."
)


def build_optimizer(
    config: OptimConfig,
    named_parameters: Iterable[tuple[str, Tensor]],
    *,
    head_scale: float = 1.0,
) -> MomentOptimizer:
    """Return the configured optimizer; norms and biases neither decay nor adapt."""
    kind: type[MomentOptimizer] = OPTIMIZERS[config.name]
    matrix_scale = None
    if kind.has_matrices:
        matrix_scale = config.muon_learning_rate / config.learning_rate
    bias_correction = config.bias_correction
    if bias_correction is None:
        bias_correction = kind.corrects_bias
    groups = parameter_groups(
        named_parameters,
        weight_decay=config.weight_decay,
        head_scale=head_scale,
        matrix_scale=matrix_scale,
    )
    return kind(
        groups,
        config.learning_rate,
        betas=(config.beta1, config.beta2),
        eps=config.epsilon,
        weight_decay=config.weight_decay,
        bias_correction=bias_correction,
        average_decay=config.average_decay,
        momentum=config.muon_momentum,
    )


def parameter_groups(
    named_parameters: Iterable[tuple[str, Tensor]],
    *,
    weight_decay: float,
    head_scale: float = 1.0,
    matrix_scale: float | None = None,
) -> list[dict[str, Any]]:
    """Split named parameters into those that decay and adapt, and those that do
    neither.

    The learning rate of task heads is multiplied by `head_scale`. With `matrix_scale`,
    the matrices of hidden layers have groups of their own (`is_matrix`), with that
    factor. Torch keeps the names, under which the state is saved.
    """
    # sorted: adapted first, then by descending rate
    groups: dict[tuple[bool, bool, float], dict[str, Any]] = {}
    for name, parameter in named_parameters:
        is_adapted = not _EXCLUDED.search(name)
        is_matrix = False
        scale = head_scale if name.startswith(("head.", "exits.")) else 1.0
        if matrix_scale is not None and parameter.ndim == 2 and _HIDDEN.search(name):
            is_matrix = True
            scale = scale * matrix_scale
        group = {"is_adapted": is_adapted, "is_matrix": is_matrix, "rate_scale": scale}
        group["weight_decay"] = weight_decay if is_adapted else 0.0
        groups.setdefault((not is_adapted, is_matrix, -scale), {"params": [], **group})[
            "params"
        ] += [(name, parameter)]
    return [groups[key] for key in sorted(groups)]


def state_tensors(optimizer: MomentOptimizer) -> dict[str, Tensor]:
    """Return the state of every parameter as `<parameter>/<name>`, such as `…/adam_m`,
    for checkpoints without pickle.

    The tensors are the live state: write or copy them before the next step. A parameter
    that never had a gradient has zeros, so that the set of names depends only on the
    model.
    """
    return {
        f"{name}/{state_name}": kept
        for group in optimizer.param_groups
        for name, parameter in zip(group["param_names"], group["params"], strict=True)
        for state_name, kept in optimizer.state_of(parameter, group).items()
    }


@torch.no_grad()
def load_state_tensors(
    optimizer: MomentOptimizer, tensors: Mapping[str, Tensor]
) -> None:
    """Load what `state_tensors` returned, so that training continues bit for bit; or
    raise and change nothing.
    """
    live = state_tensors(optimizer)
    theirs, ours = (
        {name: f"{tuple(x.shape)} {x.dtype}" for name, x in each.items()}
        for each in (tensors, live)
    )
    wrong = [
        *sorted(theirs.keys() - ours.keys()),
        *sorted(name for name in ours if theirs.get(name) != ours[name]),
    ]
    if wrong:
        what = (
            "the optimizer state belongs to another model"
            f" ({format_count(len(wrong), 'tensor')})"
        )
        received = f"{wrong[0]} of {theirs.get(wrong[0], 'nothing')}"
        expected = ours.get(wrong[0]) or did_you_mean(wrong[0], ours)
        again = "resume with the model configuration the checkpoint was written with"
        raise LitebertError(
            "LB-423", what, received=received, expected=expected, next=again
        )
    for name, moment in live.items():
        moment.copy_(tensors[name])
