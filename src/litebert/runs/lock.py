"""One process at a time for a run."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from litebert import files
from litebert.errors import LitebertError

_HOLDER = ".lock"


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold a run's folder against other processes; the file .lock names the holder.

    Raises:
        LitebertError: LB-504, another process holds it.
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
