"""An input, on this disk or in object storage: looked up before any work is done, and its bytes, decompressed.

Object storage such as S3 is reached through fsspec, or obstore where it is installed; failing requests are repeated.
"""

from __future__ import annotations

import gzip
import stat
import tempfile
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path, PurePosixPath
from shlex import quote
from typing import IO, Any, TypeVar

from litebert.errors import (
    DamagedError,
    LitebertError,
    MissingFileError,
    RequestError,
    ResourceError,
    did_you_mean,
    missing_package,
)

Made = TypeVar("Made")

COMPRESSIONS = (".gz", ".zst")
DELIMITED = (".csv", ".tsv")
JSON_LINES = (".jsonl", ".ndjson")
TAGGED = (".conll", ".bio", ".iob")
TEXTS = (".txt", *JSON_LINES, ".parquet")
TABLES = (*DELIMITED, *JSON_LINES, ".json", ".parquet", *TAGGED)
_SAME_KIND = {".ndjson": ".jsonl"}

PIECE_BYTES = 1 << 18
BOMB_BYTES, BOMB_RATIO = 1 << 30, 100
"""Decompressed text is 2 to 30 times larger; more than 100 times, after 1 GiB, is a bomb."""

ATTEMPTS = 6
PAUSE_SECONDS = 0.5
"""The pause before the second request to a storage; each later pause is twice as long."""
OBJECT_BYTES = 16 << 20
_TIMEOUT = "30s"
_OBJECT_STORES = ("s3", "s3a", "gs", "az", "abfs")
# Repeating a request does not help if something is not there, not allowed, or wrong in the program itself.
_HOPELESS = (
    FileNotFoundError, PermissionError, LitebertError, ImportError, NotImplementedError,
    ArithmeticError, AssertionError, AttributeError, LookupError, MemoryError, NameError, TypeError, ValueError,
)  # fmt: skip


class CorruptStreamError(Exception):
    """Compressed bytes are damaged; callers turn this into an error that names the line."""


@dataclass(frozen=True)
class Source:
    """One input as the user named it; `location` is its path or URL, `size` its bytes as stored.

    `kind` is its extension without that of the compression; that of JSON lines is always `.jsonl`. `on_read` is called
    with the number of stored bytes read so far.
    """

    name: str
    location: str
    kind: str
    compression: str
    size: int
    on_read: Callable[[int], None] | None = field(default=None, compare=False, repr=False)


def find_text(name: str) -> Source:
    """Look up an input with running text."""
    kind, compression = _kind(name)
    if not _is_known(kind, compression, TEXTS):
        received = f"{kind}{compression}" or "no extension"
        advice = f"rename or convert it ({did_you_mean(kind, TEXTS)})"
        if Path(name).is_dir():
            received, advice = "a folder", f"name the files in it: {quote(name)}/*.txt"
        raise LitebertError(
            "LB-304",
            f"{name} is of an unknown kind",
            received=received,
            expected=f"{', '.join(TEXTS)}; all but .parquet also with {' or '.join(COMPRESSIONS)}",
            next=advice,
        )
    size = _stored_size(name)
    if size == 0:
        raise LitebertError("LB-310", f"{name} is empty", received="0 bytes", expected="text", next="omit this file")
    return _source(name, size)


def find_texts(names: Iterable[str | Path]) -> tuple[Source, ...]:
    """Look up all inputs, of which there is at least one."""
    sources = tuple(find_text(str(name)) for name in names)
    if not sources:
        raise LitebertError(
            "LB-316",
            "there is no input",
            received="nothing",
            expected="one or more files or URLs",
            next="litebert corpus build data/*.txt --output corpus",
        )
    return sources


def find_table(path: Path) -> Source:
    """Look up a file of rows."""
    kind, compression = _kind(path.name)
    size = _stored_size(str(path))
    if not _is_known(kind, compression, TABLES):
        near = did_you_mean(kind, TABLES) if kind else "add the extension that it should have"
        raise RequestError(
            "LB-840",
            f"{path} is of a kind that cannot be read",
            received=f"{kind}{compression}" or "no extension",
            expected=f"{', '.join(TABLES)}; all but .parquet also with {' or '.join(COMPRESSIONS)}",
            next=f"rename or convert it ({near})",
        )
    if size == 0:
        raise no_rows(str(path), size)
    return _source(str(path), size)


def find_files(folder: Path, patterns: Sequence[str]) -> list[Source]:
    """Return the files that match the first pattern with a match, as it is or with .gz or .zst, sorted by name."""
    for pattern in patterns:
        for compression in ("", *COMPRESSIONS):
            found = sorted(path for path in folder.glob(pattern + compression) if path.is_file())
            if found:
                return [_source(str(path), path.stat().st_size) for path in found]
    if folder.is_dir():
        names = sorted(path.name for path in folder.iterdir())
        more = f" and {len(names) - 8} more" if len(names) > 8 else ""
        received = ", ".join(names[:8]) + more or "an empty folder"
    else:
        received = "a file, not a folder" if folder.exists() else "no such folder"
    raise MissingFileError(
        "LB-820",
        f"the data is not in {folder}",
        received=received,
        expected=f"one of {', '.join(patterns)} (also {' or '.join(COMPRESSIONS)})",
        next=f"ls {quote(str(folder))}",
    )


def find_file(path: Path) -> Source:
    """Return the named file, or its compressed form."""
    if path.is_dir():
        raise _unreadable(str(path), OSError(0, "it is a folder"))
    literal = str.maketrans({mark: f"[{mark}]" for mark in "*?["})
    return find_files(path.parent, [path.name.translate(literal)])[0]


def no_rows(name: str, size: int) -> LitebertError:
    """Return the error for a file without rows."""
    return LitebertError(
        "LB-853",
        f"{name} has no rows",
        received=f"{size:,} bytes",
        expected="rows",
        next="omit this file, or write it again",
    )


def open_source(source: Source) -> IO[bytes]:
    """Open the stored bytes of an input, still compressed, for reading and seeking."""
    try:
        if is_url(source.location):
            return _fetched(source.location)
        return open(source.location, "rb")
    except (OSError, ValueError) as error:
        raise _unreadable(source.name, error) from error


def read_pieces(source: Source) -> Iterator[bytes]:
    """Yield the decompressed bytes of an input in pieces of bounded size; CorruptStreamError where they are damaged."""
    decompress = {"": _plain, ".gz": _gunzipped, ".zst": _unzstd}[source.compression]
    with closing(open_source(source)) as file:
        length = 0
        try:
            for piece in decompress(file):
                length += len(piece)
                if length > BOMB_BYTES and length > BOMB_RATIO * file.tell():
                    raise DamagedError(
                        "LB-307",
                        f"{source.name} becomes far too large when decompressed",
                        received=f"{length:,} bytes out of {file.tell():,}",
                        expected=f"at most {BOMB_RATIO} times the stored size",
                        next="check where the file comes from; decompress it yourself if it is right",
                    )
                if source.on_read is not None:
                    source.on_read(file.tell())
                yield piece
        except OSError as error:
            raise _unreadable(source.name, error) from error


def _plain(file: IO[bytes]) -> Iterator[bytes]:
    return iter(lambda: file.read(PIECE_BYTES), b"")


def _gunzipped(file: IO[bytes]) -> Iterator[bytes]:
    try:
        with gzip.GzipFile(fileobj=file) as unzipped:
            yield from iter(lambda: unzipped.read(PIECE_BYTES), b"")
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise CorruptStreamError(str(error)) from error


def _unzstd(file: IO[bytes]) -> Iterator[bytes]:
    """Decompress frame after frame; 128 stored bytes at a time give at most 4 MiB."""
    try:
        import zstandard
    except ImportError as error:
        raise missing_package("zstandard", extra="data", needed_for="a .zst input") from error
    decompressor = zstandard.ZstdDecompressor()
    frame = decompressor.decompressobj()
    held, is_open = bytearray(), True
    try:
        while rest := file.read(128):
            while rest:
                if frame.eof:
                    frame = decompressor.decompressobj()
                held += frame.decompress(rest)
                if len(held) >= PIECE_BYTES:
                    yield bytes(held)
                    held.clear()
                rest, is_open = frame.unused_data, not frame.eof
    except zstandard.ZstdError as error:
        raise CorruptStreamError(str(error)) from error
    if is_open:
        raise CorruptStreamError("the file ends inside a zstd frame")
    yield bytes(held)


def _kind(name: str) -> tuple[str, str]:
    """Return the extension of a name without that of a compression, and that of the compression."""
    suffixes = [suffix.lower() for suffix in PurePosixPath(name).suffixes]
    compression = suffixes.pop() if suffixes and suffixes[-1] in COMPRESSIONS else ""
    return suffixes[-1] if suffixes else "", compression


def _is_known(kind: str, compression: str, kinds: Sequence[str]) -> bool:
    return kind in kinds and not (kind == ".parquet" and compression)


def _source(name: str, size: int) -> Source:
    kind, compression = _kind(name)
    location = name if is_url(name) else str(Path(name).absolute())
    return Source(name, location, _SAME_KIND.get(kind, kind), compression, size)


def _stored_size(name: str) -> int:
    """Return the size of an input as stored, in bytes; it must be a file that can be read."""
    try:
        if is_url(name):
            return int(_tried(lambda: filesystem(name).size(name), name))
        found = Path(name).stat()
        if not stat.S_ISREG(found.st_mode):  # opening a pipe would wait for a writer
            is_folder = stat.S_ISDIR(found.st_mode)
            raise OSError(0, "it is a folder" if is_folder else "it is a pipe or a device")
        with open(name, "rb"):
            return found.st_size
    except (OSError, ValueError, TypeError) as error:
        raise _unreadable(name, error) from error


def _unreadable(name: str, error: Exception) -> LitebertError:
    return RequestError(
        "LB-303",
        f"{name} cannot be read",
        received=getattr(error, "strerror", None) or str(error),
        expected="an existing, readable file",
        next="check the URL and your credentials" if is_url(name) else f"ls -l {quote(name)}",
    )


def is_url(name: str) -> bool:
    """Whether an input is named by a URL, not by a path."""
    return "://" in name


def read_object(url: str) -> Iterator[bytes]:
    """Yield an object in pieces; a missing one raises FileNotFoundError at once."""

    def piece(start: int, stop: int) -> bytes:
        data = bytes(filesystem(url).cat_file(url, start, stop))
        if len(data) != stop - start:
            raise OSError(f"{len(data):,} bytes arrived of {stop - start:,}")
        return data

    size = int(_tried(lambda: filesystem(url).size(url), url))
    for start in range(0, size, OBJECT_BYTES):
        yield _tried(lambda start=start: piece(start, min(start + OBJECT_BYTES, size)), url)  # type: ignore[misc]


def write_object(url: str, path: Path) -> None:
    """Upload a file as an object, and check its size there."""
    data = path.read_bytes()

    def write() -> None:
        filesystem(url).pipe_file(url, data)
        if (size := filesystem(url).size(url)) != len(data):
            raise OSError(f"{size:,} bytes arrived of {len(data):,}")

    _tried(write, url)


def filesystem(url: str) -> Any:
    """Return the fsspec file system of a URL; credentials and endpoint come from the usual variables."""
    protocol = url.split("://", maxsplit=1)[0]
    if protocol in _OBJECT_STORES:
        with suppress(ImportError):
            return _object_store(protocol)
    try:
        import fsspec
    except ImportError as error:
        raise missing_package("fsspec", extra="cluster", needed_for="a URL") from error
    try:
        return fsspec.filesystem(protocol)
    except ImportError as error:
        raise LitebertError(
            "LB-311",
            f"reading {protocol}:// needs a driver of its own",
            received=str(error),
            expected="the package obstore, or the one that fsspec names for this protocol",
            next="pip install obstore",
        ) from error


@lru_cache(maxsize=4)
def _object_store(protocol: str) -> Any:
    from obstore.fsspec import FsspecStore

    return FsspecStore(  # type: ignore[call-overload]
        protocol,
        client_options={"timeout": _TIMEOUT, "allow_http": True},
        retry_config={"max_retries": 0},
        skip_instance_cache=True,
    )


def _fetched(url: str) -> IO[bytes]:
    """Fetch an object into a nameless temporary file, for reading and seeking."""
    file = tempfile.TemporaryFile()  # noqa: SIM115  the caller closes it
    for piece in read_object(url):
        file.write(piece)
    file.seek(0)
    return file


def _tried(make: Callable[[], Made], url: str) -> Made:
    """Repeat a request with growing pauses until it succeeds."""
    for attempt in range(ATTEMPTS):
        if attempt:
            time.sleep(PAUSE_SECONDS * 2 ** (attempt - 1))
        try:
            return make()
        except _HOPELESS:
            raise
        except Exception as error:  # noqa: BLE001  every driver has errors of its own
            failure = error
    raise ResourceError(
        "LB-270",
        f"the object storage fails: {url}",
        received=(str(failure).splitlines() or [type(failure).__name__])[0],
        expected=f"an answer within {ATTEMPTS} attempts",
        next="check the endpoint and the network; rerun the command to resume",
    ) from failure
