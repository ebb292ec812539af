"""The state of an optimizer in a checkpoint: tensors by name, without pickle."""

from collections.abc import Mapping

import torch
from torch import Tensor

from litebert.errors import LitebertError, did_you_mean, format_count
from litebert.optim.moments import MomentOptimizer


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
    # before the first copy, so that nothing is half loaded
    require_same_layout(tensors, live)
    for name, moment in live.items():
        moment.copy_(tensors[name])


def require_same_layout(
    saved: Mapping[str, Tensor], live: Mapping[str, Tensor]
) -> None:
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
