"""The bytes of an input, decompressed, in pieces of bounded size."""

import gzip
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import IO, Any

from litebert.errors import DamagedError, missing_package
from litebert.reading.remote import is_url, read_object
from litebert.reading.source import COMPACT, SPREADSHEETS, Source, unreadable

PIECE_BYTES = 1 << 18
# Decompressed text is 2 to 30 times larger; more than 100 times, after 32 MiB, is a bomb.
# More would cost time, not memory: each line takes about a microsecond, and is one byte
# if it is blank.
BOMB_BYTES = 32 << 20
BOMB_RATIO = 100


def open_source(source: Source) -> IO[bytes]:
    """Open the stored bytes of an input, still compressed, for reading and seeking."""
    try:
        if not is_url(source.location):
            return open(source.location, "rb")
        file = tempfile.TemporaryFile()  # noqa: SIM115  the caller closes it
        file.writelines(read_object(source.location))
        file.seek(0)
        return file
    except (OSError, ValueError) as error:
        raise unreadable(source.name, error) from error


def read_pieces(source: Source) -> Iterator[bytes]:
    """Yield the decompressed bytes of an input in pieces of bounded size."""
    with closing(open_source(source)) as file:
        if source.part is not None:
            yield from _read_part(file, source.part, source.on_read)
        else:
            yield from _read_whole(file, source)


def _read_whole(file: IO[bytes], source: Source) -> Iterator[bytes]:
    """Yield the decompressed bytes of an open input until they are far too many."""
    unpacked = _unpack(file, source.compression)
    length = 0
    while piece := unpacked.read(PIECE_BYTES):
        length += len(piece)
        stored = file.tell()
        if length > BOMB_BYTES and length > BOMB_RATIO * stored:
            raise decompression_bomb(source, length, stored)
        if source.on_read is not None:
            source.on_read(stored)
        yield piece


def _unpack(file: IO[bytes], compression: str) -> Any:
    """Return a file whose bytes are decompressed as they are read."""
    if compression == ".gz":
        return gzip.GzipFile(fileobj=file)
    if compression == ".zst":
        try:
            import pyarrow
        except ImportError as error:
            raise missing_package(
                "pyarrow", extra="data", needed_for="a .zst input"
            ) from error
        return pyarrow.CompressedInputStream(pyarrow.PythonFile(file, "r"), "zstd")
    return file


def _read_part(
    file: IO[bytes], part: range, on_read: Callable[[int], None] | None
) -> Iterator[bytes]:
    """Yield the bytes of a part of an open file, which is not compressed."""
    file.seek(part.start)
    left = len(part)
    while piece := file.read(min(PIECE_BYTES, left)):
        left -= len(piece)
        if on_read is not None:
            on_read(len(part) - left)
        yield piece


def decompression_bomb(source: Source, length: int, stored: int) -> DamagedError:
    """Return the error for `stored` bytes that become far too many."""
    advice = "decompress it yourself"
    if source.kind in SPREADSHEETS:
        advice = "save the sheet that has the table as .csv"
    elif source.kind in COMPACT:
        advice = "write its rows to a .jsonl file"
    return DamagedError(
        "LB-307",
        f"{source.name} becomes far too large when decompressed",
        received=f"{length:,} bytes out of {stored:,}",
        next=f"check where the file comes from; if it is genuine, {advice}",
    )
