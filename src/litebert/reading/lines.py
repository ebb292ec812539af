"""Read a text file as numbered lines: strict UTF-8, in bounded memory; errors name the line."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from io import BufferedIOBase
from shlex import quote
from typing import cast

from litebert.errors import DamagedError, LitebertError
from litebert.reading.source import PIECE_BYTES, CorruptStreamError, Source, read_pieces

MAX_LINE_BYTES = 64 << 20
MAX_ROW_BYTES = 8 << 20
"""A line of a table is a row, of which several copies are in memory."""
STANDARD_INPUT = Source("-", "-", ".txt", "", 0)
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


def read_rows(source: Source) -> Iterator[tuple[int, str]]:
    """Yield the lines of a table as `read_lines` does, with a lower limit on their length."""
    return read_lines(source, longest=MAX_ROW_BYTES)


def read_lines(source: Source, *, longest: int | None = None) -> Iterator[tuple[int, str]]:
    """Yield (number from 1, line without its end) of a text file.

    Only LF and CR LF end a line, so that numbers are those of an editor. A leading byte-order mark is dropped.
    `longest` is the most bytes in a line.
    """
    number = 0
    for block in _whole_lines(source, longest or MAX_LINE_BYTES):
        try:
            text = block.decode("utf-8")
        except UnicodeDecodeError as error:
            raise _not_utf8(source, block, error.start, lines_before=number) from error
        lines = text.split("\n")
        if not lines[-1]:
            lines.pop()
        for line in lines:
            number += 1
            yield number, line.removesuffix("\r")


def _whole_lines(source: Source, longest: int) -> Iterator[bytes]:
    """Yield blocks of complete lines."""
    held, number = bytearray(), 1
    for piece in _pieces(source):
        end = piece.rfind(b"\n") + 1
        if len(held) + (end or len(piece)) > longest:
            raise LitebertError(
                "LB-308",
                f"{source.name}, line {number:,}: too long",
                received=f"more than {longest >> 20} MiB without a line end",
                expected=f"lines of at most {longest >> 20} MiB",
                next="break the text into lines or rows",
            )
        held += piece[:end] or piece
        if end:
            block = bytes(held)
            number += block.count(b"\n")
            held = bytearray(piece[end:])
            yield block
    if held:
        yield bytes(held)


def _pieces(source: Source) -> Iterable[bytes]:
    num_lines, is_first = 0, True
    try:
        for piece in _typed() if source is STANDARD_INPUT else read_pieces(source):
            num_lines += piece.count(b"\n")
            yield piece.removeprefix(_BYTE_ORDER_MARK) if is_first else piece
            is_first = is_first and not piece
    except CorruptStreamError as error:
        test = "gzip" if source.compression == ".gz" else "zstd"
        raise DamagedError(
            "LB-306",
            f"{source.name} is damaged or cut off after line {num_lines:,}",
            received=str(error),
            expected=f"a complete {source.compression} file",
            next=f"copy it again, then test it: {test} --test {quote(source.name)}",
        ) from error


def _typed() -> Iterator[bytes]:
    """Yield what comes on standard input as it comes; nothing where it is closed."""
    if sys.stdin is not None:
        file = cast(BufferedIOBase, sys.stdin.buffer)
        yield from iter(lambda: file.read1(PIECE_BYTES), b"")


def _not_utf8(source: Source, block: bytes, place: int, *, lines_before: int) -> LitebertError:
    unpack = {"": "cat", ".gz": "zcat", ".zst": "zstdcat"}[source.compression]
    encoding = "UTF-16" if block[:2] in (b"\xff\xfe", b"\xfe\xff") else "WINDOWS-1252"
    line = lines_before + block.count(b"\n", 0, place) + 1
    column = place - block.rfind(b"\n", 0, place)
    return LitebertError(
        "LB-309",
        f"{source.name}, line {line:,}: not UTF-8",
        received=f"byte 0x{block[place]:02x}, byte {column:,} of the line",
        expected="UTF-8",
        next=f"{unpack} {quote(source.name)} | iconv -f {encoding} -t UTF-8 > converted{source.kind}",
    )
