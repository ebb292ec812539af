"""The optimizer and the schedule of a configuration."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial

from torch import Tensor

from litebert.config import OptimConfig
from litebert.errors import LitebertError
from litebert.optim.adamw import AdamW
from litebert.optim.groups import parameter_groups
from litebert.optim.lamb import Lamb
from litebert.optim.moments import MomentOptimizer
from litebert.optim.muon import Muon
from litebert.optim.schedule import Schedule, linear, official, wsd


def build_optimizer(
    config: OptimConfig,
    named_parameters: Iterable[tuple[str, Tensor]],
    *,
    rate_scales: Mapping[str, float] | None = None,
) -> MomentOptimizer:
    """Return the configured optimizer; norms and biases neither decay nor adapt.

    >>> import torch
    >>> model = torch.nn.Linear(2, 2)
    >>> type(build_optimizer(OptimConfig(name="adamw"), model.named_parameters())).__name__
    'AdamW'
    """
    is_muon = config.name == "muon"
    kind: type[MomentOptimizer] = {"lamb": Lamb, "adamw": AdamW, "muon": Muon}[config.name]
    groups = parameter_groups(
        named_parameters,
        weight_decay=config.weight_decay,
        rate_scales=rate_scales,
        matrix_scale=config.muon_learning_rate / config.learning_rate if is_muon else None,
    )
    return kind(
        groups,
        config.learning_rate,
        betas=(config.beta1, config.beta2),
        eps=config.epsilon,
        weight_decay=config.weight_decay,
        bias_correction=is_muon if config.bias_correction is None else config.bias_correction,
        average_decay=config.average_decay,
        momentum=config.muon_momentum,
    )


def build_schedule(config: OptimConfig, *, total_steps: int) -> Schedule:
    """Return the configured learning rate as a function of the step.

    >>> rate = build_schedule(OptimConfig(schedule="official"), total_steps=125_000)
    >>> rate(3_124), rate(3_125), rate(62_500)
    (0.0017594368, 0.001716, 0.00088)
    """
    shapes: dict[str, Callable[..., float]] = {
        "official": official,
        "linear": linear,
        "wsd": partial(wsd, decay_share=config.decay_share),
    }
    return partial(
        shapes[config.schedule],
        peak=config.learning_rate,
        warmup_steps=_warmup_steps(config.warmup_steps, total_steps),
        total_steps=total_steps,
    )


def _warmup_steps(warmup: float, total_steps: int) -> int:
    """Return the steps to the peak; below 1, a share of all steps."""
    if warmup >= total_steps > 1:
        raise LitebertError(
            "LB-426",
            "the warm-up is not shorter than the training",
            received=f"optim.warmup_steps={warmup:g}, {total_steps} steps in all",
            expected="fewer warm-up steps than steps, or a share below 1",
            next="set optim.warmup_steps=0.1",
        )
    steps = warmup * total_steps if warmup < 1 else warmup
    return min(round(steps), total_steps - 1)
