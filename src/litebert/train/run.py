"""Begin or resume a run; choose its device and dtype; write its model."""

from __future__ import annotations

import platform
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path

import torch
from pydantic import BaseModel, JsonValue

import litebert
from litebert.config import Origin, Resolved, Schema, TrainConfig, difference, flattened, without_retired
from litebert.distributed import ALONE, World, local_rank, world_size
from litebert.errors import LitebertError
from litebert.fast.steps import DTYPES
from litebert.files import Json, remove_unfinished, staged_folder
from litebert.folder import save_model
from litebert.hub import write_card
from litebert.nn import Network
from litebert.runs import RunFile, locked, read_record, read_run, write_run
from litebert.tokenizer import Tokenizer
from litebert.train.interrupt import Interruption, interruptible

# Settings that change neither the data nor the numbers; a run may resume with others.
FREE_SETTINGS = frozenset(
    {"train.log_every", "train.save_every", "train.keep_checkpoints", "train.keep_every", "train.loader_workers"}
)


@dataclass(frozen=True)
class Outcome:
    """How a run ended: after which step, with which exit code, and where its model is, if any."""

    folder: Path
    step: int
    exit_code: int
    model: Path | None
    was_finished: bool = False


@contextmanager
def session(folder: Path, world: World = ALONE) -> Iterator[Interruption]:
    """Lock the folder of a run, remove what a killed writer left in it, and catch signals.

    If there are several processes, the first one locks the folder.
    """
    holding = locked(folder) if world.is_first else nullcontext()
    with holding, interruptible(may_force=world.size == 1) as interruption:
        for place in (folder, folder / "checkpoints", folder / "answers"):
            if world.is_first:
                remove_unfinished(place)
        yield interruption


@contextmanager
def threads(number: int | None) -> Iterator[None]:
    """Compute on this many CPU threads within the block."""
    before = torch.get_num_threads()
    torch.set_num_threads(number or before)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def finished(folder: Path) -> Outcome | None:
    """Return the outcome of a finished run, which is one with a model; else None."""
    model = folder / "model"
    if not (model / "config.json").is_file():
        return None
    return Outcome(folder, read_record(folder).step, 0, model, was_finished=True)


def opened(
    folder: Path, resolved: Resolved[Schema], *, data: Mapping[str, JsonValue], world: World, result: str = "model"
) -> Outcome | None:
    """Begin or resume a run, in the first process; return the outcome if it is finished."""

    def begin() -> Json:
        begin_or_resume(folder, resolved, data=data)
        done = finished(folder) if (folder / result).exists() else None
        return done.step if done else None

    step = world.from_first(begin)
    if not isinstance(step, int):
        return None
    return Outcome(folder, step, 0, folder / "model", was_finished=True)


def begin_or_resume(folder: Path, resolved: Resolved[Schema], *, data: Mapping[str, JsonValue]) -> None:
    """Write run.json for a new run; check that an old one has the same settings and data.

    Raises:
        LitebertError: LB-505, it has others.
    """
    recorded = read_run(folder)
    if recorded is None:
        write_run(folder, _run_file(resolved, data))
        return
    before = without_retired(recorded.settings) | _prefixed(recorded.data)
    changes = difference(before, flattened(resolved.config) | _prefixed(data))
    if binding := [change for change in changes if change.split(":")[0] not in FREE_SETTINGS]:
        raise LitebertError(
            "LB-505",
            f"{folder} was begun with other settings",
            received="; ".join(binding),
            expected="the settings in its run.json, so that the run resumes exactly",
            next="repeat the first command, or choose another --name",
        )


def require_share(batch_size: int, world: World) -> None:
    """Raise LB-282 for a batch that leaves a process without a sequence."""
    if batch_size < world.size:
        raise LitebertError(
            "LB-282",
            "the batch has fewer examples than there are processes to share it",
            received=f"train.batch_size={batch_size} for {world.size} processes",
            expected="at least one example for each process",
            next=f"set train.batch_size={world.size}, or start fewer processes",
        )


def choose_device(name: str) -> torch.device:
    """Return the device that `train.device` names; `auto` is CUDA if there is a GPU.

    Each of several processes has its own GPU, by its rank on the machine.

    Raises:
        LitebertError: LB-455, LB-507, the device cannot be shared, or not be used.
    """
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    if name == "cuda" and world_size() > 1:
        name = f"cuda:{local_rank()}"
    if name == "mps" and world_size() > 1:
        raise LitebertError(
            "LB-455",
            "several processes cannot share one Apple GPU",
            received=f"train.device=mps, {world_size()} processes",
            expected="one process, or train.device=cpu",
            next="start without torchrun",
        )
    try:
        device = torch.device(name)
        torch.zeros(1, device=device)
    except (RuntimeError, AssertionError) as error:
        raise LitebertError(
            "LB-507",
            "this device cannot be used",
            received=f"train.device={name}: {str(error).splitlines()[0]}",
            expected="auto, cpu, cuda, cuda:N or mps, as this machine has it",
            next="set train.device=auto",
        ) from error
    return device


def dtype_of(train: TrainConfig) -> torch.dtype:
    """Return the dtype of activations."""
    assert train.precision != "auto", "the precision is settled before a network is built"
    return DTYPES[train.precision]


def write_model(folder: Path, network: Network, tokenizer: Tokenizer, *, has_card: bool = False) -> None:
    """Write a model with its tokenizer, and optionally its card, atomically."""
    with staged_folder(folder) as staged:
        save_model(network, staged)
        tokenizer.save(staged, max_length=network.config.max_position_embeddings)
        if has_card:
            write_card(staged, name=str(folder))


def measured_origins(configured: BaseModel, completed: BaseModel) -> dict[str, Origin]:
    """Return the origin "measured" for every setting that completion has changed."""
    before, after = flattened(configured), flattened(completed)
    return {name: Origin("measured") for name, value in after.items() if before[name] != value}


def _run_file(resolved: Resolved[Schema], data: Mapping[str, JsonValue]) -> RunFile:
    return RunFile(
        litebert=litebert.__version__,
        settings=flattened(resolved.config),
        origins=resolved.origins,
        data=dict(data),
        environment={
            "python": platform.python_version(),
            "torch": torch.__version__,
            "platform": platform.platform(),
            "threads": torch.get_num_threads(),
            "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
        },
    )


def _prefixed(data: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
    return {f"data of {name}": value for name, value in data.items()}
