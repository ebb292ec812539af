"""One writer a folder: a lock that the system lifts when its holder ends, however it ends."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from litebert.errors import LitebertError
from litebert.files import disk_errors


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold a folder against other builds.

    Raises: LitebertError while another process holds it.
    """
    with disk_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        _lock(descriptor, folder)
        yield
    finally:
        os.close(descriptor)


def _lock(descriptor: int, folder: Path) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise LitebertError(
            "LB-319",
            f"{folder} is being written by another process",
            received="a locked folder",
            expected="one build a folder at a time",
            next="wait for it, or choose another --output",
        ) from error
