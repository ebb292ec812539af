"""Build a trainer for any task: optimizer, schedule, pace and checkpoints by the settings."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from litebert.config import FinetuneConfig, PretrainConfig, TrainConfig
from litebert.distributed import ALONE, World
from litebert.errors import ResourceError
from litebert.failures import free_bytes
from litebert.files import readable_bytes
from litebert.nn import Network
from litebert.optim import build_optimizer, build_schedule
from litebert.tokenizer import Tokenizer
from litebert.train.checkpoint import Checkpoints
from litebert.train.log import RunLog
from litebert.train.loop import Trainer
from litebert.train.pace import FixedSteps, Minutes, Pace


def build_trainer(
    network: Network,
    config: PretrainConfig | FinetuneConfig,
    folder: Path,
    log: RunLog,
    *,
    begun: float,
    rate_scales: Mapping[str, float] | None = None,
    world: World = ALONE,
    tokenizer: Tokenizer | None = None,
) -> Trainer:
    """Return the trainer of a network in a run's folder.

    `begun` is when the run's clock started, in seconds of `time.monotonic`.

    Raises:
        ResourceError: LB-506, the disk is too full for the checkpoints and the model.
    """
    train, optim = config.train, config.optim
    checkpoints = Checkpoints(folder / "checkpoints", train.keep_checkpoints, train.keep_every, tokenizer)
    if world.is_first:
        _require_disk(folder, checkpoints, num_parameters=sum(p.numel() for p in network.parameters()))
    return Trainer(
        network=network,
        optimizer=build_optimizer(optim, network.named_parameters(), rate_scales=rate_scales),
        schedule=build_schedule(optim, total_steps=train.steps),
        pace=_pace(train, folder, begun=begun, world=world),
        train=train,
        optim=optim,
        checkpoints=checkpoints,
        log=log,
        world=world,
    )


def _pace(train: TrainConfig, folder: Path, *, begun: float, world: World) -> Pace:
    """Return the pace of a run: a number of steps, or the clock."""
    if train.minutes is None:
        return FixedSteps(train.steps)
    return Minutes.open(folder, minutes=train.minutes, planned=train.steps, begun=begun, world=world)


def _require_disk(folder: Path, checkpoints: Checkpoints, *, num_parameters: int) -> None:
    """Raise LB-506 if the disk has no room for the future checkpoints and the model."""
    checkpoint_bytes = num_parameters * 12  # weights and two moments in float32
    needed = (checkpoints.keep + 1) * checkpoint_bytes + num_parameters * 4
    needed -= min(checkpoints.num_bytes, checkpoints.keep * checkpoint_bytes)
    if (free := free_bytes(folder)) < needed:
        raise ResourceError(
            "LB-506",
            f"the disk of {folder} is too full for this run",
            received=f"{readable_bytes(free)} free",
            expected=f"{readable_bytes(needed)} for its checkpoints and its model",
            next="free some space, lower train.keep_checkpoints, or choose another --runs folder",
        )
