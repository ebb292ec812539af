"""Open a table of any kind: its columns, and its rows one by one, in bounded memory."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import chain, islice
from pathlib import Path

from litebert.errors import LitebertError
from litebert.reading.source import DELIMITED, JSON_LINES, TAGGED, Source, find_table, no_rows
from litebert.reading.tables import (
    Row,
    RowPlace,
    Scanned,
    first_lines,
    header_names,
    read_parquet,
    scan_columns,
    scan_delimited,
    scan_json,
    scan_json_lines,
    scan_tagged,
)
from litebert.tasks.own.dialect import guess_dialect, guess_header

SAMPLE_ROWS = 1_000
"""Rows from which the columns of a table and their contents are guessed."""


@dataclass(frozen=True)
class TableFile:
    """A file of rows: its format in words, its columns, and a function that reads it.

    `has_header` is None if this kind of file has none.
    """

    source: Source
    writing: str
    columns: tuple[str, ...]
    scan: Callable[[], Iterator[Scanned]]
    has_header: bool | None = None

    def rows(self) -> Iterator[tuple[int, Row]]:
        """Yield each row with its number.

        Raises:
            LitebertError: A row is not valid, or the file cannot be read.
        """
        for number, row in self.scan():
            if isinstance(row, LitebertError):
                raise row
            yield number, row

    def sample(self) -> list[Row]:
        """Return the valid ones of the first rows.

        Raises:
            LitebertError: LB-853, there are no rows; or none is valid, then the error of the first.
        """
        scanned = [row for _, row in islice(self.scan(), SAMPLE_ROWS)]
        good = [row for row in scanned if not isinstance(row, LitebertError)]
        for row in scanned:
            if isinstance(row, LitebertError) and not good:
                raise row
        if not good:
            raise no_rows(self.source.name, self.source.size)
        return good

    def place(self, number: int) -> str:
        """Name the place of a row: the file, and the line, row or item."""
        return str(RowPlace(self.source, number))


def open_table(path: Path, *, has_header: bool | None = None, known: Collection[str] = ()) -> TableFile:
    """Find out the format of a file and its columns.

    `has_header` says whether a .csv or .tsv file names its columns in the first line (None: guess);
    without a header they are called 1, 2, 3, … `known` are names that a header is likely to have.

    Raises:
        LitebertError: The file is missing or of an unknown kind, or its first rows are not valid.
    """
    source = find_table(path)
    if source.kind in DELIMITED:
        return _delimited(source, has_header, known)
    if source.kind == ".parquet":
        return _parquet(source)
    if source.kind in JSON_LINES:
        return _keyed(source, "an object per line", partial(scan_json_lines, source))
    if source.kind in TAGGED:
        return _keyed(source, "a word per line", partial(scan_tagged, source))
    return _keyed(source, "a list of objects", partial(scan_json, source))


def _delimited(source: Source, has_header: bool | None, known: Collection[str]) -> TableFile:
    lines = first_lines(source)
    if not any(lines):
        raise no_rows(source.name, source.size)
    dialect = guess_dialect(lines, kind=source.kind, known=known)
    sample = [cells for cells, _ in dialect.sized(lines) if cells]
    if not sample:  # raises the error of the first row
        cells = partial(scan_delimited, source, dialect, ("1",), has_header=False)
        TableFile(source, str(dialect), ("1",), cells).sample()
    named = guess_header(sample, known) if has_header is None else has_header
    columns = header_names(sample[0] if named else [""] * len(sample[0]), source)
    return TableFile(
        source,
        f"{dialect}, {'names in the first line' if named else 'no header'}",
        columns,
        partial(scan_delimited, source, dialect, columns, has_header=named),
        named,
    )


def _keyed(source: Source, writing: str, scan: Callable[[], Iterator[Scanned]]) -> TableFile:
    """Take the keys of the first rows as columns, in order of appearance."""
    table = TableFile(source, writing, (), scan)
    keys = chain.from_iterable(table.sample())
    return TableFile(source, writing, tuple(dict.fromkeys(keys)), scan)


def _parquet(source: Source) -> TableFile:
    names = tuple(next(read_parquet(source, ""), {}))
    columns = tuple(name for name in names if "." not in name)
    return TableFile(source, "parquet", columns, partial(scan_columns, source, columns))
