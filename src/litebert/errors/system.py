"""Failures of the system as errors with advice: files, disk, memory."""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from shlex import quote

from litebert.errors.error import LitebertError, ResourceError

_LONGEST_PATH = 120  # characters of a path that an error shows
# what torch, CUDA and C++ say when they have no memory left
_ALLOCATORS = (
    "not enough memory",
    "can't allocate memory",
    "out of memory",
    "bad_alloc",
)


def as_litebert_error(
    error: BaseException, *, unnamed: str = "the file"
) -> LitebertError | None:
    """Return the error for an ordinary system failure; None for a bug in the program.

    The outermost frame of a command calls this for any exception: missing or
    inaccessible files, full disks, exhausted memory (also in torch's allocators).
    `unnamed` says what an error is about that names no file.

    >>> as_litebert_error(FileNotFoundError(2, "No such file or directory", "a.txt")).code
    'LB-251'
    """
    if isinstance(error, LitebertError):
        return error
    if _is_out_of_memory(error):
        return _memory_error(error)
    if isinstance(error, OSError) and not isinstance(error, BrokenPipeError):
        return _system_error(error, unnamed=unnamed)
    return None


@contextmanager
def disk_errors(path: Path) -> Iterator[None]:
    """Turn system errors (an OSError with an errno) while `path` is being written into
    one message with advice.
    """
    try:
        yield
    except OSError as error:
        if error.errno is None:
            raise
        raise _system_error(error, path) from error


# ---- memory --------------------------------------------------------------------------


def _is_out_of_memory(error: BaseException) -> bool:
    """Return whether the system or an allocator had no memory left."""
    if isinstance(error, RuntimeError):
        return any(message in str(error) for message in _ALLOCATORS)
    if isinstance(error, OSError):
        return error.errno == errno.ENOMEM
    return isinstance(error, MemoryError)


def _memory_error(error: BaseException) -> LitebertError:
    received = str(error) or type(error).__name__
    is_of_gpu = "CUDA" in received or "MPS" in received
    what = "the GPU is out of memory" if is_of_gpu else "out of memory"
    return ResourceError(
        "LB-007",
        what,
        received=received,
        next="use a smaller model or shorter texts; when training, lower"
        " train.micro_batch_size",
    )


# ---- files and disks -----------------------------------------------------------------


def _system_error(
    error: OSError, written: Path | None = None, *, unnamed: str = "the file"
) -> LitebertError:
    """Return the error for a system failure; `written` is the path that was being
    written, if any, and `unnamed` says what else it may be about.
    """
    path = _path_in(error) or written
    name = unnamed
    look = "check the paths that the command names"
    if path is not None:
        name = _shortened(path)
        look = f"ls -ld {quote(str(_deepest_existing(path)))}"
    said = error.strerror or str(error) or type(error).__name__
    number = error.errno
    if number == errno.EFBIG:
        return ResourceError(
            "LB-001",
            f"{name} may not become larger",
            received=said,
            expected="no limit on the size of files: ulimit -f, or that of the disk",
            next="raise the limit or choose another folder, then rerun; nothing"
            " incomplete has its final name",
        )
    if number in (errno.ENOSPC, errno.EDQUOT):
        full_disk = written or path
        received = said
        if full_disk is not None:
            received = f"{free_bytes(full_disk):,} bytes free"
        return ResourceError(
            "LB-001",
            f"the disk is full while writing {name}",
            received=received,
            next="free some space or choose another folder, then rerun; nothing"
            " incomplete has its final name",
        )
    if number in (errno.EACCES, errno.EROFS, errno.EPERM):
        return LitebertError(
            "LB-250", f"no permission to read or write {name}", received=said, next=look
        )
    if number == errno.ENOENT:
        return LitebertError(
            "LB-251", f"{name} does not exist", received=said, next=look
        )
    if number in (errno.EMFILE, errno.ENFILE):
        return ResourceError(
            "LB-254", "too many files are open", received=said, next="ulimit -n 4096"
        )
    return LitebertError(
        "LB-255", f"the system cannot read or write {name}", received=said, next=look
    )


def _path_in(error: OSError) -> Path | None:
    """Return the path that a system failure names."""
    filename = error.filename
    if isinstance(filename, str | bytes) and filename:
        return Path(os.fsdecode(filename))
    return None


def _shortened(path: Path) -> str:
    name = str(path)
    if len(name) > _LONGEST_PATH:
        return f"{name[:_LONGEST_PATH]}…"
    return name


def _deepest_existing(path: Path) -> Path:
    """Return a path, or the nearest of its parents that exists."""
    for place in (path, *path.absolute().parents):
        if os.path.lexists(place):
            return place
    return Path.cwd()


def free_bytes(path: Path) -> int:
    """Return the free bytes of the disk that holds `path` or its nearest existing
    parent.
    """
    import shutil  # takes 5 ms, which `--help` should not spend

    return shutil.disk_usage(_deepest_existing(path)).free
