"""The files of a split in a data folder: the first known name that is there, packed or not."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from litebert.corpus.source import COMPRESSIONS, Source
from litebert.errors import LitebertError


def find_files(folder: Path, patterns: Sequence[str]) -> list[Source]:
    """Return the files that match the first pattern with a match, sorted by name.

    Each pattern is tried as it is, then with .gz and .zst.

    Raises:
        LitebertError: LB-820, none of them is there.
    """
    for pattern in patterns:
        for packing in ("", *COMPRESSIONS):
            if paths := sorted(path for path in folder.glob(pattern + packing) if path.is_file()):
                return [_source(path) for path in paths]
    raise LitebertError(
        "LB-820",
        f"the data is not in {folder}",
        received=_listing(folder),
        expected=f"one of {', '.join(patterns)} (also {' or '.join(COMPRESSIONS)})",
        next=f"ls {folder}",
    )


def _source(path: Path) -> Source:
    is_packed = path.suffix in COMPRESSIONS
    kind = Path(path.stem).suffix if is_packed else path.suffix
    packing = path.suffix if is_packed else ""
    return Source(str(path), str(path.absolute()), kind, packing, path.stat().st_size)


def _listing(folder: Path) -> str:
    if not folder.is_dir():
        return "a file, not a folder" if folder.exists() else "no such folder"
    names = sorted(path.name for path in folder.iterdir())
    more = f" and {len(names) - 8} more" if len(names) > 8 else ""
    return ", ".join(names[:8]) + more or "an empty folder"
