"""Rows of a .csv or .tsv file; each row that is not as the header says is told by its line."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from itertools import islice

from litebert.corpus.lines import read_lines
from litebert.corpus.rows import Row
from litebert.corpus.source import Source
from litebert.errors import LitebertError
from litebert.tasks.own.dialect import Dialect
from litebert.tasks.own.source import Scanned, row_place

SAMPLE_LINES, SAMPLE_CHARACTERS = 1_000, 1 << 20


def first_lines(source: Source) -> list[str]:
    """Return the first lines, without their ends: enough to tell how the file is written."""
    lines, size = [], 0
    for _, line in islice(read_lines(source), SAMPLE_LINES):
        lines.append(line)
        size += len(line)
        if size > SAMPLE_CHARACTERS:
            break
    return lines


def header_names(cells: Sequence[str], source: Source) -> tuple[str, ...]:
    """Return the names in a header; a column without one is called by its number.

    Raises:
        LitebertError: LB-842, two columns have one name.
    """
    names = tuple(cell.strip() or str(place) for place, cell in enumerate(cells, 1))
    if twice := [name for name in dict.fromkeys(names) if names.count(name) > 1]:
        raise LitebertError(
            "LB-842",
            f"{source.name}, line 1: two columns have one name",
            received=", ".join(twice),
            expected="a name for each column; or, where line 1 is a row: --column header=no",
            next="rename one of them",
        )
    return names


def scan_delimited(
    source: Source, dialect: Dialect, columns: Sequence[str], *, has_header: bool
) -> Iterator[Scanned]:
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
    reader = dialect.read(f"{line}\n" for _, line in read_lines(source))
    while True:
        number = reader.line_num + 1
        try:
            yield number, next(reader)
        except csv.Error as error:
            yield number, _not_cells(source, number, error)
        except StopIteration:
            return


def _row(
    cells: list[str], columns: Sequence[str], source: Source, number: int
) -> Row | LitebertError:
    if len(cells) != len(columns):
        return LitebertError(
            "LB-843",
            f"{row_place(source, number)}: {len(cells)} cells, not {len(columns)}",
            received=" | ".join(cells),
            expected=f"a cell for each of {', '.join(columns)}",
            next="quote cells that hold what stands between cells, or take this line out",
        )
    if "\0" in "".join(cells):
        return LitebertError(
            "LB-844",
            f"{row_place(source, number)}: a NUL byte",
            received=" | ".join(cells),
            expected="text; NUL on every other place means UTF-16",
            next=f"tr -d '\\0' < {source.name} > cleaned{source.kind}",
        )
    return dict(zip(columns, cells, strict=True))


def _not_cells(source: Source, number: int, error: csv.Error) -> LitebertError:
    reason = "a quote is opened and never closed" if "end of data" in str(error) else str(error)
    return LitebertError(
        "LB-845",
        f"{row_place(source, number)}: the cells cannot be told apart",
        received=reason,
        expected='quotes around whole cells, and "" for a quote inside',
        next="mend this line, or write the file again as .jsonl",
    )
