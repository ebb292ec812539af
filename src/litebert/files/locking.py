"""Locks between processes, and logs: files to which one process appends lines.

The system releases a lock when its process ends, however it ends.
"""

import os
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from litebert.errors import LitebertError, disk_errors

# how a log is opened, on every system
_LOG_FLAGS = (
    os.O_RDWR
    | os.O_CREAT
    | os.O_APPEND
    | getattr(os, "O_NOFOLLOW", 0)
    | getattr(os, "O_BINARY", 0)
)

# Windows locks bytes, and nobody else can read those: this one is beyond any log.
_LOCKED_BYTE = (1 << 31) - 2


def lock(descriptor: int, *, waits: bool = False) -> bool:
    """Lock an open file until it is closed; return False if another process has it.

    The only place that knows how a system locks. A system that has neither fcntl nor
    msvcrt locks nothing.
    """
    try:
        import fcntl
    except ImportError:
        return _lock_byte(descriptor, waits=waits)
    how = fcntl.LOCK_EX if waits else fcntl.LOCK_EX | fcntl.LOCK_NB
    try:
        fcntl.flock(descriptor, how)
    except BlockingIOError:
        return False
    return True


def _lock_byte(descriptor: int, *, waits: bool) -> bool:
    """Lock one byte of a file on Windows; return False if another process has locked it.
    On other systems, this does nothing and returns True.
    """
    try:
        import msvcrt
    except ImportError:
        return True
    windows: object = msvcrt  # its functions are unknown where mypy runs
    locking = getattr(windows, "locking")  # noqa: B009
    mode = getattr(windows, "LK_NBLCK")  # noqa: B009
    place = os.lseek(descriptor, 0, os.SEEK_CUR)
    while True:
        os.lseek(descriptor, _LOCKED_BYTE, os.SEEK_SET)
        try:
            locking(descriptor, mode, 1)
        except OSError:
            if waits:
                time.sleep(0.1)
                continue
            return False
        finally:
            os.lseek(descriptor, place, os.SEEK_SET)
        return True


@contextmanager
def locked(folder: Path, busy: Callable[[], Exception] | None = None) -> Iterator[None]:
    """Lock a folder against other processes, or raise `busy()`; without `busy`, wait
    until the folder is free.
    """
    with disk_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        descriptor = _open_for_lock(folder)
    try:
        if not lock(descriptor, waits=busy is None):
            assert busy, "a lock that waits is always granted"
            raise busy()
        yield
    finally:
        os.close(descriptor)


def _open_for_lock(folder: Path) -> int:
    if os.name != "nt":
        return os.open(folder, os.O_RDONLY)
    # Windows opens no folders: a file next to it stands for it
    return os.open(folder.with_name(f".{folder.name}.lock"), os.O_RDWR | os.O_CREAT)


def append_line(path: Path, line: str) -> None:
    """Append one line to a log; a crash can cut it off, and what continues the log must
    first remove such a line.
    """
    with disk_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(path, "ab") as file:
            file.write(f"{line}\n".encode())


def open_log(path: Path, first: bytes) -> BinaryIO:
    """Open a log of litebert to append lines to, locked against other processes.

    Our logs begin with the bytes `first`. A file that begins otherwise is someone
    else's and is refused, unchanged; so is a symbolic link. A "pid" in the first line
    tells others who has locked it.
    """
    _require_log(path)
    while True:
        with disk_errors(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(path, _LOG_FLAGS, 0o666)
        log = os.fdopen(descriptor, "r+b")
        if not lock(descriptor):
            raise _busy(path, log)
        # its last writer may have removed it since it was opened
        if path.exists() and os.path.samestat(path.stat(), os.fstat(descriptor)):
            break
        log.close()
    start = log.read(len(first))
    if start and start != first:
        log.close()
        raise _not_a_log(path)
    return log


def remove_log(log: BinaryIO, path: Path) -> None:
    """Delete an open log, which nobody can lock before that."""
    if os.name == "nt":  # deletes no file that is open
        log.close()
    path.unlink()


def _require_log(path: Path) -> None:
    """Refuse what is no regular file, before a pipe blocks the opening."""
    if path.is_symlink() or (path.exists() and not path.is_file()):
        raise _not_a_log(path)


def _not_a_log(path: Path) -> LitebertError:
    return LitebertError(
        "LB-943",
        f"{path} is in the way, and litebert did not write it",
        expected="unfinished answers of litebert, or no file of this name",
        next="move it, or choose another --output",
    )


def _busy(path: Path, log: BinaryIO) -> LitebertError:
    with log:
        owner = re.search(rb'"pid": (\d+)', log.readline())
    who = f"process {int(owner[1])}" if owner else "a process that has just started"
    return LitebertError(
        "LB-009",
        f"{path} is being written by another process",
        received=who,
        next="wait for it, or choose another --output",
    )
