"""Tables: rows under headings, as text for a terminal, JSON, CSV or Markdown.

Every format shows the same numbers: measures are rounded once.
"""

import csv
import io
import json
import math
import shutil
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import ClassVar, TypeAlias

from litebert.files import Json

Cell: TypeAlias = str | int | float | bool | None

LONGEST_VALUE = 300  # characters of a setting that are shown
DECIMALS = 4  # of a measure
NARROWEST = 8
"""Characters that a column of words keeps in a narrow terminal."""


@dataclass(frozen=True)
class Table:
    """Rows under headings; unknown values are None.

    A command that prints a table writes its notes to stderr, and ends with its exit
    code. As text it fits the terminal: long cells continue on the next line, and a
    `digest`, a table of fewer columns, is shown instead if there is one. On a page, the
    first column has the row headings, and `style` is a class in page.css.

    >>> print(Table(("run", "f1"), (("one", 0.5), ("two", None))))
    run      f1
    one  0.5000
    two       -
    >>> print(Table(("run", "f1"), (("a|b", 0.5),)).as_markdown())
    | run | f1 |
    |:--|--:|
    | a\\|b | 0.5000 |
    """

    headings: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    title: str = ""
    style: str = ""
    decimals: int = DECIMALS
    digest: "Table | None" = None
    notes: tuple[str, ...] = ()
    exit_code: int = 0
    formats: ClassVar = ("json", "csv", "markdown")

    def words(self) -> list[list[str]]:
        """Return the rows as text: measures have decimals, counts have none."""
        rows = list[list[str]]()
        for row in self.rows:
            rows.append([format_cell(cell, decimals=self.decimals) for cell in row])
        return rows

    def _is_number(self, column: int) -> bool:
        """Return whether a column has only numbers, which are aligned to the right."""
        kinds = {type(row[column]) for row in self.rows} - {type(None)}
        return bool(kinds) and not kinds & {str, bool}

    def __str__(self) -> str:
        if self.digest is not None:
            return str(self.digest)
        rows = [list(self.headings), *self.words()]
        widths = self._widths(rows, shutil.get_terminal_size().columns)
        are_numbers = [self._is_number(column) for column in range(len(widths))]
        lines = list[str]()
        if self.title:
            lines.append(self.title)
        for row in rows:
            wrapped = map(_wrap, row, widths)  # the lines of each cell
            for cells in zip_longest(*wrapped, fillvalue=""):
                lines.append(_align(cells, widths, are_numbers))
        return "\n".join(lines)

    def _widths(self, rows: Sequence[Sequence[str]], terminal: int) -> list[int]:
        """Return the width of each column. If a line would not fit the terminal,
        columns of words give way, the widest first, unless that is not enough.
        """
        natural = [max(map(len, column)) for column in zip(*rows, strict=True)]
        num_columns = len(natural)
        gaps = 2 * (num_columns - 1)
        wordy = [n for n in range(num_columns) if not self._is_number(n)]
        widths = natural.copy()
        while sum(widths) + gaps > terminal:
            widest = max(wordy, key=widths.__getitem__, default=None)
            if widest is None or widths[widest] <= NARROWEST:
                return natural
            widths[widest] -= 1
        return widths

    def as_markdown(self) -> str:
        """Return a table of Markdown; numbers are aligned to the right."""
        lines = list[str]()
        if self.title:
            lines += [f"**{self.title}**", ""]
        lines.append(_markdown_row(self.headings))
        rule = "|"
        for column in range(len(self.headings)):
            mark = "--:" if self._is_number(column) else ":--"
            rule += f"{mark}|"
        lines.append(rule)
        for row in self.words():
            lines.append(_markdown_row(map(_markdown_cell, row)))
        return "\n".join(lines)

    def as_csv(self) -> str:
        """Return CSV with a header line; unknown values are empty."""
        buffer = io.StringIO()
        writer = csv.writer(buffer, lineterminator="\n")
        writer.writerow(self.headings)
        for row in self.rows:
            writer.writerow(map(_csv_value, row))
        return buffer.getvalue().rstrip("\n")

    def as_json(self) -> list[dict[str, Cell]]:
        return [dict(zip(self.headings, row, strict=True)) for row in self.rows]


def _align(
    cells: Sequence[str], widths: Sequence[int], are_numbers: Sequence[bool]
) -> str:
    """Return a line of a table: words begin, and numbers end, below each other."""
    padded = list[str]()
    for cell, width, is_number in zip(cells, widths, are_numbers, strict=True):
        alignment = ">" if is_number else "<"
        padded.append(f"{cell:{alignment}{width}}")
    return "  ".join(padded).rstrip()


def _wrap(text: str, width: int) -> list[str]:
    return textwrap.wrap(text, width, break_on_hyphens=False) or [""]


def _markdown_row(cells: Iterable[str]) -> str:
    joined = " | ".join(cells)
    return f"| {joined} |"


def _markdown_cell(text: str) -> str:
    """Return a text on one line whose bars do not end the cell."""
    words = text.replace("|", "\\|").split()
    return " ".join(words)


def _csv_value(cell: Cell) -> Cell:
    return format_cell(cell) if isinstance(cell, bool) else cell


def format_cell(cell: Cell, *, decimals: int = DECIMALS) -> str:
    """Return a cell as text; counts have no decimals.

    >>> [format_cell(cell) for cell in (0.68382, 10570.0, 20, float("nan"), None, True)]
    ['0.6838', '10,570', '20', 'not finite', '-', 'yes']
    """
    if cell is None:
        return "-"
    if isinstance(cell, str):
        return cell
    if isinstance(cell, bool):
        return "yes" if cell else "no"
    if not math.isfinite(cell):
        return "not finite"
    is_count = isinstance(cell, int) or (abs(cell) > 100 and cell.is_integer())
    if is_count:
        return f"{cell:,.0f}"
    return f"{cell:,.{decimals}f}"


def format_share(value: float) -> str:
    return f"{value:.1%}" if math.isfinite(value) else "not finite"


def format_value(value: Json) -> str:
    """Return a setting as written in a recipe; a long one is truncated.

    >>> [format_value(value) for value in (20_000, 1e-12, "lamb", True, None)]
    ['20000', '1e-12', 'lamb', 'true', 'unset']
    """
    if value is None:
        return "unset"
    text = str(value)
    if not isinstance(value, str):
        text = json.dumps(value, ensure_ascii=False)
    if len(text) <= LONGEST_VALUE:
        return text
    return f"{text[:LONGEST_VALUE]}…"
