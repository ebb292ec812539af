"""Free disk space: remove checkpoints of finished runs, and what failures left behind."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from litebert.files import STAGING_MARK, remove_folder
from litebert.runs.run import RUN_FILE, locked


@dataclass(frozen=True)
class Waste:
    """A folder that no command needs any more, and its size."""

    path: Path
    num_bytes: int


def clean(folder: Path, *, is_dry: bool = False) -> list[Waste]:
    """Remove what the runs in and below a folder do not need; return it, largest first.

    For a finished run that is every checkpoint; for any run, damaged and unfinished ones.

    Raises:
        LitebertError: LB-504, a run is training.
    """
    found: list[Waste] = []
    for record in sorted(folder.rglob(RUN_FILE)):
        run = record.parent
        with locked(run):
            for path in sorted(_wasted(run)):
                found.append(Waste(path, _size(path)))
                if not is_dry:
                    remove_folder(path)
    return sorted(found, key=lambda waste: -waste.num_bytes)


def _wasted(run: Path) -> Iterator[Path]:
    is_finished = (run / "model" / "config.json").is_file()
    for path in (run / "checkpoints").glob("*"):
        is_left = path.name.startswith("damaged-") or STAGING_MARK in path.name
        if path.is_dir() and (is_finished or is_left):
            yield path


def _size(path: Path) -> int:
    return sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
