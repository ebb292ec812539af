"""A run on disk: runs/<name>/ with run.json, metrics.jsonl, checkpoints/ and the result, model/."""

from __future__ import annotations

import fcntl
import os
import platform
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch

import litebert
from litebert.config import Resolved, Schema, TrainConfig, difference, flattened
from litebert.errors import LitebertError, ResourceError
from litebert.files import Json, free_bytes, read_json, staged_folder, write_json
from litebert.folder import save_model
from litebert.nn import DTYPES, Network
from litebert.tokenizer import Tokenizer

RUN_FILE = "run.json"
# Settings that change neither the data nor the numbers; the same run may go on with others.
FREE_SETTINGS = frozenset(
    {"train.log_every", "train.save_every", "train.keep_checkpoints", "train.loader_workers"}
)


@dataclass(frozen=True)
class Outcome:
    """How a run ended: at which step, interrupted by what, with its model where."""

    folder: Path
    step: int
    exit_code: int
    model: Path | None


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold a run's folder against a second process; the system frees it when this one ends."""
    folder.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(folder / ".lock", os.O_RDWR | os.O_CREAT, 0o644)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise LitebertError(
                "LB-504",
                f"another process trains in {folder}",
                received=os.pread(descriptor, 200, 0).decode("utf-8", "replace").strip(),
                expected="one process at a time for one run",
                next="wait for it, stop it, or choose another --name",
            ) from error
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"pid {os.getpid()} on {socket.gethostname()}\n".encode(), 0)
        yield
    finally:
        os.close(descriptor)


def begin_or_resume(folder: Path, resolved: Resolved[Schema], *, data: dict[str, Json]) -> None:
    """Write run.json for a new run; refuse to go on with another configuration or other data."""
    recorded = read_run(folder)
    if recorded is None:
        write_json(folder / RUN_FILE, _run_json(resolved, data))
        return
    changes = difference(
        {**_table(recorded, "settings"), **_prefixed(_table(recorded, "data"))},
        {**flattened(resolved.config), **_prefixed(data)},
    )
    if binding := [change for change in changes if change.split(":")[0] not in FREE_SETTINGS]:
        raise LitebertError(
            "LB-505",
            f"{folder} was begun with other settings",
            received="; ".join(binding),
            expected="the settings in its run.json, so that the run goes on exactly",
            next="repeat the first command, or choose another --name",
        )


def read_run(folder: Path) -> dict[str, Json] | None:
    """Return run.json, or nothing where no run was begun."""
    path = folder / RUN_FILE
    return read_json(path, command=f"ls {folder}") if path.exists() else None


def recorded_setting(folder: Path, name: str) -> Json:
    """Return one dotted setting of a run that was begun."""
    recorded = read_run(folder)
    return None if recorded is None else _table(recorded, "settings").get(name)


def require_disk(folder: Path, needed: int) -> None:
    """Refuse to begin where the checkpoints will not fit."""
    if (free := free_bytes(folder)) < needed:
        raise ResourceError(
            "LB-506",
            f"the disk of {folder} is too full for this run",
            received=f"{free / 2**30:.2f} GiB free",
            expected=f"{needed / 2**30:.2f} GiB for its checkpoints and its model",
            next="free some space, lower train.keep_checkpoints, or choose another --runs folder",
        )


def choose_device(name: str) -> torch.device:
    """Return the device of a setting; `auto` is CUDA where there is one."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.zeros(1, device=device)
    except (RuntimeError, AssertionError) as error:
        raise LitebertError(
            "LB-507",
            "this device cannot be used",
            received=f"train.device={name}: {str(error).splitlines()[0]}",
            expected="auto, cpu, cuda or cuda:N of this machine",
            next="set train.device=auto",
        ) from error
    return device


def dtype_of(train: TrainConfig) -> torch.dtype:
    """Return the dtype of activations."""
    assert train.precision != "auto", "the precision is settled before a network is built"
    return DTYPES[train.precision]


def write_result(folder: Path, network: Network, tokenizer: Tokenizer) -> None:
    """Write a model with its tokenizer, whole or not at all."""
    with staged_folder(folder) as staged:
        save_model(network, staged)
        tokenizer.save(staged, max_length=network.config.max_position_embeddings)


def _run_json(resolved: Resolved[Schema], data: dict[str, Json]) -> dict[str, Json]:
    return {
        "format": 1,
        "litebert": litebert.__version__,
        "settings": flattened(resolved.config),
        "origins": dict(resolved.origins),
        "data": data,
        "environment": {
            "python": platform.python_version(),
            "torch": torch.__version__,
            "platform": platform.platform(),
            "threads": torch.get_num_threads(),
            "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
        },
    }


def _table(recorded: dict[str, Json], name: str) -> dict[str, Json]:
    value = recorded.get(name)
    return value if isinstance(value, dict) else {}


def _prefixed(data: dict[str, Json]) -> dict[str, Json]:
    return {f"data of {name}": value for name, value in data.items()}
