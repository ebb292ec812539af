"""One build at a time for a corpus folder."""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path

from litebert import files
from litebert.errors import LitebertError


def locked(folder: Path) -> AbstractContextManager[None]:
    """Hold a folder against other builds.

    Raises: LitebertError while another process holds it.
    """
    return files.locked(folder, lambda: _busy(folder))


def _busy(folder: Path) -> LitebertError:
    return LitebertError(
        "LB-319",
        f"{folder} is being written by another process",
        received="a locked folder",
        expected="one build a folder at a time",
        next="wait for it, or choose another --output",
    )
