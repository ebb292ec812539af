"""The one writer of outputs: each is made next to its place and renamed when whole.

Next to an output NAME stands, while it is made, the folder `NAME.partial-<12 digits>`:

    NAME.partial-3f0c5d1e9a27/
        litebert    says that the folder is ours, for which NAME and process; locked
        new         the file or folder that is being made
        old         what `new` replaces, where the system cannot exchange two names

What stands under NAME is looked at twice: when the work begins, and when the result is
put in place, by a rename that fails if something has appeared there. A process that is
killed leaves such a folder and nothing else. The next one that writes NAME removes it,
if it says that it is ours and nobody has locked it; `old` goes back if nothing has its
name.
"""

import errno
import json
import os
import re
import shutil
import sys
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path

from litebert.errors import LitebertError, disk_errors
from litebert.files.locking import lock
from litebert.files.reading import Json

STAGING_MARK = ".partial-"
_STAGING_NAME = re.compile(r".*\.partial-[0-9a-f]{12}", re.DOTALL)
_NOTE = "litebert"
_NEW = "new"
_OLD = "old"
_NOTE_START = b'{"litebert": "unfinished output", '
_LONGEST_NAME = 200  # bytes; a file system allows 255, of which the mark needs 21

# Each folder of ours holds a file that says so in its first bytes: a run, a corpus, or
# weights with the hash that litebert adds to them.
_SIGNS = {
    "run.json": b'"litebert":',
    "corpus.json": b'"tokenizer_hash":',
    "*.safetensors": b'"sha256":"',
}
_SIGN_BYTES = 4_096

# renameat2(2), of Linux
_AT_FDCWD = -100
_NO_REPLACE = 1
_EXCHANGE = 2
_UNSUPPORTED = (errno.EINVAL, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP)


# ---- which names may be written: new ones, and ours to replace -----------------------


def require_new(
    output: Path, *, force: bool | None = False, own: Collection[str] = ()
) -> None:
    """Refuse an output that exists; with `force`, only if litebert did not write it
    (None: the command has no --force).

    `force` may replace a regular file, a folder that says it is ours, and one that has
    no files but `own`; never what a link points to, a device, or the current folder. An
    empty folder counts as new.
    """
    clear_stale(output.parent, output.name)
    if not os.path.lexists(output) or _may_replace(output, force=force, own=own):
        return
    raise _exists(output, force=force)


def require_replaceable(path: Path, *, as_folder: bool = False) -> None:
    """Check that a path is free or a regular file; with `as_folder`, free or a
    folder.
    """
    with disk_errors(path):
        if path.is_symlink():
            kind = "a symbolic link"
        elif not path.exists() or (path.is_dir() if as_folder else path.is_file()):
            return
        elif path.is_file():
            kind = "a file"
        elif path.is_dir():
            kind = "a folder"
        else:
            kind = "a device or pipe"
    raise LitebertError(
        "LB-008",
        f"{path} is {kind} and cannot be replaced",
        next="choose another path",
    )


def foreign_files(folder: Path, own: Collection[str]) -> list[str]:
    """Return the files below a folder that are not in `own`, as relative paths with
    slashes, sorted.

    Links count as files, and so do folders that are links; they are not followed.
    """
    return sorted(set(_files_below(folder)) - set(own) - _OF_DESKTOPS)


_OF_DESKTOPS = {".DS_Store", "Thumbs.db", "desktop.ini"}  # written by looking


def _files_below(folder: Path) -> Iterator[str]:
    for place, folders, names in os.walk(folder):
        links = [name for name in folders if Path(place, name).is_symlink()]
        for name in names + links:
            yield Path(place, name).relative_to(folder).as_posix()


def _may_replace(output: Path, *, force: bool | None, own: Collection[str]) -> bool:
    if output.is_symlink():
        return False
    if output.is_file():
        return bool(force)
    if not output.is_dir() or Path.cwd().resolve().is_relative_to(output.resolve()):
        return False
    return not any(output.iterdir()) or (bool(force) and _is_ours(output, own))


def _is_ours(folder: Path, own: Collection[str]) -> bool:
    for pattern, sign in _SIGNS.items():
        for path in folder.glob(pattern):
            if path.is_file() and sign in _beginning(path):
                return True
    return not foreign_files(folder, own)


def _beginning(path: Path) -> bytes:
    with open(path, "rb") as file:
        return file.read(_SIGN_BYTES)


def _exists(output: Path, *, force: bool | None) -> LitebertError:
    what = f"{output} already exists"
    expected = "a new name"
    if force:
        what = f"{what}, and litebert did not write it"
    elif force is False:
        expected = "a new name, or --force to replace what litebert wrote"
    return LitebertError("LB-619", what, expected=expected, next="choose another name")


# ---- files ---------------------------------------------------------------------------


def write_stream(
    path: Path,
    chunks: Iterable[bytes | memoryview],
    *,
    force: bool | None = True,
    accepts_same: bool = False,
) -> None:
    """Write a file from chunks; a reader sees the old file or the whole new one.

    By default an old file is replaced. An output of a user has the `force` of
    `require_new`, which is asked again when the file is whole. `accepts_same` is for
    one of several files: a killed command may have put it there with the same bytes.
    """
    if force:
        require_replaceable(path)
    if _is_unfinished(path):
        _write_unfinished(path, chunks)
        return
    with disk_errors(path), _staging(path) as staging:
        new = staging / _NEW
        with open(new, "wb") as file:
            file.writelines(chunks)
            file.flush()
            os.fsync(file.fileno())
        if force:
            require_replaceable(path)
            new.replace(path)
        elif not (accepts_same and _are_same(new, path)):
            _rename_to_free(new, path, lambda: _exists(path, force=force))
        sync_file(path.parent)


def _is_unfinished(path: Path) -> bool:
    """Return whether a path is in a folder that is being made."""
    return any(
        parent.name == _NEW and _STAGING_NAME.fullmatch(parent.parent.name)
        for parent in path.parents
    )


def _write_unfinished(path: Path, chunks: Iterable[bytes | memoryview]) -> None:
    """Write in place: nobody sees the file before its folder is whole and synced."""
    with disk_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with open(path, "wb") as file:
                file.writelines(chunks)
        except BaseException:
            path.unlink(missing_ok=True)
            raise


def write_bytes(
    path: Path, data: bytes, *, force: bool | None = True, accepts_same: bool = False
) -> None:
    """Write a file; a reader sees the old file or the whole new one."""
    write_stream(path, (data,), force=force, accepts_same=accepts_same)


def write_text(path: Path, text: str, *, force: bool | None = True) -> None:
    """Write a text in UTF-8, as `write_stream` does."""
    write_bytes(path, text.encode("utf-8", "surrogatepass"), force=force)


def write_json(path: Path, value: Json) -> None:
    """Write indented JSON and a final newline, as `write_stream` does; NaN is
    refused.
    """
    text = json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
    # lone surrogates, as in odd file names, as \udce9
    write_bytes(path, text.encode("utf-8", "backslashreplace"))


def _are_same(one: Path, other: Path) -> bool:
    """Compare two files, also larger than memory; links are never the same."""
    if other.is_symlink() or not other.is_file():
        return False
    if one.stat().st_size != other.stat().st_size:
        return False
    with open(one, "rb") as first, open(other, "rb") as second:
        while chunk := first.read(1 << 20):
            if chunk != second.read(1 << 20):
                return False
    return True


# ---- folders -------------------------------------------------------------------------


@contextmanager
def staged_folder(
    final: Path, *, force: bool | None = True, own: Collection[str] = ()
) -> Iterator[Path]:
    """Yield a folder to fill; after the block, it is synced and gets the name `final`.

    If the block raises, `final` is unchanged. By default an old folder is replaced; an
    output of a user has the `force` of `require_new`, which is asked again when the
    folder is whole. Of the old folder, the files of the new one's names and `own` are
    replaced if it is ours; whatever else it has stays.
    """
    if force:
        require_replaceable(final, as_folder=True)
    with disk_errors(final), _staging(final) as staging:
        new = staging / _NEW
        new.mkdir()
        yield new
        for path in [*sorted(new.rglob("*")), new]:
            sync_file(path)
        if force and os.path.lexists(final):
            _replace_folder(final, staging, own)
        else:
            _rename_to_free(new, final, lambda: _exists(final, force=force))
        sync_file(final.parent)


def remove_folder(folder: Path) -> None:
    """Delete a folder, renaming it first so that nobody finds it half deleted."""
    with disk_errors(folder), _staging(folder) as staging:
        folder.rename(staging / _NEW)


def _replace_folder(final: Path, staging: Path, own: Collection[str]) -> None:
    require_replaceable(final, as_folder=True)
    new = staging / _NEW
    ours = {*own, *_files_below(new)}
    kept = foreign_files(final, ours)
    if not _is_ours(final, own):
        kept = foreign_files(final, ())
    for name in kept:
        if os.path.lexists(new / name):
            raise _exists(final, force=True)
        _link(final / name, new / name)
    if _rename_by_flag(new, final, _EXCHANGE):
        return
    # Where no two names can be exchanged, the old folder stays until the new one
    # stands; `_clear` brings it back if this process is killed in between.
    final.rename(staging / _OLD)
    _rename_to_free(new, final, lambda: _exists(final, force=True))


def _link(source: Path, target: Path) -> None:
    """Give a file or link a second name, or copy it where the system cannot."""
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(source, target, follow_symlinks=False)
    except (OSError, NotImplementedError):
        shutil.copy2(source, target, follow_symlinks=False)


# ---- renaming ------------------------------------------------------------------------


def _rename_to_free(
    source: Path, target: Path, exists: Callable[[], LitebertError]
) -> None:
    """Rename a file or folder, or raise `exists()` if the target exists and is no empty
    folder.
    """
    try:
        if source.is_dir():
            _rename_folder(source, target)
        else:
            _rename_file(source, target)
    except OSError as error:
        if error.errno in (errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR, errno.EISDIR):
            raise exists() from error
        raise


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
    arguments = (_AT_FDCWD, os.fsencode(source), _AT_FDCWD, os.fsencode(target), flag)
    number = rename(*arguments)
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
        return 0 if function(*arguments) == 0 else ctypes.get_errno()

    return rename


# ---- the folder in which an output is made -------------------------------------------


@contextmanager
def _staging(final: Path) -> Iterator[Path]:
    """Yield a locked folder of ours next to `final`, and remove it in the end."""
    final.parent.mkdir(parents=True, exist_ok=True)
    clear_stale(final.parent, final.name)
    staging, note = _new_staging(final)
    try:
        yield staging
    finally:
        # a disk that has become read-only must not hide the first error
        with suppress(OSError):
            _clear(staging, note, final)


def _new_staging(final: Path) -> tuple[Path, int]:
    """Make such a folder; return it with the descriptor that has locked it."""
    table = {"litebert": "unfinished output", "name": final.name, "pid": os.getpid()}
    while True:
        digits = uuid.uuid4().hex[:12]
        staging = final.with_name(f"{_shortened(final.name)}{STAGING_MARK}{digits}")
        staging.mkdir()
        # Until it is locked, another process may take it for a stale one, and remove
        # it; no other folder gets the same name.
        with suppress(FileNotFoundError):
            note = os.open(staging / _NOTE, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o666)
            if lock(note) and (staging / _NOTE).exists():
                try:
                    os.write(note, json.dumps(table).encode())
                except OSError:
                    _clear(staging, note, final)
                    raise
                return staging, note
            os.close(note)


def _shortened(name: str) -> str:
    """Return the beginning of a name, in whole characters."""
    while len(os.fsencode(name)) > _LONGEST_NAME:
        name = name[:-1]
    return name


def clear_stale(folder: Path, name: str | None = None) -> None:
    """Remove what killed writers left in a folder; with `name`, only of that output.

    Only folders that say they are ours, and that no running process has locked.
    """
    prefix = "" if name is None else f"{_shortened(name)}{STAGING_MARK}"
    with suppress(OSError):  # whoever writes there next gets the error with a message
        # names, not paths: a folder may have a hundred thousand
        for entry in os.listdir(folder):  # noqa: PTH208
            if not entry.startswith(prefix) or STAGING_MARK not in entry:
                continue
            with suppress(OSError):  # another process is removing it
                if is_staging(folder / entry, name):
                    _clear_unlocked(folder / entry)


def is_staging(path: Path, name: str | None = None) -> bool:
    """Return whether a path is such a folder of ours; with `name`, for that output."""
    is_folder = path.is_dir() and not path.is_symlink()
    if not is_folder or not _STAGING_NAME.fullmatch(path.name):
        return False
    inside = {entry.name for entry in path.iterdir()}
    if not inside:  # killed before it could say anything
        return True
    note = path / _NOTE
    if not inside <= {_NOTE, _NEW, _OLD} or note.is_symlink() or not note.is_file():
        return False
    text = _beginning(note)
    if inside == {_NOTE} and _NOTE_START.startswith(text[: len(_NOTE_START)]):
        return True  # killed, or the disk was full, before anything was made
    return text.startswith(_NOTE_START) and name in (None, _name_in(text))


def _name_in(text: bytes) -> str | None:
    """Return the name of the output that a note tells; None if it is cut off."""
    try:
        return str(json.loads(text)["name"])
    except ValueError:
        return None


def _clear_unlocked(staging: Path) -> None:
    if not (staging / _NOTE).exists():
        staging.rmdir()
        return
    note = os.open(staging / _NOTE, os.O_RDWR)
    if not lock(note):
        os.close(note)
        return
    name = _name_in(os.read(note, _SIGN_BYTES)) or staging.name
    _clear(staging, note, staging.with_name(name))


def _clear(staging: Path, note: int, final: Path) -> None:
    """Remove the folder in which `final` was made, and close the descriptor that has
    locked it.
    """
    try:
        is_empty = _clear_contents(staging, final)
        if is_empty and os.name != "nt":
            _remove_note(staging)
    finally:
        os.close(note)
    if is_empty and os.name == "nt":  # Windows deletes no file that is open
        _remove_note(staging)


def _clear_contents(staging: Path, final: Path) -> bool:
    """Delete what was made; the `old` folder returns if its name is free."""
    new = staging / _NEW
    old = staging / _OLD
    if os.path.lexists(old) and not os.path.lexists(final):
        old.rename(final)
    if os.path.lexists(old) and os.path.lexists(new):
        return False  # something took the name between the two renames: both stay
    for path in (new, old):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)
    return True


def _remove_note(staging: Path) -> None:
    (staging / _NOTE).unlink(missing_ok=True)
    staging.rmdir()


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
