"""The mean of a run's last checkpoints as a model."""

from __future__ import annotations

from pathlib import Path

import torch

from litebert.errors import LitebertError
from litebert.folder import load_model
from litebert.tokenizer import Tokenizer
from litebert.train.checkpoint import Checkpoints, step_of, verify
from litebert.train.run import write_model


@torch.no_grad()
def average_checkpoints(
    run: Path, output: Path, *, last: int = 1, until: int | None = None
) -> list[int]:
    """Write the mean weights of the `last` checkpoints up to a step; return their steps.

    With `last` 1 this writes one checkpoint as a model. Sums are in float64.

    Raises:
        LitebertError: LB-265, there are fewer checkpoints; DamagedError where one is damaged.
    """
    every = Checkpoints(run / "checkpoints", keep=1).newest_first()
    chosen = [path for path in every if until is None or step_of(path) <= until][:last]
    if len(chosen) < last:
        steps = ", ".join(f"{step_of(path):,}" for path in reversed(every))
        raise LitebertError(
            "LB-265",
            f"{run} has too few checkpoints",
            received=f"{len(chosen)} of {last}; there are steps {steps or 'none'}",
            expected=f"{last} checkpoints" + (f" up to step {until:,}" if until else ""),
            next="lower --last; new runs keep more with train.keep_checkpoints or train.keep_every",
        )
    for path in chosen:
        verify(path)
    network = load_model(chosen[0]).network
    sums = {name: tensor.double() for name, tensor in network.state_dict().items()}
    for path in chosen[1:]:
        for name, tensor in load_model(path).network.state_dict().items():
            sums[name] += tensor
    network.load_state_dict({name: (tensor / last).float() for name, tensor in sums.items()})
    write_model(output, network, _tokenizer(run, chosen[0]), has_card=False)
    return sorted(map(step_of, chosen))


def _tokenizer(run: Path, checkpoint: Path) -> Tokenizer:
    """Load the vocabulary: checkpoints of older versions have none, but the finished run does."""
    has_own = (checkpoint / "tokenizer_config.json").is_file()
    return Tokenizer.load(checkpoint if has_own else run / "model")
