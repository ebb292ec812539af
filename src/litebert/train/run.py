"""Begin a run or resume it; what its settings say about device, dtype and disk."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from pydantic import JsonValue

import litebert
from litebert.config import Resolved, Schema, TrainConfig, difference, flattened
from litebert.errors import LitebertError, ResourceError
from litebert.files import free_bytes, staged_folder
from litebert.folder import save_model
from litebert.nn import DTYPES, Network
from litebert.runs import RunFile, read_run, write_run
from litebert.tokenizer import Tokenizer

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


def begin_or_resume(
    folder: Path, resolved: Resolved[Schema], *, data: Mapping[str, JsonValue]
) -> None:
    """Write run.json for a new run; refuse to go on with another configuration or other data."""
    recorded = read_run(folder)
    if recorded is None:
        write_run(folder, _run_file(resolved, data))
        return
    changes = difference(
        {**recorded.settings, **_prefixed(recorded.data)},
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


def write_model(folder: Path, network: Network, tokenizer: Tokenizer) -> None:
    """Write a model with its tokenizer, whole or not at all."""
    with staged_folder(folder) as staged:
        save_model(network, staged)
        tokenizer.save(staged, max_length=network.config.max_position_embeddings)


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
