"""Inputs on disk or in object storage, looked up before any work is done."""

import difflib
import errno
import stat
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from shlex import quote
from typing import TypeAlias

from litebert.errors import LitebertError, RequestError
from litebert.reading.remote import is_url, message_of, object_size, unreadable_url

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
_UNITS = {
    ".parquet": "row",
    ".json": "item",
    FOLDER: "text",
    **dict.fromkeys(SPREADSHEETS, "row"),
}
_COUNTED_BYTES = 1 << 18  # that are read at once to count lines


@dataclass(frozen=True)
class Source:
    """One input, or a part of a large one.

    A part is a range of the bytes, which begins and ends with lines, or of the row
    groups of a Parquet file.
    """

    name: str  # as the user gave it
    location: str  # its path or URL
    kind: str  # its extension before that of the compression; .jsonl for JSON lines
    compression: str
    size: int  # its bytes as stored, or those of the part
    # called with the number of stored bytes read so far
    on_read: Callable[[int], None] | None = field(
        default=None, compare=False, repr=False
    )
    part: range | None = None
    # the number of rows before the part; None: counted when an error has to name a line
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
                size = min(_COUNTED_BYTES, part.start - file.tell())
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
        size = _size_of(name)
    except (OSError, ValueError, TypeError) as error:
        raise unreadable(name, error) from error
    source = _source(name, size)
    is_packed_twice = source.kind in COMPACT and source.compression != ""
    if source.kind not in kinds or is_packed_twice:
        raise _unknown_kind(source, [kind for kind in kinds if kind])
    if size == 0:
        raise no_content(name)
    return source


def _size_of(name: str) -> int:
    """Return the bytes of an input; OSError if it cannot be opened."""
    if is_url(name):
        return object_size(name)
    path = Path(name)
    _require_regular(path)
    with path.open("rb"):
        return path.stat().st_size


class _NotRegularError(OSError):
    """A path that is not that of a file."""


def _require_regular(path: Path) -> None:
    """Raise OSError unless a path is a file: opening a pipe would wait for a writer."""
    mode = path.stat().st_mode
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, "it is a folder")
    if not stat.S_ISREG(mode):
        raise _NotRegularError(errno.EINVAL, "it is a pipe or a device")


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
        raise unreadable(str(path), error) from error
    raise AssertionError("a regular file is found above")


def no_content(
    name: str, *, next: str = "omit this file, or write it again"
) -> LitebertError:
    """Return the error for a file without text or rows."""
    return LitebertError("LB-853", f"{name} has no content", next=next)


def _source(name: str, size: int) -> Source:
    """Return the input of this name: its ending says its kind and its compression."""
    suffixes = [suffix.lower() for suffix in PurePosixPath(name).suffixes]
    compression = ""
    if suffixes and suffixes[-1] in COMPRESSIONS:
        compression = suffixes.pop()
    kind = suffixes[-1] if suffixes else ""
    if kind in JSON_LINES:
        kind = JSON_LINES[0]
    location = name if is_url(name) else str(Path(name).absolute())
    return Source(name, location, kind, compression, size)


def unreadable(name: str, error: Exception) -> LitebertError:
    """Return the error for an input that cannot be opened or read."""
    if is_url(name):
        return unreadable_url(name, error)
    received = message_of(error)
    advice = f"ls -l {quote(name)}"
    if isinstance(error, IsADirectoryError):
        advice = f"name the files in it: {quote(name)}/*{_usual_end(Path(name))}"
    elif isinstance(error, FileNotFoundError):
        advice = _nearest(Path(name))
    elif isinstance(error, _NotRegularError):
        advice = "write its contents to a file first"
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
