"""The folder in which an output is made, next to its place.

While the output NAME is made, there is a folder `NAME.partial-<12 digits>`:

    NAME.partial-3f0c5d1e9a27/
        litebert    the note: says that the folder is litebert's, for which NAME and
                    process; locked
        new         the file or folder that is being made
        old         what `new` replaces, where the system cannot exchange two names

A process that is killed leaves such a folder and nothing else. The next one that writes
NAME removes it, if its note says that it is litebert's and nobody has locked it; `old`
goes back if nothing has its name.
"""

import json
import os
import re
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from litebert.files.locking import lock

_MARK = ".partial-"
_STAGING_NAME = re.compile(r".*\.partial-[0-9a-f]{12}", re.DOTALL)
_LONGEST_NAME = 200  # bytes; a file system allows 255, of which the mark needs 21

_NOTE = "litebert"
_NEW = "new"
_OLD = "old"
_NOTE_START = b'{"litebert": "unfinished output", '
_BEGINNING = 4_096  # bytes that tell what a file is


@dataclass(frozen=True)
class StagingFolder:
    """A folder in which `final` is made, locked by this process."""

    path: Path  # next to `final`
    final: Path
    note: int  # the descriptor of the note, which is locked until it is closed

    @property
    def new(self) -> Path:
        """The file or folder that is being made."""
        return self.path / _NEW

    @property
    def old(self) -> Path:
        """What the new one replaces."""
        return self.path / _OLD

    @classmethod
    def make(cls, final: Path) -> "StagingFolder":
        """Make and lock a new staging folder."""
        note: int | None = None
        while note is None:
            digits = uuid.uuid4().hex[:12]
            path = final.with_name(f"{_shortened(final.name)}{_MARK}{digits}")
            path.mkdir()
            note = _lock_new(path / _NOTE)
        staging = cls(path, final, note)
        content = {
            "litebert": "unfinished output",
            "name": final.name,
            "pid": os.getpid(),
        }
        try:
            os.write(note, json.dumps(content).encode())
        except OSError:
            staging.clear()
            raise
        return staging

    def clear(self) -> None:
        """Remove the folder; the `old` one returns if its name is free."""
        try:
            is_empty = self._clear_contents()
            if is_empty and os.name != "nt":
                self._remove_note()
        finally:
            os.close(self.note)
        if is_empty and os.name == "nt":  # Windows deletes no file that is open
            self._remove_note()

    def _clear_contents(self) -> bool:
        """Remove all but the note; return False if something must stay."""
        if os.path.lexists(self.old) and not os.path.lexists(self.final):
            self.old.rename(self.final)
        if os.path.lexists(self.old) and os.path.lexists(self.new):
            # something took the name between the two renames: both stay
            return False
        for path in (self.new, self.old):
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)
        return True

    def _remove_note(self) -> None:
        (self.path / _NOTE).unlink(missing_ok=True)
        self.path.rmdir()


@contextmanager
def staging_for(final: Path) -> Iterator[StagingFolder]:
    """Yield a new staging folder, and remove it in the end."""
    final.parent.mkdir(parents=True, exist_ok=True)
    clear_stale(final.parent, final.name)
    staging = StagingFolder.make(final)
    try:
        yield staging
    finally:
        # a disk that has become read-only must not hide the first error
        with suppress(OSError):
            staging.clear()


def _lock_new(note: Path) -> int | None:
    """Create and lock a note; return its descriptor.

    Until it is locked, another process may take its folder for a stale one and remove
    it; then return None. No other folder gets the same name.
    """
    try:
        descriptor = os.open(note, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o666)
    except FileNotFoundError:
        return None
    if lock(descriptor) and note.exists():
        return descriptor
    os.close(descriptor)
    return None


def _shortened(name: str) -> str:
    """Return the beginning of a name, in whole characters."""
    beginning = name
    while len(os.fsencode(beginning)) > _LONGEST_NAME:
        beginning = beginning[:-1]
    return beginning


# ---- what killed processes leave -----------------------------------------------------


def clear_stale(folder: Path, name: str | None = None) -> None:
    """Remove what killed writers left in a folder; with `name`, only of that output.

    Removes only folders that say they are litebert's, and that no running process has
    locked.
    """
    prefix = "" if name is None else f"{_shortened(name)}{_MARK}"
    with suppress(OSError):  # whoever writes there next gets the error with a message
        # names, not paths: a folder may have a hundred thousand
        for entry in os.listdir(folder):  # noqa: PTH208
            if not entry.startswith(prefix) or _MARK not in entry:
                continue
            with suppress(OSError):  # another process is removing it
                if is_staging(folder / entry, name):
                    _clear_unlocked(folder / entry)


def is_staging(path: Path, name: str | None = None) -> bool:
    """Return whether a path is a staging folder of litebert; with `name`, of that
    output.
    """
    is_folder = path.is_dir() and not path.is_symlink()
    if not is_folder or not _STAGING_NAME.fullmatch(path.name):
        return False
    entries = {entry.name for entry in path.iterdir()}
    if not entries:  # killed before it could say anything
        return True
    note = path / _NOTE
    is_like_ours = entries <= {_NOTE, _NEW, _OLD}
    if not is_like_ours or not note.is_file():
        return False
    content = read_beginning(note)
    if entries == {_NOTE} and _NOTE_START.startswith(content[: len(_NOTE_START)]):
        return True  # killed, or the disk was full, before anything was made
    return content.startswith(_NOTE_START) and name in (None, _output_of(content))


def is_being_made(path: Path) -> bool:
    """Return whether a path is in a folder that is being made."""
    for parent in path.parents:
        if parent.name == _NEW and _STAGING_NAME.fullmatch(parent.parent.name):
            return True
    return False


def read_beginning(path: Path) -> bytes:
    """Return the first bytes of a file, which tell what it is."""
    with open(path, "rb") as file:
        return file.read(_BEGINNING)


def _output_of(note: bytes) -> str | None:
    """Return the name of the output that a note tells; None if it is cut off."""
    try:
        return str(json.loads(note)["name"])
    except ValueError:
        return None


def _clear_unlocked(path: Path) -> None:
    """Remove a staging folder that no running process has locked."""
    if not (path / _NOTE).exists():
        path.rmdir()
        return
    note = os.open(path / _NOTE, os.O_RDWR)
    if not lock(note):
        os.close(note)
        return
    name = _output_of(os.read(note, _BEGINNING)) or path.name
    StagingFolder(path, path.with_name(name), note).clear()
