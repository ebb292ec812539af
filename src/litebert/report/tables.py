"""Tables of results: the same numbers in the terminal, as JSON, CSV or Markdown, and as data frames."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, ClassVar, TypeAlias, Union

from litebert.files import Json

if TYPE_CHECKING:
    from pandas import DataFrame


Cell: TypeAlias = str | int | float | bool | None
TableRow: TypeAlias = Mapping[str, Json]
Frame: TypeAlias = Union["DataFrame", "Table"]
"""A pandas DataFrame if pandas is installed, otherwise our own table."""


@dataclass(frozen=True)
class Table:
    """Rows under headings; numbers are already rounded, and unknown values are None."""

    headings: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    title: str = ""
    decimals: int = 4
    formats: ClassVar = ("json", "csv", "markdown")

    def as_text(self) -> str:
        """Return aligned columns, with numbers to the right.

        >>> print(Table(("run", "f1"), (("one", 0.5), ("two", None))).as_text())
        run      f1
        one  0.5000
        two       -
        """
        cells = [self.headings, *(tuple(map(self._word, row)) for row in self.rows)]
        columns = list(zip(*cells, strict=True))
        widths = [max(map(len, column)) for column in columns]
        numeric = [self._is_numeric(place) for place in range(len(self.headings))]
        lines = [
            "  ".join(
                f"{text:>{width}}" if is_number else f"{text:<{width}}"
                for text, width, is_number in zip(row, widths, numeric, strict=True)
            ).rstrip()
            for row in cells
        ]
        return "\n".join([self.title, *lines] if self.title else lines)

    def as_markdown(self) -> str:
        """Return a Markdown table.

        >>> print(Table(("run", "f1"), (("a|b", 0.5),)).as_markdown())
        | run | f1 |
        |:--|--:|
        | a\\|b | 0.5000 |
        """
        rules = ("--:" if self._is_numeric(at) else ":--" for at in range(len(self.headings)))

        def escape(cell: Cell) -> str:
            return " ".join(self._word(cell).replace("|", "\\|").split())

        lines = [
            f"| {' | '.join(self.headings)} |",
            f"|{'|'.join(rules)}|",
            *(f"| {' | '.join(map(escape, row))} |" for row in self.rows),
        ]
        return "\n".join([f"**{self.title}**", "", *lines] if self.title else lines)

    def as_csv(self) -> str:
        """Return CSV with a line of headings; unknown values are empty."""
        buffer = io.StringIO()
        writer = csv.writer(buffer, lineterminator="\n")
        writer.writerow(self.headings)
        writer.writerows(
            ["" if cell is None else word(cell) if isinstance(cell, bool) else cell for cell in row]
            for row in self.rows
        )
        return buffer.getvalue().rstrip("\n")

    def __str__(self) -> str:
        """Return aligned columns."""
        return self.as_text()

    def as_json(self) -> list[dict[str, Cell]]:
        """Return each row as a dictionary by heading, for JSON."""
        return [dict(zip(self.headings, row, strict=True)) for row in self.rows]

    def _word(self, cell: Cell) -> str:
        return word(cell, decimals=self.decimals)

    def _is_numeric(self, place: int) -> bool:
        column: Sequence[Cell] = [row[place] for row in self.rows if row[place] is not None]
        numbers = [isinstance(c, int | float) and not isinstance(c, bool) for c in column]
        return bool(numbers) and all(numbers)


def word(cell: Cell, *, decimals: int = 4) -> str:
    """Return a value as text; measures have decimals and counts none."""
    if cell is None:
        return "-"
    if isinstance(cell, bool):
        return "yes" if cell else "no"
    return f"{cell:.{decimals}f}" if isinstance(cell, float) else str(cell)


def number(value: float) -> str:
    """Return a measure as text; a count has no decimals.

    >>> number(0.68382), number(10570.0), number(float("nan"))
    ('0.6838', '10,570', 'not finite')
    """
    if not math.isfinite(value):
        return "not finite"
    return f"{value:,.0f}" if abs(value) > 100 and value.is_integer() else f"{value:.4f}"


def frame(rows: Sequence[TableRow]) -> Frame:
    """Return rows as a data frame; its columns are all their names, in order of appearance.

    >>> frame([{"step": 1, "loss": 2.0}, {"step": 2, "accuracy": 0.5}]).shape
    (2, 3)
    """
    if find_spec("pandas") is None:
        return table(rows)
    from pandas import DataFrame

    return DataFrame(list(rows))


def table(rows: Sequence[TableRow]) -> Table:
    """Return rows as our own table; a value that a row lacks is None.

    >>> print(table([{"step": 1, "loss": 2.0}, {"step": 2}]).as_text())
    step    loss
       1  2.0000
       2       -
    """
    names = tuple(dict.fromkeys(name for row in rows for name in row))

    def cell(value: Json) -> Cell:
        return value if value is None or isinstance(value, str | int | float | bool) else str(value)

    return Table(names, tuple(tuple(cell(row.get(name)) for name in names) for row in rows))
