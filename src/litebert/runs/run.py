"""A run's folder: run.json (settings with their origins, data, environment), and its lock."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, JsonValue, PlainSerializer, ValidationError

from litebert import files
from litebert.config import Origin
from litebert.config.allowed import refused
from litebert.errors import DamagedError, LitebertError
from litebert.files import read_json, write_json

RUN_FILE = "run.json"
Kind = Literal["pretraining", "fine-tuning"]


def _origin(value: object) -> object:
    return Origin.read(value) if isinstance(value, str) else value


_WrittenOrigin = Annotated[Origin, BeforeValidator(_origin), PlainSerializer(str)]


class RunFile(BaseModel):
    """The contents of run.json; origins are written as text."""

    model_config = ConfigDict(frozen=True)

    format: int = 1
    litebert: str = "unknown"
    settings: dict[str, JsonValue] = {}
    origins: dict[str, _WrittenOrigin] = {}
    data: dict[str, JsonValue] = {}
    environment: dict[str, JsonValue] = {}

    @property
    def kind(self) -> Kind:
        """The kind of run; only fine-tuning has a task."""
        return "fine-tuning" if "task.name" in self.settings else "pretraining"


def is_run(folder: Path) -> bool:
    """Tell whether a run was begun in `folder`."""
    return (folder / RUN_FILE).is_file()


def require_run(folder: Path) -> None:
    """Raise LB-543 if the folder of a run was deleted or moved while it was running."""
    if not is_run(folder):
        raise LitebertError(
            "LB-543",
            f"the folder of this run is gone: {folder}",
            received=f"{folder / RUN_FILE} missing",
            expected="a folder that is not deleted or moved during the run",
            next="run the same command again: it starts afresh, or resumes a restored folder",
        )


def read_run(folder: Path) -> RunFile | None:
    """Read run.json; None if no run was begun.

    Raises:
        DamagedError: LB-540, the file is not what litebert writes.
    """
    path = folder / RUN_FILE
    if not path.exists():
        return None
    table = read_json(path, command=f"ls {folder}")
    try:
        return RunFile.model_validate(table)
    except ValidationError as error:
        raise DamagedError(
            "LB-540",
            f"{path} is not the record of a run",
            received=refused(error),
            expected="settings, origins, data and environment, as litebert writes them",
            next=f"restore {path}, or start again under another --name",
        ) from error


def write_run(folder: Path, run: RunFile) -> None:
    """Write run.json."""
    write_json(folder / RUN_FILE, run.model_dump(mode="json"))


def recorded_setting(folder: Path, name: str) -> JsonValue:
    """Return one dotted setting of a run; None if no run was begun."""
    run = read_run(folder)
    settings: Mapping[str, JsonValue] = run.settings if run else {}
    return settings.get(name)


_HOLDER = ".lock"


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Lock a run's folder against other processes; the file .lock names the holder.

    Raises:
        LitebertError: LB-504, another process has locked it.
    """

    def busy() -> LitebertError:
        holder = folder / _HOLDER
        return LitebertError(
            "LB-504",
            f"another process trains in {folder}",
            received=holder.read_text("utf-8").strip() if holder.exists() else "a locked folder",
            expected="one process at a time for one run",
            next="wait for it, stop it, or choose another --name",
        )

    with files.locked(folder, busy):
        (folder / _HOLDER).unlink(missing_ok=True)
        files.append_line(folder / _HOLDER, f"pid {os.getpid()} on {socket.gethostname()}")
        yield
