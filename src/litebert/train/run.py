"""A run while it is trained: its lock and signals, begin or resume, device and precision, its model on disk."""

from __future__ import annotations

import os
import platform
import signal
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

import torch
from pydantic import BaseModel, JsonValue

import litebert
from litebert.config import (
    FinetuneConfig,
    Origin,
    PretrainConfig,
    Resolved,
    TrainConfig,
    difference,
    flattened,
    without_retired,
)
from litebert.distributed.world import ALONE, World, launched, world_size
from litebert.errors import LitebertError
from litebert.fast.steps import DTYPES
from litebert.files import Json, remove_unfinished, staged_folder
from litebert.folder import save_model
from litebert.hub import write_card
from litebert.nn import Network
from litebert.runs import Run, RunFile, locked, read_run, write_run
from litebert.tokenizer import Tokenizer

FREE_SETTINGS = frozenset(
    {"train.log_every", "train.save_every", "train.keep_checkpoints", "train.keep_every", "train.loader_workers"}
)
"""Settings that change neither the data nor the numbers; a run may resume with others."""
STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGHUP)


@dataclass(frozen=True)
class Outcome:
    """How a run ended: after which step, with which exit code, and where its model is, if any."""

    folder: Path
    step: int
    exit_code: int
    model: Path | None
    was_finished: bool = False


# The time in which a run is trained


@dataclass
class Interruption:
    """Whether the run should stop after its step, and by which signal."""

    signal_number: int | None = None
    has_stalled: bool = False  # no evaluation has been better for as long as the settings allow
    parent: int = field(default_factory=os.getppid)

    @property
    def is_requested(self) -> bool:
        """Whether the run should stop after this step; torchrun's processes also stop when it is gone."""
        if "TORCHELASTIC_RUN_ID" in os.environ and os.getppid() != self.parent:
            self.signal_number = self.signal_number or signal.SIGHUP
        return self.has_stalled or self.signal_number is not None


@contextmanager
def session(folder: Path, world: World = ALONE) -> Iterator[Interruption]:
    """Lock the folder of a run, remove what a killed writer left in it, and take a signal as a request to stop.

    A second signal has its usual, immediate effect; but not with several processes: a launcher forwards signals that
    they have received already, and kills them in the end. An ignored signal, such as SIGHUP under nohup, stays ignored.
    Outside the main thread Python allows no handlers; none are set.
    """
    interruption = Interruption()
    is_main = threading.current_thread() is threading.main_thread()
    handlers = {number: signal.getsignal(number) for number in STOP_SIGNALS} if is_main else {}
    previous = {number: handler for number, handler in handlers.items() if handler is not signal.SIG_IGN}

    def request(number: int, _: FrameType | None) -> None:
        interruption.signal_number = number
        for each in previous if world.size == 1 else ():
            signal.signal(each, signal.SIG_DFL)

    with locked(folder) if world.is_first else nullcontext():
        try:
            for number in previous:
                signal.signal(number, request)
            for place in (folder, folder / "checkpoints", folder / "answers") if world.is_first else ():
                remove_unfinished(place)
            yield interruption
        finally:
            for number, handler in previous.items():
                signal.signal(number, handler)


@contextmanager
def threads(number: int | None) -> Iterator[None]:
    """Compute on this many CPU threads within the block."""
    before = torch.get_num_threads()
    torch.set_num_threads(number or before)
    try:
        yield
    finally:
        torch.set_num_threads(before)


# Begin or resume


def opened(
    folder: Path,
    resolved: Resolved[PretrainConfig] | Resolved[FinetuneConfig],
    *,
    data: Mapping[str, JsonValue],
    world: World = ALONE,
    result: str = "model",
) -> Outcome | None:
    """Write run.json for a new run, or check that an old one has the same settings and data; in the first process.

    Return the outcome of a finished run: it has a model, and the file or folder `result`.
    """
    size, pool = resolved.config.train.batch_size, resolved.config.mining.pool
    if size < world.size or (pool > 1 and world.size > 1):
        raise LitebertError(
            "LB-282",
            "each of several processes needs an example of every step, and they cannot choose the hardest together",
            received=f"train.batch_size={size}, mining.pool={pool} for {world.size} processes",
            next=f"set train.batch_size={max(size, world.size)} and mining.pool=1, or start fewer processes",
        )
    model = folder / "model"

    def begin() -> Json:
        settings, recorded = flattened(resolved.config), read_run(folder)
        if recorded is None:
            environment: dict[str, JsonValue] = {"python": platform.python_version(), "torch": torch.__version__}
            environment |= {"platform": platform.platform(), "threads": torch.get_num_threads()}
            environment["gpu"] = torch.cuda.get_device_name() if torch.cuda.is_available() else None
            given = {"origins": resolved.origins, "data": dict(data), "environment": environment}
            write_run(folder, RunFile(litebert=litebert.__version__, settings=settings, **given))
            return None
        before = without_retired(recorded.settings) | {f"data of {n}": value for n, value in recorded.data.items()}
        after = settings | {f"data of {name}": value for name, value in data.items()}
        if binding := [each for each in difference(before, after) if each.split(":")[0] not in FREE_SETTINGS]:
            raise LitebertError(
                "LB-505",
                f"{folder} was begun with other settings",
                received="; ".join(binding),
                expected="the settings in its run.json, so that the run resumes exactly",
                next="repeat the first command, or choose another --name",
            )
        is_finished = (folder / result).exists() and (model / "config.json").is_file()
        return Run.open(folder).step if is_finished else None

    step = world.from_first(begin)
    return Outcome(folder, step, 0, model, was_finished=True) if isinstance(step, int) else None


def measured_origins(configured: BaseModel, completed: BaseModel) -> dict[str, Origin]:
    """Return the origin "measured" for every setting that completion has changed."""
    before, after = flattened(configured), flattened(completed)
    return {name: Origin("measured") for name, value in after.items() if before[name] != value}


# Where and how it computes


def choose_device(name: str) -> torch.device:
    """Return the device that `train.device` names; `auto` is CUDA if there is a GPU.

    Each of several processes has its own GPU, by its rank on the machine.
    """
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    if name == "cuda" and world_size() > 1:
        name = f"cuda:{launched('LOCAL_RANK')}"
    try:
        if name == "mps" and world_size() > 1:
            raise RuntimeError("several processes cannot share one Apple GPU")
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
