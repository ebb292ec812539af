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
from typing import Any, ClassVar, NamedTuple, TypeAlias

import torch
from torch import Tensor
from torch.optim.optimizer import Optimizer, ParamsT

from litebert.config import OptimConfig, Options
from litebert.device import device_at
from litebert.errors import LitebertError, did_you_mean, format_count
from litebert.plugins import OPTIMIZERS

# The moving averages of g and of g squared that each parameter has, named as upstream.
STATE_NAMES = ("adam_m", "adam_v")
# The longest warm-up of a run by the clock, as a share of its steps.
MOST_WARMUP = 0.1
# Elements that are updated together: all of base, or one kernel of xxlarge.
_AT_ONCE = 1 << 24

# the arguments of `MomentOptimizer`, and `is_adapted`, `is_matrix`, `rate_scale`
Group: TypeAlias = Mapping[str, Any]
State: TypeAlias = dict[str, Tensor]
Schedule: TypeAlias = Callable[[int], float]  # step -> learning rate


# ---- the step that all share ---------------------------------------------------------


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
        if group["bias_correction"]:
            counters = [state["step"] for state in states]
            # sqrt(v / (1 - beta2^t))
            corrections = _corrections(counters, beta2)
            torch._foreach_div_(scales, torch._foreach_sqrt(corrections))
        torch._foreach_add_(scales, group["eps"])
        updates = torch._foreach_div(first, scales)
        if group["bias_correction"]:
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
        # The size of Muon's momentum has no effect, so there is nothing to correct.
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
    powers = torch._foreach_mul(steps, log_beta)  # t log beta, so beta^t - 1 by expm1
    return torch._foreach_neg(torch._foreach_expm1(powers))


# ---- AdamW, LAMB and Muon ------------------------------------------------------------


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
    orthogonalized one by one. (torch.optim.Muon takes only matrices, without an
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
        moments = [state["muon_m"] for state in states]  # (rows, columns) each
        momentum = group["momentum"]
        torch._foreach_lerp_(moments, gradients, 1 - momentum)  # m += (1 - mu) (g - m)
        # Nesterov's look-ahead: where m would be after the same gradient once more
        ahead = torch._foreach_lerp(gradients, moments, momentum)
        updates = tuple(orthogonalize(direction) for direction in ahead)
        # Rows are outputs: a tall matrix may move further for the same change of its
        # outputs.
        scales = [max(1, p.shape[0] / p.shape[1]) ** 0.5 for p in parameters]
        torch._foreach_mul_(updates, scales)
        torch._foreach_add_(updates, parameters, alpha=group["weight_decay"])
        return updates


OPTIMIZERS.add("lamb", Lamb)
OPTIMIZERS.add("adamw", AdamW)
OPTIMIZERS.add("muon", Muon)


def orthogonalize(matrix: Tensor) -> Tensor:
    """Return approximately U V^T of a matrix U S V^T: all its singular values end near
    1.

    Five Newton-Schulz steps on the matrix divided by its norm, in bf16 where that is
    fast, with the quintic that moves singular values into about [0.7, 1.2] (Jordan,
    2024). A zero matrix stays zero.
    """
    # A wide matrix has the smaller Gram matrix, (rows, rows): for a feed-forward layer
    # a sixteenth of the other.
    is_tall = matrix.shape[0] > matrix.shape[1]
    wide = matrix.T if is_tall else matrix
    x = wide.to(device_at(matrix.device).product_dtype)
    x = x / (x.norm() + 1e-7)  # so that no singular value is above 1
    # Jordan's coefficients: they trade exact convergence to 1 for a steep start at 0.
    a = 3.4445
    b = -4.7750
    c = 2.0315
    for _ in range(5):  # x = a x + b (x xᵀ) x + c (x xᵀ)² x
        gram = x @ x.T
        polynomial = torch.addmm(gram, gram, gram, beta=b, alpha=c)
        x = torch.addmm(x, polynomial, x, beta=a)
    orthogonal = x.to(matrix.dtype)
    return orthogonal.T.contiguous() if is_tall else orthogonal


# ---- the average of the weights, and the norm of the gradients -----------------------


@contextmanager
def use_average(optimizer: Optimizer) -> Iterator[None]:
    """Within the block, replace the weights with their average, if one is kept; restore
    them bit for bit afterwards.
    """
    parameters = list[Tensor]()
    averages = list[Tensor]()  # one for each of them
    for parameter, state in optimizer.state.items():
        if "average" in state:
            parameters.append(parameter.detach())
            averages.append(state["average"])
    weights = [parameter.clone() for parameter in parameters]
    _copy_all(parameters, averages)
    try:
        yield
    finally:
        _copy_all(parameters, weights)


def _copy_all(targets: list[Tensor], sources: list[Tensor]) -> None:
    for target, source in zip(targets, sources, strict=True):
        target.copy_(source)


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
    gradients = [p.grad for p in parameters if p.grad is not None]
    if not gradients:
        return torch.zeros(())
    norms = torch.stack(torch._foreach_norm(gradients))  # (gradients,)
    norm: Tensor = torch.linalg.vector_norm(norms)  # of all elements together
    # a factor of 1 for all others, so that the host need not know which case it is
    is_long = (norm > max_norm) & norm.isfinite()
    torch._foreach_mul_(gradients, torch.where(is_long, max_norm / norm, 1.0))
    return norm


# ---- learning-rate schedules ---------------------------------------------------------


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
    warmup_steps = _warmup_steps(config, total_steps, is_by_clock=is_by_clock)
    decay_start = _decay_start(config, warmup_steps, total_steps)
    peak = config.learning_rate
    is_wsd = config.schedule == "wsd"

    def rate(step: int) -> float:
        if step < warmup_steps:
            return peak * step / warmup_steps  # 0 at the first step, as upstream
        # the share of the decay that is left: 1 before it, 0 after the last step
        share = (total_steps - step) / (total_steps - decay_start)
        left = min(1.0, max(0.0, share))
        return peak * (1 - math.sqrt(1 - left)) if is_wsd else peak * left

    return rate


def _warmup_steps(config: OptimConfig, total_steps: int, *, is_by_clock: bool) -> int:
    """Return the number of steps of the warm-up; raise LB-426 unless it is shorter than
    the training.
    """
    warmup = config.warmup_steps
    is_share = warmup < 1
    if is_by_clock and not is_share:
        warmup = min(warmup, max(1, MOST_WARMUP * total_steps))
    if warmup >= total_steps > 1:
        raise LitebertError(
            "LB-426",
            "the warm-up is not shorter than the training",
            received=f"optim.warmup_steps={warmup:g}, {total_steps} steps in all",
            next="set optim.warmup_steps=0.1",
        )
    steps = round(warmup * total_steps) if is_share else round(warmup)
    # One step is left for the decay, even in a training of a single step.
    return min(steps, total_steps - 1)


def _decay_start(config: OptimConfig, warmup_steps: int, total_steps: int) -> int:
    """Return the step from which the configured schedule counts its decay."""
    if config.schedule == "official":
        return 0
    if config.schedule == "linear":
        return warmup_steps
    decay_steps = max(1, round(config.decay_share * total_steps))
    # a long decay waits for the end of the warm-up
    return max(warmup_steps, total_steps - decay_steps)


# ---- an optimizer from a configuration -----------------------------------------------

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
    optimizer_class: type[MomentOptimizer] = OPTIMIZERS[config.name]
    # All groups share one learning rate; matrices multiply it by this factor.
    matrix_scale = None
    if optimizer_class.has_matrices:
        matrix_scale = config.muon_learning_rate / config.learning_rate
    bias_correction = config.bias_correction
    if bias_correction is None:
        bias_correction = optimizer_class.corrects_bias
    groups = parameter_groups(
        named_parameters,
        weight_decay=config.weight_decay,
        head_scale=head_scale,
        matrix_scale=matrix_scale,
    )
    return optimizer_class(
        groups,
        config.learning_rate,
        betas=(config.beta1, config.beta2),
        eps=config.epsilon,
        weight_decay=config.weight_decay,
        bias_correction=bias_correction,
        average_decay=config.average_decay,
        momentum=config.muon_momentum,
        settings=config.settings,
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
    # parameters that are treated alike are one group, whose kernels run together
    parameters = dict[_Treatment, list[tuple[str, Tensor]]]()
    for name, parameter in named_parameters:
        is_matrix = False
        scale = head_scale if name.startswith("head.") else 1.0
        if matrix_scale is not None and parameter.ndim == 2 and _HIDDEN.search(name):
            is_matrix = True
            scale = scale * matrix_scale
        is_excluded = _EXCLUDED.search(name) is not None
        treatment = _Treatment(is_excluded, is_matrix, rate_scale=scale)
        parameters.setdefault(treatment, []).append((name, parameter))

    groups = list[dict[str, Any]]()
    for treatment in sorted(parameters, key=_Treatment.order):
        groups.append(
            {
                "params": parameters[treatment],
                "is_adapted": not treatment.is_excluded,
                "is_matrix": treatment.is_matrix,
                "rate_scale": treatment.rate_scale,
                "weight_decay": 0.0 if treatment.is_excluded else weight_decay,
            }
        )
    return groups


class _Treatment(NamedTuple):
    """How a parameter is updated."""

    is_excluded: bool  # from decay and from adaptation
    is_matrix: bool
    rate_scale: float

    def order(self) -> tuple[bool, bool, float]:
        """Adapted groups with the highest rates come first."""
        return (self.is_excluded, self.is_matrix, -self.rate_scale)


# ---- the state in a checkpoint -------------------------------------------------------


def state_tensors(optimizer: MomentOptimizer) -> dict[str, Tensor]:
    """Return the state of every parameter as `<parameter>/<name>`, such as `…/adam_m`,
    for checkpoints without pickle.

    The tensors are the live state: write or copy them before the next step. A parameter
    that never had a gradient has zeros, so that the set of names depends only on the
    model.
    """
    tensors = dict[str, Tensor]()
    for group in optimizer.param_groups:
        for name, parameter in zip(group["param_names"], group["params"], strict=True):
            for state_name, tensor in optimizer.state_of(parameter, group).items():
                tensors[f"{name}/{state_name}"] = tensor
    return tensors


@torch.no_grad()
def load_state_tensors(
    optimizer: MomentOptimizer, tensors: Mapping[str, Tensor]
) -> None:
    """Load what `state_tensors` returned, so that training continues bit for bit; or
    raise and change nothing.
    """
    live = state_tensors(optimizer)
    _check_same_layout(tensors, live)
    for name, moment in live.items():
        moment.copy_(tensors[name])


def _check_same_layout(saved: Mapping[str, Tensor], live: Mapping[str, Tensor]) -> None:
    """Raise LB-423 unless both have the same names, shapes and types."""
    saved_layout = {name: _layout_of(tensor) for name, tensor in saved.items()}
    live_layout = {name: _layout_of(tensor) for name, tensor in live.items()}
    surplus = sorted(saved_layout.keys() - live_layout.keys())
    differing = list[str]()
    for name in sorted(live_layout):
        if saved_layout.get(name) != live_layout[name]:
            differing.append(name)
    wrong = [*surplus, *differing]
    if not wrong:
        return
    first = wrong[0]
    raise LitebertError(
        "LB-423",
        "the optimizer state belongs to another model"
        f" ({format_count(len(wrong), 'tensor')})",
        received=f"{first} of {saved_layout.get(first, 'nothing')}",
        expected=live_layout.get(first) or did_you_mean(first, live_layout),
        next="resume with the model configuration the checkpoint was written with",
    )


def _layout_of(tensor: Tensor) -> str:
    return f"{tuple(tensor.shape)} {tensor.dtype}"
