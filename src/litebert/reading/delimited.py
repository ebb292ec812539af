"""Read the rows of a .csv or .tsv file; a row that does not fit the header is an error."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Literal, Protocol

from litebert.errors import LitebertError
from litebert.reading.lines import read_rows
from litebert.reading.rows import Row, RowPlace, Scanned
from litebert.reading.source import Source

SAMPLE_LINES, SAMPLE_CHARACTERS = 1_000, 1 << 20
MAX_CELL = 1 << 24
"""The most characters in a cell; csv's default limit is far too low for a long document."""
NO_DELIMITER = "\x1f"
_DELIMITERS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars", NO_DELIMITER: "nothing"}
Quoting = Literal["none", "doubled", "escaped"]


class CsvReader(Protocol):
    """The part of csv.reader that we use."""

    line_num: int

    def __iter__(self) -> Iterator[list[str]]: ...
    def __next__(self) -> list[str]: ...


@dataclass(frozen=True)
class Dialect:
    """The delimiter of cells, and how a cell that contains it is quoted."""

    delimiter: str
    quoting: Quoting

    def read(self, lines: Iterable[str]) -> CsvReader:
        """Read lines, which have their line ends, as cells; invalid ones raise csv.Error."""
        csv.field_size_limit(MAX_CELL)  # a global setting, always set to the same value
        return csv.reader(
            lines,
            delimiter=self.delimiter,
            quoting=csv.QUOTE_NONE if self.quoting == "none" else csv.QUOTE_MINIMAL,
            doublequote=self.quoting != "escaped",
            escapechar="\\" if self.quoting == "escaped" else None,
            skipinitialspace=self.quoting != "none" and self.delimiter != "\t",
            strict=True,
        )

    def sample(self, lines: Sequence[str]) -> list[list[str]]:
        """Read some lines without their ends; invalid rows are skipped."""
        return [cells for cells, _ in self.sized(lines) if cells]

    def sized(self, lines: Sequence[str]) -> Iterator[tuple[list[str], int]]:
        """Yield the valid rows, each with the number of its lines."""
        reader = self.read(f"{line}\n" for line in lines)
        while True:
            before = reader.line_num
            try:
                yield next(reader), reader.line_num - before
            except csv.Error:
                continue
            except StopIteration:
                return

    def __str__(self) -> str:
        quotes = "" if self.quoting != "none" else ", quotes are literal"
        return f"{_DELIMITERS[self.delimiter]} between cells{quotes}"


def first_lines(source: Source) -> list[str]:
    """Return the first lines without their ends, to guess the dialect from."""
    lines, size = [], 0
    for _, line in islice(read_rows(source), SAMPLE_LINES):
        lines.append(line)
        size += len(line)
        if size > SAMPLE_CHARACTERS:
            break
    return lines


def header_names(cells: Sequence[str], source: Source) -> tuple[str, ...]:
    """Return the names in a header; a column without a name is named by its number.

    Raises:
        LitebertError: LB-842, two columns have the same name.
    """
    names = tuple(cell.strip() or str(place) for place, cell in enumerate(cells, 1))
    if twice := [name for name in dict.fromkeys(names) if names.count(name) > 1]:
        raise LitebertError(
            "LB-842",
            f"{source.name}, line 1: two columns have the same name",
            received=", ".join(twice),
            expected="a name for each column; or, if line 1 is a row: --column header=no",
            next="rename one of them",
        )
    return names


def scan_delimited(source: Source, dialect: Dialect, columns: Sequence[str], *, has_header: bool) -> Iterator[Scanned]:
    """Yield each row after the header, with the line that it begins on."""
    rows = _cells(source, dialect)
    if has_header:
        next(rows, None)
    for number, cells in rows:
        if isinstance(cells, LitebertError):
            yield number, cells
        elif cells and (len(columns) == 1 or any(cells)):
            yield number, _row(cells, columns, source, number)


def _cells(source: Source, dialect: Dialect) -> Iterator[tuple[int, list[str] | LitebertError]]:
    reader = dialect.read(f"{line}\n" for _, line in read_rows(source))
    while True:
        number = reader.line_num + 1
        try:
            yield number, next(reader)
        except csv.Error as error:
            yield number, _not_cells(source, number, error)
        except StopIteration:
            return


def _row(cells: list[str], columns: Sequence[str], source: Source, number: int) -> Row | LitebertError:
    if len(cells) != len(columns):
        return LitebertError(
            "LB-843",
            f"{RowPlace(source, number)}: {len(cells)} cells, not {len(columns)}",
            received=" | ".join(cells),
            expected=f"a cell for each of {', '.join(columns)}",
            next="quote cells that contain the delimiter, or remove this line",
        )
    if "\0" in "".join(cells):
        return LitebertError(
            "LB-844",
            f"{RowPlace(source, number)}: a NUL byte",
            received=" | ".join(cells),
            expected="text; a NUL in every other place means UTF-16",
            next=f"tr -d '\\0' < {source.name} > cleaned{source.kind}",
        )
    return dict(zip(columns, cells, strict=True))


def _not_cells(source: Source, number: int, error: csv.Error) -> LitebertError:
    reason = "a quote is opened and never closed" if "end of data" in str(error) else str(error)
    return LitebertError(
        "LB-845",
        f"{RowPlace(source, number)}: the cells cannot be told apart",
        received=reason,
        expected='quotes around whole cells, and "" for a quote inside',
        next="correct this line, or write the file again as .jsonl",
    )
