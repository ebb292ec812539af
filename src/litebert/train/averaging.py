"""Average the weights of several models, or of a run's last checkpoints, into one model."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch

from litebert.errors import LitebertError
from litebert.folder import load_model
from litebert.nn import Network
from litebert.tokenizer import Tokenizer
from litebert.train.checkpoint import Checkpoints, step_of, verify
from litebert.train.run import write_model


def average_checkpoints(run: Path, output: Path, *, last: int = 1, until: int | None = None) -> list[int]:
    """Write the mean weights of the `last` checkpoints up to a step; return their steps.

    With `last` 1 this writes one checkpoint as a model.

    Raises:
        LitebertError: LB-265, there are fewer checkpoints.
        DamagedError: LB-501, one of them is damaged.
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
    write_model(output, mean_network(chosen), _tokenizer(run, chosen[0]), has_card=False)
    return sorted(map(step_of, chosen))


@torch.no_grad()
def mean_network(folders: Sequence[Path], weights: Sequence[float] = ()) -> Network:
    """Return a network with the mean weights of all folders, summed in float64.

    The models must have the same shape; `weights` are their shares, equal by default.
    """
    shares = weights or [1.0] * len(folders)
    network = load_model(folders[0]).network
    sums = {name: tensor.double() * shares[0] for name, tensor in network.state_dict().items()}
    for folder, share in zip(folders[1:], shares[1:], strict=True):
        for name, tensor in load_model(folder).network.state_dict().items():
            sums[name] += tensor.double() * share
    network.load_state_dict({name: (x / sum(shares)).float() for name, x in sums.items()})
    return network


def _tokenizer(run: Path, checkpoint: Path) -> Tokenizer:
    """Load the vocabulary: checkpoints of older versions have none, but the finished run does."""
    has_own = (checkpoint / "tokenizer_config.json").is_file()
    return Tokenizer.load(checkpoint if has_own else run / "model")
