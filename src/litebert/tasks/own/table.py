"""Open a table of any kind: how it is written, its columns, and its rows one by one, in bounded memory."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from statistics import fmean

from litebert.errors import LitebertError
from litebert.reading.source import DELIMITED, JSON_LINES, TAGGED, Source, find_table, no_content
from litebert.reading.tables import (
    NO_DELIMITER,
    Dialect,
    Quoting,
    Row,
    Scanned,
    first_lines,
    header_names,
    read_parquet,
    scan_delimited,
    scan_json,
    scan_json_lines,
    scan_tagged,
)
from litebert.tasks.own.columns import KNOWN_NAMES, normal, number_of

SAMPLE_ROWS = 1_000
"""Rows from which the columns of a table and their contents are guessed."""
_DOUBLED = re.compile(r'(?:^|\t)"(?:[^"\t]|"")*""')
_NAME = re.compile(r"[\w .()/#-]{1,30}")


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
        """Yield each row with its number; a row that is not valid is an error."""
        for number, row in self.scan():
            if isinstance(row, LitebertError):
                raise row
            yield number, row

    def sample(self) -> list[Row]:
        """Return the valid ones of the first rows; if none is, their first error."""
        scanned = [row for _, row in islice(self.scan(), SAMPLE_ROWS)]
        good = [row for row in scanned if not isinstance(row, LitebertError)]
        errors = [row for row in scanned if isinstance(row, LitebertError)]
        if not good:
            raise errors[0] if errors else no_content(self.source.name, "rows")
        return good

    def place(self, number: int) -> str:
        """Name the place of a row: the file, and the line, row or item."""
        return self.source.place(number)


def open_table(path: Path, *, has_header: bool | None = None, known: Collection[str] = ()) -> TableFile:
    """Find out the format of a file and its columns.

    `has_header` says whether a .csv or .tsv file names its columns in the first line (None: guess); without a header
    they are called 1, 2, 3, … `known` are names that a header is likely to have.
    """
    source = find_table(path)
    if source.kind in DELIMITED:
        lines = first_lines(source)
        if not any(lines):
            raise no_content(source.name, "rows")
        dialect = guess_dialect(lines, kind=source.kind, known=known)
        sample = [cells for cells, _ in dialect.sized(lines) if cells]
        if not sample:  # raises the error of the first row
            cells = partial(scan_delimited, source, dialect, ("1",), has_header=False)
            TableFile(source, str(dialect), ("1",), cells).sample()
        named = guess_header(sample, known) if has_header is None else has_header
        columns = header_names(sample[0] if named else [""] * len(sample[0]), source)
        writing = f"{dialect}, {'names in the first line' if named else 'no header'}"
        scan = partial(scan_delimited, source, dialect, columns, has_header=named)
        return TableFile(source, writing, columns, scan, named)
    if source.kind == ".parquet":
        columns = tuple(next(read_parquet(source, ()), {}))
        return TableFile(source, "parquet", columns, lambda: enumerate(read_parquet(source, columns), 1))
    if source.kind in JSON_LINES:
        table = TableFile(source, "an object per line", (), partial(scan_json_lines, source))
    elif source.kind in TAGGED:
        table = TableFile(source, "a word per line", (), partial(scan_tagged, source))
    else:
        table = TableFile(source, "a list of objects", (), partial(scan_json, source))
    columns = tuple(dict.fromkeys(key for row in table.sample() for key in row))  # in order of appearance
    return TableFile(source, table.writing, columns, table.scan)


# How a delimited file is written: its delimiter, its quotes, whether it has a header
#
# The sniffer of the csv module reads no header, and takes letters for delimiters where texts are long.


def guess_dialect(lines: Sequence[str], *, kind: str, known: Collection[str] = ()) -> Dialect:
    """Choose the dialect that fits the first lines best; they have no line ends.

    The suffix decides only which dialects are preferred: each one is tried, and the one with which most lines have as
    many cells as the first is taken. If none gives two cells, each line is one cell. `known` are names that a header is
    likely to have.

    >>> guess_dialect(['text;stars', '"good; really";5'], kind=".csv")
    Dialect(delimiter=';', quoting='doubled')
    """
    names = KNOWN_NAMES | set(map(normal, known))
    # With tabs, quotes are rarely special: only if they stand around the first name, or doubled in a quoted cell.
    has_quoted_cells = lines[0].startswith('"') or any(map(_DOUBLED.search, lines))
    best, best_fit = None, (False, 0.0)
    for delimiter in "\t,;|" if kind == ".tsv" else ",;\t|":
        quotings: tuple[Quoting, ...] = ("doubled", "escaped", "none")
        if delimiter == "\t" and not has_quoted_cells:
            quotings = ("none", "doubled", "escaped")
        for dialect in (Dialect(delimiter, quoting) for quoting in quotings):
            # whether the first row has a known name, and the share of lines of its width
            first: list[str] = []
            num_fitting = 0
            for cells, size in dialect.sized(lines):
                first = first or cells
                if len(cells) in (0, len(first)):
                    num_fitting += size
            fit = (any(normal(cell) in names for cell in first), num_fitting / len(lines))
            if len(first) > 1 and fit > best_fit:
                best, best_fit = dialect, fit
    if best is not None:
        return best
    quoted = Dialect(NO_DELIMITER, "doubled")
    num_read = sum(size for _, size in quoted.sized(lines))
    return quoted if num_read == len(lines) else Dialect(NO_DELIMITER, "none")


def guess_header(rows: Sequence[Sequence[str]], known: Collection[str] = ()) -> bool:
    """Tell whether the first row names the columns.

    >>> guess_header([["text", "stars"], ["good", "5"]])
    True
    >>> guess_header([["good", "5"], ["bad", "1"], ["fine", "5"]])
    False
    """
    first, rest = [cell.strip() for cell in rows[0]], rows[1:]
    names = KNOWN_NAMES | set(map(normal, known))
    num_known = sum(normal(cell) in names for cell in first)
    below = [[row[index].strip() for row in rest if index < len(row)] for index in range(len(first))]
    columns = list(zip(first, below, strict=True))
    if num_known > 1 or set(known) & set(first):
        return True
    # One of the few values of its column is no name.
    if any(cell in column and len(set(column)) <= max(2, len(column) // 2) for cell, column in columns):
        return False
    if num_known:
        return True
    if any(number_of(cell) is not None for cell in first):
        return False
    # A cell differs from its column: the others are numbers, or few repeated values.
    for cell, column in columns:
        filled = [value for value in column if value]
        are_few = len(filled) >= 4 and len(set(filled)) <= len(filled) // 2 and cell not in filled
        if are_few or (filled and all(number_of(value) is not None for value in filled)):
            return True
    # Distinct short words, and one of them has far longer cells below it
    are_names = len(set(first)) == len(first) and all(map(_NAME.fullmatch, first))
    return are_names and any(column and fmean(map(len, column)) > 3 * len(cell) for cell, column in columns)
