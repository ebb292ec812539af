"""Renames that replace nothing: a file or folder takes a name that is free, or two
folders exchange their names.
"""

import errno
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path

from litebert.errors import LitebertError

# renameat2(2), of Linux
_AT_FDCWD = -100  # paths are relative to the current folder
_NO_REPLACE = 1
_EXCHANGE = 2
_UNSUPPORTED = (errno.EINVAL, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP)
_IS_TAKEN = (errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR, errno.EISDIR)


def rename_to_free(
    source: Path, target: Path, is_taken: Callable[[], LitebertError]
) -> None:
    """Rename a file or folder, or raise `is_taken()` if the target exists and is no
    empty folder.
    """
    try:
        if source.is_dir():
            _rename_folder(source, target)
        else:
            _rename_file(source, target)
    except OSError as error:
        if error.errno in _IS_TAKEN:
            raise is_taken() from error
        raise


def exchange_names(one: Path, other: Path) -> bool:
    """Exchange the names of two files or folders at once; return False where the system
    or the file system cannot.
    """
    return _rename_by_flag(one, other, _EXCHANGE)


def _rename_folder(source: Path, target: Path) -> None:
    # POSIX lets a folder take the name of an empty folder, and of nothing else.
    if os.name == "nt":
        with suppress(OSError):
            target.rmdir()
    source.rename(target)


def _rename_file(source: Path, target: Path) -> None:
    if os.name == "nt":  # refuses a name that exists
        source.rename(target)
    elif not _rename_by_flag(source, target, _NO_REPLACE):
        _link_to_free(source, target)


def _link_to_free(source: Path, target: Path) -> None:
    """Give a file a second name, which must be free, and take the first one away."""
    try:
        os.link(source, target)
    except OSError as error:
        # a file system without links, such as FAT: a moment is left after this look
        if os.path.lexists(target):
            raise FileExistsError(errno.EEXIST, error.strerror) from error
        source.rename(target)
    else:
        source.unlink()


def _rename_by_flag(source: Path, target: Path, flag: int) -> bool:
    """Call renameat2(2); return False where the system or the file system has no such
    flag.
    """
    rename = _renameat2()
    if rename is None:
        return False
    # as os.rename does, for programs that watch what happens to files
    sys.audit("os.rename", str(source), str(target), -1, -1)
    source_path = os.fsencode(source)
    target_path = os.fsencode(target)
    number = rename(_AT_FDCWD, source_path, _AT_FDCWD, target_path, flag)
    if number in _UNSUPPORTED:
        return False
    if number:
        raise OSError(number, os.strerror(number), str(source), None, str(target))
    return True


@cache
def _renameat2() -> Callable[..., int] | None:
    """Return a function that calls it and returns the number of its error, or 0."""
    if sys.platform != "linux":
        return None
    import ctypes

    function = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if function is None:  # an old C library
        return None

    def rename(*arguments: int | bytes) -> int:
        is_done = function(*arguments) == 0
        return 0 if is_done else ctypes.get_errno()

    return rename
