"""Read and write objects in storage such as S3, retrying every failure."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import IO, Protocol, TypeVar, cast

from litebert.errors import LitebertError, ResourceError, missing_package

Made = TypeVar("Made")

ATTEMPTS = 6
PAUSE_SECONDS = 0.5
"""The pause before the second attempt; each later pause is twice as long."""
PIECE_BYTES = 16 << 20
_TIMEOUT = "30s"
_MISTAKES = (TypeError, ValueError, AttributeError, NameError, LookupError, AssertionError, ImportError, MemoryError)
_OBJECT_STORES = ("s3", "s3a", "gs", "az", "abfs")


class FileSystem(Protocol):
    """The part of an fsspec file system that we use."""

    def size(self, path: str) -> int: ...
    def cat_file(self, path: str, start: int | None, end: int | None) -> bytes: ...
    def pipe_file(self, path: str, value: bytes) -> None: ...


def is_url(name: str) -> bool:
    """Whether an input is named by a URL, not by a path."""
    return "://" in name


def object_size(url: str) -> int:
    """Return the size of an object in bytes; a missing one raises FileNotFoundError at once."""
    return _tried(lambda: filesystem(url).size(url), url)


def read_object(url: str) -> Iterator[bytes]:
    """Yield an object in pieces of PIECE_BYTES.

    Raises:
        FileNotFoundError: There is no such object.
        ResourceError: LB-270, all attempts failed.
    """
    size, start = object_size(url), 0
    while start < size:
        stop = min(start + PIECE_BYTES, size)
        yield _tried(lambda start=start, stop=stop: _piece(url, start, stop), url)  # type: ignore[misc]
        start = stop


def open_object(url: str) -> IO[bytes]:
    """Fetch an object into a nameless temporary file, for reading and seeking."""
    file = tempfile.TemporaryFile()  # noqa: SIM115  the caller closes it
    for piece in read_object(url):
        file.write(piece)
    file.seek(0)
    return file


def write_object(url: str, path: Path) -> None:
    """Upload a file as an object, and check its size there."""
    data = path.read_bytes()

    def write() -> None:
        filesystem(url).pipe_file(url, data)
        if (size := filesystem(url).size(url)) != len(data):
            raise OSError(f"{size:,} bytes arrived of {len(data):,}")

    _tried(write, url)


def filesystem(url: str) -> FileSystem:
    """Return the file system of a URL; credentials and endpoint come from the usual variables."""
    protocol = url.split("://", maxsplit=1)[0]
    if protocol in _OBJECT_STORES:
        with suppress(ImportError):
            return _object_store(protocol)
    try:
        import fsspec
    except ImportError as error:
        raise missing_package("fsspec", extra="cluster", needed_for="a URL") from error
    try:
        return cast(FileSystem, fsspec.filesystem(protocol))
    except ImportError as error:
        raise LitebertError(
            "LB-311",
            f"reading {protocol}:// needs a driver of its own",
            received=str(error),
            expected="the package obstore, or the one that fsspec names for this protocol",
            next="pip install obstore",
        ) from error


@lru_cache(maxsize=4)
def _object_store(protocol: str) -> FileSystem:
    from obstore.fsspec import FsspecStore

    store = FsspecStore(  # type: ignore[call-overload]
        protocol,
        client_options={"timeout": _TIMEOUT, "allow_http": True},
        retry_config={"max_retries": 0},
        skip_instance_cache=True,
    )
    return cast(FileSystem, store)


def _piece(url: str, start: int, stop: int) -> bytes:
    piece = bytes(filesystem(url).cat_file(url, start, stop))
    if len(piece) != stop - start:
        raise OSError(f"{len(piece):,} bytes arrived of {stop - start:,}")
    return piece


def _tried(make: Callable[[], Made], url: str) -> Made:
    """Retry a request with growing pauses, but not a missing object, and not an error of the program."""
    for attempt in range(1, ATTEMPTS + 1):
        try:
            return make()
        except (FileNotFoundError, PermissionError, LitebertError, *_MISTAKES):
            raise
        except Exception as error:
            if attempt == ATTEMPTS:
                raise _failing(url, error) from error
            time.sleep(PAUSE_SECONDS * 2 ** (attempt - 1))
    raise AssertionError("unreachable")


def _failing(url: str, error: Exception) -> ResourceError:
    return ResourceError(
        "LB-270",
        f"the object storage fails: {url}",
        received=(str(error).splitlines() or [type(error).__name__])[0],
        expected=f"an answer within {ATTEMPTS} attempts",
        next="check the endpoint and the network; rerun the command to resume",
    )
