"""Write files atomically, synced to disk, and read small files with a size limit."""

import fcntl
import glob
import hashlib
import json
import os
import re
import shutil
import stat
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, TypeAlias, Union

from litebert.errors import DamagedError, LitebertError, disk_errors

Json: TypeAlias = Union[bool, int, float, str, list["Json"], dict[str, "Json"], None]  # noqa: UP007

# in the names of unfinished siblings, which are safe to delete
STAGING_MARK = ".partial-"
# a folder that has one of these was written by litebert
MARKS = ("model.safetensors", "corpus.json", "run.json")


# ---- which paths may be written: new ones, and ones to replace -----------------------


def as_path(given: str | os.PathLike[str], what: str) -> Path:
    """Return a caller's path as a Path; `what` names it in errors."""
    if not isinstance(given, str | os.PathLike):
        received = f"{given!r:.100} ({type(given).__name__})"
        raise LitebertError(
            "LB-532",
            f"{what} cannot be of this type",
            received=received,
            next="give a str or a Path",
        )
    if given == "":
        raise LitebertError(
            "LB-538",
            f"the path of {what} is empty",
            next="give a folder; . is this folder",
        )
    return Path(given)


def require_new(
    output: Path, *, force: bool | None = False, own: Collection[str] = ()
) -> None:
    """Refuse an output that exists; with `force`, only if litebert did not write it
    (None: there is no --force).

    `force` may replace a regular file, or a folder that has one of our marks or no
    files other than `own`; never what a link points to, a device, someone else's
    folder, or one that contains the current folder.
    """
    if not os.path.lexists(output):
        return
    is_folder = output.is_dir()
    is_file = output.is_file()
    names = {path.name for path in output.iterdir()} if is_folder else set()
    is_ours = is_file or (
        is_folder and (not names.isdisjoint(MARKS) or names <= set(own))
    )
    is_above = is_folder and Path.cwd().resolve().is_relative_to(output.resolve())
    may_replace = is_ours and not is_above and not output.is_symlink()
    if may_replace and (force or (is_folder and not names)):
        return
    what = f"{output} already exists" + (
        ", and litebert did not write it" if force else ""
    )
    expected = (
        "a new name, or --force to replace what litebert wrote"
        if force is False
        else "a new name"
    )
    raise LitebertError("LB-619", what, expected=expected, next="choose another name")


def require_replaceable(path: Path, *, as_folder: bool = False) -> None:
    """Check that a path is free or a regular file; with `as_folder`, free or a
    folder.
    """
    with disk_errors(path):
        if path.exists() and not (path.is_dir() if as_folder else path.is_file()):
            kind = (
                "a file"
                if path.is_file()
                else "a folder"
                if path.is_dir()
                else "a device or pipe"
            )
            raise LitebertError(
                "LB-008",
                f"{path} is {kind} and cannot be replaced",
                next="choose another path",
            )


# ---- files: replaced as a whole, or appended to --------------------------------------


def write_bytes(path: Path, data: bytes) -> None:
    """Replace `path` with `data`; a reader sees the old file or the new one, never a
    partial one.
    """
    write_stream(path, (data,))


def write_stream(path: Path, chunks: Iterable[bytes | memoryview]) -> None:
    """Replace `path` with the concatenated chunks; if one of them fails, `path` stays
    unchanged.
    """
    require_replaceable(path)
    staged = _staged_sibling(path)
    try:
        with disk_errors(path):
            with open(staged, "wb") as file:
                file.writelines(chunks)
                file.flush()
                os.fsync(file.fileno())
            staged.replace(path)
            sync_file(path.parent)
    finally:
        # none is there, or the disk is read-only: that error must not replace the first
        with suppress(OSError):
            staged.unlink()


def write_text(path: Path, text: str) -> None:
    """Replace `path` with `text` in UTF-8, atomically."""
    write_bytes(path, text.encode("utf-8", "surrogatepass"))


def write_json(path: Path, value: Json) -> None:
    """Replace `path` with indented JSON and a final newline, atomically; NaN is
    refused.
    """
    text = json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
    # lone surrogates, as in odd file names, as \udce9
    write_bytes(path, text.encode("utf-8", "backslashreplace"))


def append_line(path: Path, line: str) -> None:
    """Append one line to a log; a crash can cut it off, and what continues the log must
    first remove such a line.
    """
    with disk_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(path, "ab") as file:
            file.write(f"{line}\n".encode())


def open_log(path: Path) -> BinaryIO:
    """Open a log to append lines to, locked against other processes, and cut off a
    half-written last line.

    The system unlocks it when the process ends, however it ends. A "pid" in the first
    line tells others who holds it.
    """
    require_replaceable(path)
    with disk_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        log = open(path, "a+b")  # noqa: SIM115  the caller closes it
    log.seek(0)
    try:
        fcntl.flock(log, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        with log:
            owner = re.search(rb'"pid": (\d+)', log.readline())
        who = f"process {int(owner[1])}" if owner else "a process that has just started"
        what = f"{path} is being written by another process"
        advice = "wait for it, or choose another --output"
        raise LitebertError("LB-009", what, received=who, next=advice) from error
    with disk_errors(path):
        log.truncate(sum(len(line) for line in log if line.endswith(b"\n")))
    return log


# ---- folders: filled under another name, locked, removed -----------------------------


@contextmanager
def staged_folder(final: Path) -> Iterator[Path]:
    """Yield a sibling folder to fill; after the block, sync it and rename it to
    `final`.

    An existing `final` is replaced. If the block raises, `final` is unchanged and the
    sibling is deleted.
    """
    staged = _staged_sibling(final)
    retired = _staged_sibling(final)
    try:
        with disk_errors(final):
            staged.mkdir()
            yield staged
            for path in [*sorted(staged.rglob("*")), staged]:
                sync_file(path)
            if final.exists():
                final.rename(retired)
            staged.rename(final)
            shutil.rmtree(retired, ignore_errors=True)
            sync_file(final.parent)
    finally:
        shutil.rmtree(staged, ignore_errors=True)


@contextmanager
def locked(folder: Path, busy: Callable[[], Exception] | None = None) -> Iterator[None]:
    """Lock a folder against other processes, or raise `busy()`; without `busy`, wait
    until the folder is free.

    The system unlocks it when this process ends.
    """
    with disk_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | (fcntl.LOCK_NB if busy else 0))
        except BlockingIOError as error:
            assert busy, "without LOCK_NB, flock waits"
            raise busy() from error
        yield
    finally:
        os.close(descriptor)


def remove_folder(folder: Path) -> None:
    """Delete a folder, renaming it first so that nobody finds it half deleted."""
    retired = _staged_sibling(folder)
    folder.rename(retired)
    shutil.rmtree(retired)


def remove_unfinished(folder: Path, name: str | None = None) -> None:
    """Delete what killed writers left in `folder`; with `name`, only for that file or
    folder.
    """
    for path in folder.glob(
        f"{'*' if name is None else glob.escape(name)}{STAGING_MARK}*"
    ):
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


def sync_file(path: Path) -> None:
    """Sync a file, so that what was appended survives a power cut; or a folder, for the
    renames in it.
    """
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _staged_sibling(path: Path) -> Path:
    with disk_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
    return path.with_name(f"{path.name[:180]}{STAGING_MARK}{uuid.uuid4().hex[:12]}")


# ---- reading -------------------------------------------------------------------------


def format_bytes(number: int) -> str:
    """Format a size for people.

    >>> format_bytes(812), format_bytes(5 << 20), format_bytes(3 << 30)
    ('812 bytes', '5.0 MiB', '3.00 GiB')
    """
    if number < 1 << 20:
        return f"{number:,} bytes"
    return (
        f"{number / 2**20:.1f} MiB" if number < 1 << 30 else f"{number / 2**30:.2f} GiB"
    )


def hash_file(path: Path) -> str:
    """Return the blake2b-256 of a file in hex, reading it in pieces."""
    with open(path, "rb") as file:
        return hashlib.file_digest(
            file, lambda: hashlib.blake2b(digest_size=32)
        ).hexdigest()


def read_capped(path: Path, limit: int, *, command: str) -> bytes:
    """Read a file of at most `limit` bytes; errors name `command` as the next step."""
    try:
        found = path.stat()
        if not stat.S_ISREG(found.st_mode):
            raise ValueError("it is a folder, device or pipe")
        if found.st_size > limit:
            raise ValueError(
                f"it has {found.st_size:,} bytes, more than the limit of {limit:,}"
            )
        return path.read_bytes()
    except (OSError, ValueError) as error:  # a null byte in the name raises ValueError
        said = getattr(error, "strerror", None) or str(error)
        raise LitebertError(
            "LB-004", f"{path} cannot be read", received=said, next=command
        ) from error


def read_json(path: Path, *, command: str, limit: int = 16 << 20) -> dict[str, Json]:
    """Read a JSON object from a file of at most `limit` bytes; NaN and Infinity count
    as damage.
    """
    data = read_capped(path, limit, command=command)
    try:
        value = parse_json(data.decode("utf-8"))
        if not isinstance(value, dict):
            raise ValueError(f"{type(value).__name__} instead of an object")
    except (ValueError, RecursionError) as error:
        what = f"{path} is not valid JSON"
        expected = "a JSON object in UTF-8 without NaN or Infinity"
        raise DamagedError(
            "LB-005", what, received=error, expected=expected, next=command
        ) from error
    return value


def parse_json(text: str, *, distinct_keys: bool = False) -> object:
    """Parse JSON; raise ValueError if it is invalid or has NaN, Infinity or, with
    `distinct_keys`, duplicate keys.

    Values that are nested too deeply raise RecursionError.
    """

    def distinct(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
        if len(value := dict(pairs)) < len(pairs):
            raise ValueError("a key is given twice")
        return value

    def refuse(name: str) -> None:
        raise ValueError(f"{name} is not JSON")

    return json.loads(
        text,
        parse_constant=refuse,
        object_pairs_hook=distinct if distinct_keys else None,
    )
