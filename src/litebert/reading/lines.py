"""The lines of a text, in UTF-8 or an encoding that its first bytes make certain.

Memory is bounded, and every error names the file and the line.
"""

import sys
import zlib
from collections.abc import Iterator
from dataclasses import replace
from io import BufferedIOBase
from shlex import quote
from typing import cast

from litebert.errors import DamagedError, LitebertError
from litebert.reading import encoding as encodings
from litebert.reading.pieces import PIECE_BYTES, read_pieces
from litebert.reading.possible_encodings import possible_encodings
from litebert.reading.source import (
    COMPRESSIONS,
    STANDARD_INPUT,
    Source,
    unreadable,
)

_SHOWN_CHARACTERS = 40  # of a line, in each encoding that is possible
# the most bytes of blank lines without a text between them
MAX_BLANK_BYTES = 1 << 20
# a line of a table is a row, and several copies of it are in memory
MAX_LINE_BYTES = 16 << 20
# a .json file is read into memory, and is often one line; a .jsonl file may be longer
MAX_JSON_BYTES = 1 << 27


def recognize_encoding(source: Source) -> Source:
    """Return a text file with its encoding, as far as its first bytes make that
    certain.
    """
    sample = bytearray()
    try:
        for piece in read_pieces(source):
            sample += piece
            if len(sample) >= encodings.SAMPLE_BYTES:
                break
    except (EOFError, OSError, zlib.error):
        return source  # reading its lines says what is wrong
    return replace(source, encoding=encodings.find_encoding(bytes(sample)))


def read_lines(source: Source) -> Iterator[tuple[int, str]]:
    """Yield (number from 1, line without its end) of a text file, which must be UTF-8 or
    of the encoding that was recognized.

    Only LF and CR LF end a line, so that line numbers match those of an editor. A
    leading byte-order mark is dropped.
    """
    number = 0
    for block in _whole_lines(source):
        try:
            lines = block.decode("utf-8").split("\n")
        except UnicodeDecodeError as error:
            raise _not_utf8(source, number, block, error.start) from error
        if not lines[-1]:
            lines.pop()
        for line in lines:
            number += 1
            yield number, line.removesuffix("\r")


def scan_lines(source: Source) -> Iterator[tuple[int, str | LitebertError]]:
    """Yield what `read_lines` yields; in place of a line that is not UTF-8, its error,
    so that the lines after it are read.
    """
    number = 0
    for block in _whole_lines(source):
        for line in block.removesuffix(b"\n").split(b"\n"):
            number += 1
            try:
                yield number, line.decode("utf-8").removesuffix("\r")
            except UnicodeDecodeError as error:
                yield number, _not_utf8(source, number - 1, line, error.start)


# ---- blocks of whole lines -----------------------------------------------------------


def _whole_lines(source: Source) -> Iterator[bytes]:
    """Yield blocks of whole lines, in UTF-8; only the last one may lack its line
    end.
    """
    blocks = _LineBlocks(source)
    try:
        for piece in _pieces_of_text(source):
            block = blocks.add(piece)
            if block is not None:
                yield block
    except UnicodeDecodeError as error:
        raise _not_as_before(source, blocks.num_lines, error) from error
    except (EOFError, OSError, zlib.error) as error:
        # an error of the system, not of decompression
        if getattr(error, "errno", None):
            raise unreadable(source.name, error) from error
        raise _cut_off(source, blocks.num_lines, error) from error
    if blocks.unfinished:
        yield bytes(blocks.unfinished)


def _pieces_of_text(source: Source) -> Iterator[bytes]:
    """Yield the pieces of a text in UTF-8, without a byte-order mark."""
    pieces = _read_stdin() if source is STANDARD_INPUT else read_pieces(source)
    if source.encoding != "utf-8":
        pieces = encodings.to_utf8(pieces, source.encoding)
    may_have_mark = source.part is None or source.part.start == 0
    for piece in pieces:
        data = piece
        if may_have_mark:
            data = piece.removeprefix(b"\xef\xbb\xbf")
            may_have_mark = not data
        yield data


def _read_stdin() -> Iterator[bytes]:
    """Yield standard input as it arrives; nothing if it is closed."""
    if sys.stdin is not None:
        file = cast(BufferedIOBase, sys.stdin.buffer)
        yield from iter(lambda: file.read1(PIECE_BYTES), b"")


class _LineBlocks:
    """Joins pieces of a text to blocks of whole lines; refuses lines that are too long,
    and blank ones without end.
    """

    def __init__(self, source: Source) -> None:
        self.num_lines = 0  # of all blocks so far
        # the beginning of a line whose end has not come yet
        self.unfinished = bytearray()
        self._source = source
        self._num_blank = 0  # bytes of blank lines since the last line with a text
        is_whole_json = source.kind == ".json"
        self._longest = MAX_JSON_BYTES if is_whole_json else MAX_LINE_BYTES

    def add(self, piece: bytes) -> bytes | None:
        """Add a piece; return the lines that it completes, None if it has no line
        end.
        """
        end = piece.rfind(b"\n") + 1
        added = piece[:end] if end else piece
        if len(self.unfinished) + len(added) > self._longest:
            received = f"over {self._longest >> 20} MiB"
            raise _too_long(self._source, self.num_lines + 1, received)
        self.unfinished += added
        if not end:
            return None
        block = bytes(self.unfinished)
        self.unfinished = bytearray(piece[end:])
        self.num_lines += block.count(b"\n")
        self._count_blank(block)
        return block

    def _count_blank(self, block: bytes) -> None:
        if not block.isspace():
            self._num_blank = 0
            return
        self._num_blank += len(block)
        if self._num_blank > MAX_BLANK_BYTES:
            received = f"over {MAX_BLANK_BYTES >> 20} MiB of blank lines"
            raise _too_long(self._source, self.num_lines, received)


# ---- errors --------------------------------------------------------------------------


def _not_utf8(source: Source, number: int, block: bytes, place: int) -> LitebertError:
    """Return the error for a byte that is not UTF-8, at a place in a block of lines;
    `number` is the number of the line before the block.
    """
    at = number + block.count(b"\n", 0, place) + 1
    begin = block.rfind(b"\n", 0, place) + 1
    end = block.find(b"\n", place)
    line = block[begin:] if end < 0 else block[begin:end]
    expected, advice = _right_encoding(source, block, line, is_first=not number)
    return LitebertError(
        "LB-309",
        f"{source.line(at)}: not UTF-8",
        received=f"byte 0x{block[place]:02x}, byte {place - begin + 1:,} of the line",
        expected=expected,
        next=advice,
    )


def _right_encoding(
    source: Source, block: bytes, line: bytes, *, is_first: bool
) -> tuple[str | None, str]:
    """Say what a file may be in, and how it becomes UTF-8.

    Where several encodings are possible, the line is shown in each: a wrong one turns
    any bytes into some text, which only a reader can tell.
    """
    name = quote(source.name)
    for suffix, magic in COMPRESSIONS.items():
        if is_first and block.startswith(magic):
            return None, f"mv {name} {quote(source.name + suffix)}"
    encoding = encodings.find_encoding(block)
    if encoding in encodings.NAMES:
        known = {"cp1252": "WINDOWS-1252"}.get(encoding, encoding.upper())
        return None, _convert(source, known)
    if encodings.is_utf8(block):
        return None, "correct this line in an editor: the other lines are UTF-8"
    possible = possible_encodings(block, line)
    if not possible:
        advice = "save the file again as UTF-8, in the program that it comes from"
        return None, advice
    readings = list[str]()
    for candidate in possible:
        shown = candidate.line[:_SHOWN_CHARACTERS]
        readings.append(f"{candidate.name} ({candidate.languages}) {shown!r}")
    expected = (
        "UTF-8; convert the file from the encoding in which this line is readable:"
        f" {', '.join(readings)}"
    )
    return expected, _convert(source, possible[0].name)


def _convert(source: Source, encoding: str) -> str:
    """Return the command that converts a file to UTF-8."""
    unpack = {"": "cat", ".gz": "zcat", ".zst": "zstdcat"}[source.compression]
    converted = f"converted{source.kind}"
    return f"{unpack} {quote(source.name)} | iconv -f {encoding} -t UTF-8 > {converted}"


def _not_as_before(
    source: Source, num_lines: int, error: UnicodeDecodeError
) -> LitebertError:
    return LitebertError(
        "LB-309",
        f"{source.name}: not {encodings.NAMES[source.encoding]} after line"
        f" {num_lines:,}, as it is before",
        received=f"byte 0x{error.object[error.start]:02x}",
        next="save it again as UTF-8, in the program that it comes from",
    )


def _cut_off(source: Source, num_lines: int, error: Exception) -> DamagedError:
    program = "zstd" if source.compression == ".zst" else "gzip"
    return DamagedError(
        "LB-306",
        f"{source.name} is damaged or cut off after line {num_lines:,}",
        received=error,
        next=f"copy it again, then test it: {program} --test {quote(source.name)}",
    )


def _too_long(source: Source, number: int, received: str) -> LitebertError:
    return LitebertError(
        "LB-308",
        f"{source.line(number)}: too long",
        received=received,
        next="break the text into lines or rows, without long gaps",
    )
