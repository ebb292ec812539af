"""Which names an output may take: new ones, and those of what litebert wrote."""

import os
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Literal, TypeAlias

from litebert.errors import LitebertError, disk_errors
from litebert.files.staging import clear_stale, read_beginning

# Each folder that litebert writes holds a file that says so in its first bytes: a run,
# a corpus, or weights with the hash that litebert adds to them.
_SIGNS = {
    "run.json": b'"litebert":',
    "corpus.json": b'"tokenizer_hash":',
    "*.safetensors": b'"sha256":"',
}
_OF_DESKTOPS = {".DS_Store", "Thumbs.db", "desktop.ini"}  # written by looking

IfExists: TypeAlias = Literal["replace", "refuse", "offer force"]
"""What is done if an output exists:

    replace      put the new one in its place, if litebert wrote the old one
    refuse       raise an error
    offer force  raise an error that names --force, which the command has
"""


def by_force(force: bool) -> IfExists:
    """Return what a command that has a --force does if its output exists."""
    return "replace" if force else "offer force"


def require_new(
    output: Path, *, if_exists: IfExists = "refuse", known_files: Collection[str] = ()
) -> None:
    """Refuse an output that exists and may not be replaced.

    What may be replaced is a regular file, a folder that says litebert wrote it, and
    one that has no files but `known_files`; never what a link points to, a device, or
    the current folder. An empty folder counts as new.
    """
    clear_stale(output.parent, output.name)
    if not os.path.lexists(output) or _is_empty_folder(output):
        return
    if if_exists != "replace" or not _may_replace(output, known_files):
        raise already_exists(output, if_exists)


def already_exists(output: Path, if_exists: IfExists) -> LitebertError:
    """Return the error for an output that exists and may not be replaced."""
    what = f"{output} already exists"
    expected = "a new name"
    if if_exists == "replace":
        what += ", and litebert did not write it"
    if if_exists == "offer force":
        expected += ", or --force to replace what litebert wrote"
    return LitebertError("LB-619", what, expected=expected, next="choose another name")


def require_replaceable(path: Path, *, as_folder: bool = False) -> None:
    """Check that a path is free or a regular file; with `as_folder`, free or a
    folder.
    """
    with disk_errors(path):
        kind = _kind_of(path)
    replaceable = "a folder" if as_folder else "a file"
    if kind not in ("free", replaceable):
        raise LitebertError(
            "LB-008",
            f"{path} is {kind} and cannot be replaced",
            next="choose another path",
        )


def _kind_of(path: Path) -> str:
    if path.is_symlink():
        return "a symbolic link"
    if not path.exists():
        return "free"
    if path.is_file():
        return "a file"
    if path.is_dir():
        if _has_current_folder(path):
            return "the current folder, or one around it,"
        return "a folder"
    return "a device or pipe"


def foreign_files(folder: Path, known_files: Collection[str]) -> list[str]:
    """Return the files below a folder that are not among `known_files`, as relative
    paths with slashes, sorted.
    """
    return sorted(set(files_below(folder)) - set(known_files) - _OF_DESKTOPS)


def files_below(folder: Path) -> Iterator[str]:
    """Yield the files below a folder, as relative paths with slashes.

    Links count as files, and so do folders that are links; they are not followed.
    """
    for place, folders, names in os.walk(folder):
        links = [name for name in folders if Path(place, name).is_symlink()]
        for name in names + links:
            yield Path(place, name).relative_to(folder).as_posix()


def is_of_litebert(folder: Path, known_files: Collection[str]) -> bool:
    """Return whether litebert wrote a folder: it says so, or has no files but
    `known_files`.
    """
    for pattern, sign in _SIGNS.items():
        for path in folder.glob(pattern):
            if path.is_file() and sign in read_beginning(path):
                return True
    return not foreign_files(folder, known_files)


def _is_empty_folder(output: Path) -> bool:
    """Return whether an output is a folder without files, and not the current one."""
    if output.is_symlink() or not output.is_dir() or _has_current_folder(output):
        return False
    return not any(output.iterdir())


def _may_replace(output: Path, known_files: Collection[str]) -> bool:
    """Return whether an output that exists may be replaced."""
    if output.is_symlink():
        return False
    if output.is_file():
        return True
    if not output.is_dir() or _has_current_folder(output):
        return False
    return is_of_litebert(output, known_files)


def _has_current_folder(folder: Path) -> bool:
    """Return whether a folder is the current one, or one around it."""
    return Path.cwd().resolve().is_relative_to(folder.resolve())
