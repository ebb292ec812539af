"""How a run computes, with which threads and in which precision, and how its model is
written.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import torch
from pydantic import JsonValue

from litebert import files
from litebert.config import Precision, TrainConfig
from litebert.device import Device, choose_device
from litebert.folder import MODEL_FILES, ModelFolder, write_folder
from litebert.folder.card import CARD_FILE, write_card


def settled_precision(
    train: TrainConfig, recorded: Mapping[str, JsonValue]
) -> Precision:
    """Return the precision of a run; if its settings leave it open, the one that was
    `recorded` when it began, or else the one that suits this machine.
    """
    device = choose_device(train.device)
    # measured again, it might be another: a run that is resumed would change
    former = recorded.get("train.precision")
    if train.precision in (None, "auto") and former:
        return device.precision(str(former))
    return device.precision(train.precision)


@contextmanager
def computing(train: TrainConfig, device: Device) -> Iterator[None]:
    """Compute with the threads, the precision and the determinism that are set."""
    # All three belong to the process, and are restored after the block.
    dtype = device.dtype(train.precision)
    with (
        threads(train.threads),
        device.computing(dtype, is_deterministic=train.deterministic),
    ):
        yield


@contextmanager
def threads(number: int | None) -> Iterator[None]:
    """Compute with this many CPU threads within the block."""
    before = torch.get_num_threads()
    torch.set_num_threads(number or before)
    try:
        yield
    finally:
        torch.set_num_threads(before)


WRITTEN_FILES = (*MODEL_FILES, CARD_FILE)
"""The names of all files that `write_model` writes into any folder."""


def write_model(
    folder: Path,
    model: ModelFolder,
    *,
    has_card: bool = False,
    if_exists: files.IfExists = "replace",
) -> None:
    """Write a model folder, and optionally its card, atomically."""
    with files.staged_folder(
        folder, if_exists=if_exists, known_files=WRITTEN_FILES
    ) as staged:
        write_folder(model, staged)
        if has_card:
            write_card(staged, final=folder)
