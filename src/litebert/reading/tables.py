"""Rows of files: delimited (.csv, .tsv) and JSON.

A `scan_*` function yields each row with its number: a mapping of columns to values, or
the error for a row that is not valid, so that callers decide whether one bad row makes
a file unusable.
"""

import csv
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from shlex import quote
from typing import Any, Literal, NamedTuple, TypeAlias

from litebert.errors import DamagedError, LitebertError
from litebert.files import parse_json
from litebert.reading.lines import MAX_JSON_BYTES, read_lines
from litebert.reading.objects import columns_of, is_rejected, rows_in
from litebert.reading.source import Source

Row: TypeAlias = Mapping[str, object]
Scanned: TypeAlias = tuple[int, Row | LitebertError]
"""The number of a row (that of its first line), and the row or its error."""
Quoting = Literal["none", "doubled", "escaped"]

# the most characters in a cell; csv's default limit is far too low for a long document
MAX_CELL = 1 << 24
NO_DELIMITER = "\x1f"
_DELIMITERS = {
    ",": "commas",
    ";": "semicolons",
    "\t": "tabs",
    "|": "bars",
    NO_DELIMITER: "nothing",
}
_COMMA = re.compile(r"^(\s*[+-]?\d+),(\d+\s*)$")


# ---- delimited files -----------------------------------------------------------------


class ParsedRow(NamedTuple):
    """A row of a delimited file."""

    first_line: int  # its number, from 1
    num_lines: int
    cells: list[str] | csv.Error  # none for a blank line


@dataclass(frozen=True)
class Dialect:
    """The delimiter of cells, and how a cell that contains it is quoted."""

    delimiter: str
    quoting: Quoting = "none"
    # the columns of numbers with decimal commas, which are read as points
    decimals: tuple[int, ...] = ()
    num_skipped: int = 0  # lines before the first row, such as Excel's sep=;

    def rows(self, lines: Iterable[str]) -> Iterator["ParsedRow"]:
        """Parse lines without line ends."""
        if self.delimiter == "\t" and self.quoting == "none":
            yield from self._tabbed_rows(lines)
            return
        reader = self._reader(lines)
        while True:
            before = reader.line_num
            try:
                cells: list[str] | csv.Error = self._with_points(next(reader))
            except StopIteration:
                return
            except csv.Error as error:
                cells = error
            yield ParsedRow(before + 1, reader.line_num - before, cells)

    def _tabbed_rows(self, lines: Iterable[str]) -> Iterator["ParsedRow"]:
        """Split lines at tabs, as in GLUE; csv refuses a carriage return in a cell."""
        for number, line in enumerate(lines, 1):
            cells = line.split("\t") if line else []
            yield ParsedRow(number, 1, self._with_points(cells))

    def _reader(self, lines: Iterable[str]) -> Any:
        """Return a reader of the csv module for this dialect."""
        csv.field_size_limit(MAX_CELL)  # a global setting, always set to the same value
        has_quotes = self.quoting != "none"
        is_escaped = self.quoting == "escaped"
        quoting: Literal[0, 3] = csv.QUOTE_MINIMAL if has_quotes else csv.QUOTE_NONE
        escape = "\\" if is_escaped else None
        return csv.reader(
            (f"{line}\n" for line in lines),
            delimiter=self.delimiter,
            quoting=quoting,
            doublequote=not is_escaped,
            escapechar=escape,
            # a quote may follow a space, as in: 1, "so good"
            skipinitialspace=has_quotes and self.delimiter != "\t",
            strict=True,
        )

    def _with_points(self, cells: list[str]) -> list[str]:
        if not self.decimals:
            return cells
        with_points = list(cells)
        for column in self.decimals:
            if column < len(cells):  # a row may be short
                with_points[column] = _COMMA.sub(r"\1.\2", cells[column])
        return with_points

    def __str__(self) -> str:
        quotes = "" if self.quoting != "none" else ", quotes are literal"
        decimals = ", decimal commas" if self.decimals else ""
        mark = _DELIMITERS.get(self.delimiter, f"{self.delimiter!r}")
        return f"{mark} between cells{quotes}{decimals}"


def scan_delimited(
    source: Source, dialect: Dialect, columns: Sequence[str], *, num_headings: int
) -> Iterator[Scanned]:
    """Yield the rows below the headings, each with the number of its first line.

    Cells for which the header has no name may be missing, and a row may end with empty
    cells too many.
    """
    num_named = _num_named(columns) if num_headings else len(columns)
    lines = islice(read_lines(source), dialect.num_skipped, None)
    rows = dialect.rows(line for _, line in lines)
    for place, _, parsed in islice(rows, num_headings, None):
        number = place + dialect.num_skipped
        if isinstance(parsed, csv.Error):
            yield number, _no_cells(source.place(number), parsed)
            continue
        has_content = any(parsed) or len(columns) == 1
        if not parsed or not has_content:
            continue
        cells = parsed
        if len(cells) >= num_named and not any(cells[len(columns) :]):
            num_lacking = max(0, len(columns) - len(cells))
            cells = cells[: len(columns)] + [""] * num_lacking
        if len(cells) != len(columns):
            yield number, _wrong_width(source.place(number), cells, columns)
        elif any("\0" in cell for cell in cells):
            yield number, _has_nul(source, number, cells)
        else:
            yield number, dict(zip(columns, cells, strict=True))


def _num_named(columns: Sequence[str]) -> int:
    """Return how many columns there are up to the last with a name; one without a name
    is called by its number.
    """
    num_named = len(columns)
    while num_named and columns[num_named - 1] == str(num_named):
        num_named -= 1
    return num_named


def _no_cells(place: str, error: csv.Error) -> LitebertError:
    reason = str(error)
    advice = "correct this line, or write .jsonl"
    if "end of data" in reason:
        reason = "a quote is opened and never closed"
    elif "new-line" in reason:
        reason = "a carriage return inside of a cell, or instead of line feeds"
        advice = "save it with the line ends of Unix or Windows, or as .xlsx"
    return LitebertError(
        "LB-845",
        f"{place}: the cells cannot be separated",
        received=reason,
        next=advice,
    )


def _wrong_width(
    place: str, cells: Sequence[str], columns: Sequence[str]
) -> LitebertError:
    return LitebertError(
        "LB-843",
        f"{place}: expected {len(columns)} columns, found {len(cells)}",
        received=" | ".join(cells),
        expected=f"a cell for each of {', '.join(columns)}",
        next="quote cells that contain the delimiter",
    )


def _has_nul(source: Source, number: int, cells: Sequence[str]) -> LitebertError:
    return LitebertError(
        "LB-844",
        f"{source.place(number)}: a NUL byte",
        received=" | ".join(cells),
        expected="text; a NUL in every other place means UTF-16",
        next=f"tr -d '\\0' < {quote(source.name)} > cleaned{source.kind}",
    )


# ---- JSON ----------------------------------------------------------------------------


def _no_json(text: str, place: str, error: ValueError) -> DamagedError:
    """Return the error for a text that is not JSON; the parser's error is its cause."""
    damaged = DamagedError(
        "LB-312",
        f"{place}: not JSON",
        received=f"{error}: {text[:80]}",
        expected="a complete object per line (.jsonl) or a list (.json), without NaN",
        next="write the file again with a JSON library",
    )
    damaged.__cause__ = error
    return damaged


def _no_object(place: str, value: object) -> LitebertError:
    return LitebertError(
        "LB-848",
        f"{place}: not an object with a value for each column",
        received=f"{type(value).__name__}: {value}"[:120],
        expected='objects such as {"text": "…", "label": "…"}: a list of them (.json),'
        " or one per line (.jsonl)",
        next="write the file again",
    )


def scan_json_lines(source: Source) -> Iterator[Scanned]:
    """Yield the object on each line that is not blank."""
    for number, line in read_lines(source):
        if not line or line.isspace():
            continue
        try:
            row = parse_json(line, distinct_keys=True)
        except ValueError as error:
            yield number, _no_json(line, source.place(number), error)
            continue
        yield from _object_or_error(source, number, row)


def read_json(source: Source) -> object:
    """Read a whole file as one value, without NaN and duplicate keys."""
    lines = []
    size = 0
    for _, line in read_lines(source):
        lines.append(line)
        size += len(line) + 1
        if size > MAX_JSON_BYTES:
            raise LitebertError(
                "LB-846",
                f"{source.name} is too long to be read into memory",
                received=f"over {MAX_JSON_BYTES:,} characters",
                expected="an object per line (.jsonl)",
                next=f"jq -c '.[]' {quote(source.name)} > rows.jsonl",
            )
    text = "\n".join(lines)
    try:
        return parse_json(text, distinct_keys=True)
    except ValueError as error:
        raise _no_json(text, source.name, error) from error


def scan_json(source: Source) -> Iterator[Scanned]:
    """Yield the objects of a list, numbered from 1; in SQuAD's layout, the questions
    with their contexts.
    """
    value = read_json(source)
    rows = rows_in(value)
    if rows is None:
        raise _no_object(source.name, value)
    for number, row in enumerate(rows, 1):
        yield from _object_or_error(source, number, row)


def _object_or_error(source: Source, number: int, value: Any) -> Iterator[Scanned]:
    """Yield a value as a row, or its error if it is no object; yield nothing if an
    annotator has rejected it.
    """
    row = columns_of(value)
    if not isinstance(row, dict):
        yield number, _no_object(source.place(number), row)
    elif not is_rejected(row):
        yield number, row
