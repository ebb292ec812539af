"""An input file or URL: its kind, its size, and its bytes, decompressed in pieces."""

from __future__ import annotations

import gzip
import stat
import zlib
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from litebert.errors import DamagedError, LitebertError, RequestError, missing_package
from litebert.reading.storage import is_url, object_size, open_object

COMPRESSIONS = (".gz", ".zst")

PIECE_BYTES = 1 << 18
BOMB_BYTES, BOMB_RATIO = 1 << 30, 100
"""Decompressed text is 2 to 30 times larger; more than 100 times, after 1 GiB, is a bomb."""


class CorruptStreamError(Exception):
    """Compressed bytes are damaged; callers turn this into an error that names the line."""


@dataclass(frozen=True)
class Source:
    """One input as the user named it; `location` is its path or URL, `size` its bytes as stored.

    `on_read` is called with the number of these bytes read so far.
    """

    name: str
    location: str
    kind: str
    compression: str
    size: int
    on_read: Callable[[int], None] | None = field(default=None, compare=False, repr=False)


def stored_size(name: str) -> int:
    """Return the size of an input as stored, in bytes.

    Raises:
        RequestError: LB-303, it is missing, unreadable or a folder.
    """
    try:
        if is_url(name):
            return object_size(name)
        found = Path(name).stat()
        if not stat.S_ISREG(found.st_mode):  # opening a pipe would wait for a writer
            is_folder = stat.S_ISDIR(found.st_mode)
            raise OSError(0, "it is a folder" if is_folder else "it is a pipe or a device")
        with open(name, "rb"):
            return found.st_size
    except (OSError, ValueError, TypeError) as error:
        raise unreadable(name, error) from error


def open_source(source: Source) -> IO[bytes]:
    """Open the stored bytes of an input, still compressed, for reading and seeking."""
    try:
        if is_url(source.location):
            return open_object(source.location)
        return open(source.location, "rb")
    except (OSError, ValueError) as error:
        raise unreadable(source.name, error) from error


def read_pieces(source: Source) -> Iterator[bytes]:
    """Yield the decompressed bytes of an input in pieces of bounded size.

    Raises:
        CorruptStreamError: Compressed bytes are damaged or truncated.
        DamagedError: LB-307, it is a decompression bomb.
    """
    with closing(open_source(source)) as file:
        length = 0
        try:
            for piece in _DECOMPRESS[source.compression](file):
                length += len(piece)
                if length > BOMB_BYTES and length > BOMB_RATIO * file.tell():
                    raise _bomb(source.name, length, file.tell())
                if source.on_read is not None:
                    source.on_read(file.tell())
                yield piece
        except OSError as error:
            raise unreadable(source.name, error) from error


def _read_plain(file: IO[bytes]) -> Iterator[bytes]:
    return iter(lambda: file.read(PIECE_BYTES), b"")


def _gunzipped(file: IO[bytes]) -> Iterator[bytes]:
    try:
        with gzip.GzipFile(fileobj=file) as unzipped:
            yield from iter(lambda: unzipped.read(PIECE_BYTES), b"")
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise CorruptStreamError(str(error)) from error


def _unzstd(file: IO[bytes]) -> Iterator[bytes]:
    held = bytearray()
    for piece in _unzstd_frames(file):
        held += piece
        if len(held) >= PIECE_BYTES:
            yield bytes(held)
            held.clear()
    yield bytes(held)


def _unzstd_frames(file: IO[bytes]) -> Iterator[bytes]:
    """Decompress frame after frame, 128 bytes at a time, which give at most 4 MiB."""
    try:
        import zstandard
    except ImportError as error:
        raise missing_package("zstandard", extra="data", needed_for="a .zst input") from error
    decompressor = zstandard.ZstdDecompressor()
    frame = decompressor.decompressobj()
    is_open = True
    try:
        while rest := file.read(128):
            while rest:
                if frame.eof:
                    frame = decompressor.decompressobj()
                yield frame.decompress(rest)
                rest, is_open = frame.unused_data, not frame.eof
    except zstandard.ZstdError as error:
        raise CorruptStreamError(str(error)) from error
    if is_open:
        raise CorruptStreamError("the file ends inside a zstd frame")


_DECOMPRESS = {"": _read_plain, ".gz": _gunzipped, ".zst": _unzstd}


def unreadable(name: str, error: Exception) -> LitebertError:
    """Return the error for an input that is missing or cannot be read."""
    return RequestError(
        "LB-303",
        f"{name} cannot be read",
        received=getattr(error, "strerror", None) or str(error),
        expected="an existing, readable file",
        next="check the URL and your credentials" if is_url(name) else f"ls -l {name}",
    )


def _bomb(name: str, length: int, stored: int) -> DamagedError:
    return DamagedError(
        "LB-307",
        f"{name} becomes far too large when decompressed",
        received=f"{length:,} bytes out of {stored:,}",
        expected=f"at most {BOMB_RATIO} times the stored size",
        next="check where the file comes from; decompress it yourself if it is right",
    )
