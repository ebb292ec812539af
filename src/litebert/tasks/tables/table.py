"""A file of rows: its first lines, from which its layout is recognized, and the table
that is read from it, one row at a time, in bounded memory.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import islice

from litebert.errors import LitebertError
from litebert.reading.lines import read_lines, recognize_encoding
from litebert.reading.source import FOLDER, SPREADSHEETS, Source, no_content
from litebert.reading.tables import Row, Scanned

# the first rows, and their characters, from which dialect and columns are guessed
SAMPLE_ROWS = 1_000
SAMPLE_CHARACTERS = 1 << 20


@dataclass(frozen=True)
class Opening:
    """A file and its first lines, by which its layout is recognized; a file that is not
    read by lines has none.
    """

    source: Source
    lines: tuple[str, ...]

    @classmethod
    def of(cls, source: Source) -> "Opening":
        """Read the first lines of a file."""
        if source.kind in (".parquet", FOLDER, *SPREADSHEETS):
            return cls(source, ())
        readable = recognize_encoding(source)
        lines = list[str]()
        size = 0
        most = 2 if source.kind == ".json" else SAMPLE_ROWS
        for _, line in islice(read_lines(readable), most):
            lines.append(line)
            size += len(line)
            if size > SAMPLE_CHARACTERS:
                break
        if not any(lines):
            raise no_content(source.name)
        return cls(readable, tuple(lines))


@dataclass(frozen=True)
class TableFile:
    """A file of rows: its layout in words, its columns, a function that reads it.

    `has_header` is None unless the file is delimited. `spare` are columns that
    nobody misses: other names or parts of what named columns have, or empty ones
    without a name.
    """

    source: Source
    writing: str
    columns: tuple[str, ...]
    scan: Callable[[], Iterator[Scanned]]
    has_header: bool | None = None
    spare: tuple[str, ...] = ()

    def renamed(self, names: Mapping[str, str]) -> "TableFile":
        """Return the table with other names for some of its columns."""
        if not names:
            return self

        def scan() -> Iterator[Scanned]:
            for number, row in self.scan():
                if isinstance(row, LitebertError):
                    yield number, row
                else:
                    yield number, {names.get(old, old): row[old] for old in row}

        columns = tuple(names.get(old, old) for old in self.columns)
        return replace(self, columns=columns, scan=scan)

    def rows(self) -> Iterator[tuple[int, Row]]:
        """Yield each row with its number; raise the error of an invalid row."""
        for number, row in self.scan():
            if isinstance(row, LitebertError):
                raise row
            yield number, row

    def sample(self) -> list[Row]:
        """Return the valid rows among the first ones; raise the first error if none is
        valid.
        """
        good = list[Row]()
        errors = list[LitebertError]()
        for _, row in islice(self.scan(), SAMPLE_ROWS):
            if isinstance(row, LitebertError):
                errors.append(row)
            else:
                good.append(row)
        if good:
            return good
        if errors:
            raise errors[0]
        raise no_content(self.source.name)
