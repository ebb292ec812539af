"""The one writer of outputs: each is made next to its place and renamed when whole.

What stands under the name of an output is looked at twice: when the work begins, and
when the result is put in place, by a rename that fails if something has appeared there.
"""

import filecmp
import json
import os
import shutil
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from litebert.errors import disk_errors
from litebert.files.reading import Json
from litebert.files.renaming import exchange_names, rename_to_free
from litebert.files.replacing import (
    IfExists,
    already_exists,
    files_below,
    foreign_files,
    is_of_litebert,
    require_replaceable,
)
from litebert.files.staging import StagingFolder, is_being_made, staging_for

# ---- files ---------------------------------------------------------------------------


def write_stream(
    path: Path,
    chunks: Iterable[bytes | memoryview],
    *,
    if_exists: IfExists = "replace",
    accepts_same: bool = False,
) -> None:
    """Write a file from chunks; a reader sees the old file or the whole new one.

    If the file exists when the new one is whole, `if_exists` decides. `accepts_same` is
    for one of several files: a killed command may have put it there with the same
    bytes.
    """
    if if_exists == "replace":
        require_replaceable(path)
    if is_being_made(path):
        _write_in_place(path, chunks)
        return
    with disk_errors(path), staging_for(path) as staging:
        with open(staging.new, "wb") as file:
            file.writelines(chunks)
            file.flush()
            os.fsync(file.fileno())
        if if_exists == "replace":
            require_replaceable(path)
            staging.new.replace(path)
        elif not (accepts_same and _are_same(staging.new, path)):
            rename_to_free(staging.new, path, lambda: already_exists(path, if_exists))
        sync_file(path.parent)


def _write_in_place(path: Path, chunks: Iterable[bytes | memoryview]) -> None:
    """Write a file of a folder that is being made: nobody sees it before the folder is
    whole and synced.
    """
    with disk_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with open(path, "wb") as file:
                file.writelines(chunks)
        except BaseException:
            path.unlink(missing_ok=True)
            raise


def write_bytes(
    path: Path,
    data: bytes,
    *,
    if_exists: IfExists = "replace",
    accepts_same: bool = False,
) -> None:
    """Write a file, as `write_stream` does."""
    write_stream(path, (data,), if_exists=if_exists, accepts_same=accepts_same)


def write_text(path: Path, text: str) -> None:
    """Write a text in UTF-8, as `write_stream` does."""
    write_bytes(path, text.encode("utf-8", "surrogatepass"))


def write_json(path: Path, value: Json) -> None:
    """Write indented JSON and a final newline, as `write_stream` does; NaN is
    refused.
    """
    write_bytes(path, encode_json(value))


def encode_json(value: Json) -> bytes:
    """Return indented JSON with a final newline; NaN is refused."""
    text = json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
    # lone surrogates, as in odd file names, as \udce9
    return text.encode("utf-8", "backslashreplace")


def _are_same(one: Path, other: Path) -> bool:
    """Compare two files byte by byte; links are never the same."""
    if other.is_symlink() or not other.is_file():
        return False
    return filecmp.cmp(one, other, shallow=False)


def sync_file(path: Path) -> None:
    """Sync a file, so that what was appended survives a power cut; or a folder, for the
    renames in it.
    """
    if os.name == "nt" and path.is_dir():  # Windows opens no folders
        return
    flags = os.O_RDONLY if os.name != "nt" else os.O_RDWR
    descriptor = os.open(path, flags)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


# ---- folders -------------------------------------------------------------------------


@contextmanager
def staged_folder(
    final: Path, *, if_exists: IfExists = "replace", known_files: Collection[str] = ()
) -> Iterator[Path]:
    """Yield a folder to fill; after the block, it is synced and gets the name `final`.

    If the block raises, `final` is unchanged. If `final` exists when the new folder is
    whole, `if_exists` decides. Of an old folder that litebert wrote, the files of the
    new one's names and `known_files` are replaced; whatever else it has stays.
    """
    if if_exists == "replace":
        require_replaceable(final, as_folder=True)
    with disk_errors(final), staging_for(final) as staging:
        new = staging.new
        new.mkdir()
        yield new
        for path in [*sorted(new.rglob("*")), new]:
            sync_file(path)
        if if_exists == "replace" and os.path.lexists(final):
            _replace_folder(staging, known_files)
        else:
            rename_to_free(new, final, lambda: already_exists(final, if_exists))
        sync_file(final.parent)


def remove_folder(folder: Path) -> None:
    """Delete a folder, renaming it first so that nobody finds it half deleted."""
    with disk_errors(folder), staging_for(folder) as staging:
        folder.rename(staging.new)


def _replace_folder(staging: StagingFolder, known_files: Collection[str]) -> None:
    """Put the new folder in the place of the old one, with the files of others that the
    old one has.
    """
    new = staging.new
    final = staging.final
    require_replaceable(final, as_folder=True)
    replaced: Collection[str] = ()
    if is_of_litebert(final, known_files):
        replaced = {*known_files, *files_below(new)}
    for name in foreign_files(final, replaced):
        if os.path.lexists(new / name):
            raise already_exists(final, "replace")
        _link(final / name, new / name)

    if exchange_names(new, final):
        return
    # Where no two names can be exchanged, the old folder stays until the new one
    # stands; `StagingFolder.clear` brings it back if this process is killed in between.
    final.rename(staging.old)
    rename_to_free(new, final, lambda: already_exists(final, "replace"))


def _link(source: Path, target: Path) -> None:
    """Give a file or link a second name, or copy it where the system cannot."""
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(source, target, follow_symlinks=False)
    except (OSError, NotImplementedError):
        shutil.copy2(source, target, follow_symlinks=False)
