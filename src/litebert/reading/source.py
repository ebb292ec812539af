"""Inputs on disk or in object storage: look them up before any work is done, decompress
them, split them into lines.

Object storage such as S3 is reached through obstore. Memory is bounded, and every error
names the file and the line.
"""

import difflib
import errno
import gzip
import stat
import sys
import tempfile
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import lru_cache
from io import BufferedIOBase
from pathlib import Path, PurePosixPath
from shlex import quote
from typing import IO, Any, TypeAlias, cast

from litebert.errors import (
    DamagedError,
    LitebertError,
    RequestError,
    ResourceError,
    missing_package,
)
from litebert.reading import encoding as encodings
from litebert.reading.possible_encodings import possible_encodings

# the endings of compressed files, and the bytes that such a file begins with
COMPRESSIONS = {".gz": b"\x1f\x8b", ".zst": b"\x28\xb5\x2f\xfd"}
JSON_LINES = (".jsonl", ".ndjson")
SPREADSHEETS = (".xlsx", ".xls", ".ods")
# tables of cells, which have no text to pretrain on
TABLES = (".csv", ".tsv", ".tab", *SPREADSHEETS)
TEXTS = (".txt", *JSON_LINES, ".parquet")
# files of these kinds are compressed inside
COMPACT = (".parquet", *SPREADSHEETS)
# the kind of a folder, of which each text is a file
FOLDER = "folder"

# What a place in a file is counted in, by the kind of the file; in all others, lines.
_UNITS = {".parquet": "row", ".json": "item", FOLDER: "text"} | dict.fromkeys(
    SPREADSHEETS, "row"
)

PIECE_BYTES = 1 << 18
BOMB_BYTES = 32 << 20
BOMB_RATIO = 100
"""Decompressed text is 2 to 30 times larger; more than 100 times, after 32 MiB, is a
bomb.

More would cost time, not memory: each line takes about a microsecond, and is one byte if
it is blank.
"""
_SHOWN_CHARACTERS = 40  # of a line, in each encoding that is possible
# the most bytes of blank lines without a text between them
MAX_BLANK_BYTES = 1 << 20
# a line of a table is a row, and several copies of it are in memory
MAX_LINE_BYTES = 16 << 20
# a .json file is read into memory, and is often one line; a .jsonl file may be longer
MAX_JSON_BYTES = 1 << 27

ATTEMPTS = 6
# the pause before the second attempt at a request; each later one is twice as long
PAUSE = timedelta(seconds=0.5)
_OBJECT_BYTES = 16 << 20
_TIMEOUT = "30s"


@dataclass(frozen=True)
class Source:
    """One input as the user named it; `location` is its path or URL, `size` its bytes
    as stored.

    `kind` is its extension without that of the compression; for JSON lines it is always
    `.jsonl`. `on_read` is called with the number of stored bytes read so far.

    `part` is the part of a large file that is read, if it is not all of it: a range of
    its bytes, which begins and ends with lines, or of the row groups of a Parquet file.
    `size` is then that of the part, and `before` the number of rows before it; lines
    are counted only when an error has to name one. `encoding` is that of its text.
    """

    name: str
    location: str
    kind: str
    compression: str
    size: int
    on_read: Callable[[int], None] | None = field(
        default=None, compare=False, repr=False
    )
    part: range | None = None
    before: int | None = None
    encoding: str = "utf-8"

    def place(self, number: int) -> str:
        """Name the place of a line or row, by its number in what is read.

        >>> Source("a.csv", "/a.csv", ".csv", "", 1).place(1200)
        'a.csv, line 1,200'
        """
        return self.line(number, _UNITS.get(self.kind, "line"))

    def line(self, number: int, unit: str = "line") -> str:
        """Name the place of a line, by its number in what is read."""
        num_before = 0
        if self.part is not None:
            num_before = self._count_before(self.part)
        return f"{self.name}, {unit} {num_before + number:,}"

    def _count_before(self, part: range) -> int:
        if self.before is not None:
            return self.before
        with open(self.location, "rb") as file:
            count = 0
            while file.tell() < part.start:
                size = min(PIECE_BYTES, part.start - file.tell())
                count += file.read(size).count(b"\n")
        return count


Names: TypeAlias = str | Path | Iterable[str | Path]  # of one input or several
STANDARD_INPUT = Source("-", "-", ".txt", "", 0)


# ---- looking up inputs ---------------------------------------------------------------


def find_texts(names: Names) -> tuple[Source, ...]:
    """Look up one input or several."""
    listed = [names] if isinstance(names, str | Path) else names
    sources = tuple(find_input(str(name)) for name in listed)
    if not sources:
        raise LitebertError(
            "LB-316", "there is no input", next="name one or more files or URLs"
        )
    return sources


def find_input(name: str, kinds: Sequence[str] = TEXTS) -> Source:
    """Look up a path or a URL; it must be of one of `kinds`, readable and not empty."""
    try:
        size = _object_size(name) if is_url(name) else _file_size(Path(name))
    except (OSError, ValueError, TypeError) as error:
        raise _unreadable(name, error) from error
    source = _source(name, size)
    is_packed_twice = source.kind in COMPACT and source.compression != ""
    if source.kind not in kinds or is_packed_twice:
        raise _unknown_kind(source, [kind for kind in kinds if kind])
    if size == 0:
        raise no_content(name)
    return source


def _object_size(url: str) -> int:
    with _storage(url) as (store, path):
        return int(store.head(path)["size"])


def _file_size(path: Path) -> int:
    """Return the bytes of a file; OSError if it cannot be opened."""
    _require_regular(path)
    with path.open("rb"):
        return path.stat().st_size


def _require_regular(path: Path) -> None:
    """Raise OSError unless a path is a file: opening a pipe would wait for a writer."""
    mode = path.stat().st_mode
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, "it is a folder")
    if not stat.S_ISREG(mode):
        raise OSError(errno.EINVAL, "it is a pipe or a device")


def _unknown_kind(source: Source, kinds: Sequence[str]) -> RequestError:
    compact = " or ".join(kind for kind in COMPACT if kind in kinds)
    return RequestError(
        "LB-304",
        f"{source.name} is not of a file type that can be read",
        received=f"{source.kind}{source.compression}" or "no extension",
        expected=(
            f"{', '.join(kinds)}; all but {compact} also with"
            f" {' or '.join(COMPRESSIONS)}"
        ),
        next=_right_kind(source, kinds),
    )


def _right_kind(source: Source, kinds: Sequence[str]) -> str:
    """Say what to do with a file of another kind: other commands may read it."""
    kind = source.kind
    if not kind:
        return "add the right extension to its name"
    if kind == ".zip":
        return f"unzip {quote(source.name)}"
    if kind in TABLES and kind not in kinds:
        return (
            "write its texts to a .txt file, with a blank line after each; a table with"
            " labels is for litebert finetune"
        )
    if ".csv" in kinds:
        return "convert it to .csv or .jsonl"
    return "convert it to .txt or .jsonl"


def find_files(folder: Path, patterns: Sequence[str]) -> list[Source]:
    """Return the files that match the first pattern with a match, as is or with .gz or
    .zst, sorted by name.
    """
    for pattern in patterns:
        for compression in ("", *COMPRESSIONS):
            matches = sorted(folder.glob(pattern + compression))
            paths = [path for path in matches if path.is_file()]
            if paths:
                return [_source(str(path), path.stat().st_size) for path in paths]
    raise LitebertError(
        "LB-820",
        f"{folder} does not have the data of this task",
        received=_contents(folder),
        expected=f"one of {', '.join(patterns)} (also {' or '.join(COMPRESSIONS)})",
        next="--data FOLDER, the folder that has one of these files",
    )


def _contents(folder: Path) -> str:
    """Say what is in a folder, or at its place."""
    if folder.is_dir():
        names = sorted(path.name for path in folder.iterdir())
        return ", ".join(names) or "an empty folder"
    return "a file, not a folder" if folder.exists() else "no such folder"


def find_file(path: Path) -> Source:
    """Return the named file, or its compressed form."""
    places = [path]
    if path.name and not path.is_dir():
        places += [path.with_name(path.name + suffix) for suffix in COMPRESSIONS]
    for place in places:
        if place.is_file():
            return _source(str(place), place.stat().st_size)
    try:
        _require_regular(path)
    except (OSError, ValueError) as error:
        raise _unreadable(str(path), error) from error
    raise AssertionError("a regular file is found above")


def is_url(name: str) -> bool:
    """Return whether the name of an input is a URL, not a path."""
    return "://" in name


def no_content(name: str) -> LitebertError:
    """Return the error for a file without text or rows."""
    return LitebertError(
        "LB-853", f"{name} has no content", next="omit this file, or write it again"
    )


def _source(name: str, size: int) -> Source:
    suffixes = [suffix.lower() for suffix in PurePosixPath(name).suffixes]
    compression = ""
    if suffixes and suffixes[-1] in COMPRESSIONS:
        compression = suffixes.pop()
    kind = suffixes[-1] if suffixes else ""
    if kind in JSON_LINES:
        kind = JSON_LINES[0]
    location = name if is_url(name) else str(Path(name).absolute())
    return Source(name, location, kind, compression, size)


def _unreadable(name: str, error: Exception) -> LitebertError:
    received = getattr(error, "strerror", None) or _first_line(error)
    advice = f"ls -l {quote(name)}"
    if is_url(name):
        advice = "check the URL and your credentials"
    elif isinstance(error, IsADirectoryError):
        advice = f"name the files in it: {quote(name)}/*{_usual_end(Path(name))}"
    elif isinstance(error, FileNotFoundError):
        advice = _nearest(Path(name))
    return RequestError(
        "LB-303", f"{name} cannot be read", received=received, next=advice
    )


def _usual_end(folder: Path) -> str:
    """Return the ending that most texts of a folder have, "" without texts."""
    ends = Counter[str]()
    with suppress(OSError):
        ends.update(file.suffix for file in folder.iterdir())
    ends_of_texts = [end for end, _ in ends.most_common() if end in TEXTS]
    return ends_of_texts[0] if ends_of_texts else ""


def _nearest(path: Path) -> str:
    """Say which file may be meant by the name of a file that does not exist."""
    folder = path.parent
    if not folder.is_dir():
        return f"ls {quote(str(folder.parent))}"
    # Endings are compared apart: of tickets.csv and empty.csv, only they are alike.
    files = {file.stem: file for file in folder.iterdir() if file.is_file()}
    near = difflib.get_close_matches(path.stem, [*files], n=1, cutoff=0.7)
    if not near:
        return f"ls {quote(str(folder))}"
    return f"did you mean {files[near[0]]}?"


# ---- bytes ---------------------------------------------------------------------------


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
        raise _unreadable(source.name, error) from error


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


# ---- lines ---------------------------------------------------------------------------


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
            raise _unreadable(source.name, error) from error
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


def _read_stdin() -> Iterator[bytes]:
    """Yield standard input as it arrives; nothing if it is closed."""
    if sys.stdin is not None:
        file = cast(BufferedIOBase, sys.stdin.buffer)
        yield from iter(lambda: file.read1(PIECE_BYTES), b"")


# ---- object storage ------------------------------------------------------------------


def read_object(url: str) -> Iterator[bytes]:
    """Yield an object in pieces; a missing one raises FileNotFoundError."""
    with _storage(url) as (store, path):
        for piece in store.get(path).stream(min_chunk_size=_OBJECT_BYTES):
            yield bytes(piece)


def write_object(url: str, content: bytes | Path) -> None:
    """Upload bytes or a file as an object."""
    with _storage(url) as (store, path):
        store.put(path, content)


@contextmanager
def _storage(url: str) -> Iterator[tuple[Any, str]]:
    """Yield the store of a URL and the path in it, for a block of requests."""
    try:
        from obstore.exceptions import BaseError
    except ImportError as error:
        raise missing_package("obstore", extra="cluster", needed_for="a URL") from error
    scheme, _, place = url.partition("://")
    host, _, path = place.partition("/")
    try:
        store = _store(f"{scheme}://{host}")
    except (BaseError, ValueError) as error:
        raise _unreadable(url, error) from error
    try:
        yield store, path
    except BaseError as error:
        raise ResourceError(
            "LB-270",
            f"object storage failed: {url}",
            received=_first_line(error),
            expected=f"a response within {ATTEMPTS} attempts",
            next="check the endpoint and the network; rerun the command to resume",
        ) from error


@lru_cache(maxsize=16)
def _store(root: str) -> Any:
    """Return the store at a root such as s3://bucket; credentials and endpoint come
    from the usual variables.
    """
    from obstore.store import from_url

    backoff = {"init_backoff": PAUSE, "base": 2, "max_backoff": PAUSE * 2**ATTEMPTS}
    options: Any = {
        "client_options": {"timeout": _TIMEOUT, "allow_http": True},
        "retry_config": {"max_retries": ATTEMPTS - 1, "backoff": backoff},
    }
    return from_url(root, **options)


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
