"""Tables of results: the same numbers in the terminal, as JSON, CSV or Markdown, and as data frames."""

from __future__ import annotations

import csv
import io
import json
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

LONGEST_VALUE = 300  # characters of a setting


@dataclass(frozen=True)
class Table:
    """Rows under headings; numbers are already rounded, and unknown values are None.

    A command that prints a table writes its notes on stderr, and ends with its exit code.

    >>> print(Table(("run", "f1"), (("one", 0.5), ("two", None))))
    run      f1
    one  0.5000
    two       -
    >>> print(Table(("run", "f1"), (("a|b", 0.5),)).as_markdown())
    | run | f1 |
    |:--|--:|
    | a\\|b | 0.5000 |
    """

    headings: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    title: str = ""
    decimals: int = 4
    notes: tuple[str, ...] = ()
    exit_code: int = 0
    formats: ClassVar = ("json", "csv", "markdown")

    def __str__(self) -> str:
        lines = [self.headings, *self._words()]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        sides = [
            f"{'>' if is_number else '<'}{width}" for is_number, width in zip(self._numeric(), widths, strict=True)
        ]
        text = ["  ".join(map(format, line, sides)).rstrip() for line in lines]
        return "\n".join([self.title, *text] if self.title else text)

    def as_markdown(self) -> str:
        rules = ("--:" if is_number else ":--" for is_number in self._numeric())
        cells = [[" ".join(text.replace("|", "\\|").split()) for text in row] for row in self._words()]
        lines = [f"| {' | '.join(row)} |" for row in (self.headings, *cells)]
        lines.insert(1, f"|{'|'.join(rules)}|")
        return "\n".join([f"**{self.title}**", "", *lines] if self.title else lines)

    def as_csv(self) -> str:
        """Return CSV with a line of headings; unknown values are empty."""
        buffer = io.StringIO()
        writer = csv.writer(buffer, lineterminator="\n")
        writer.writerow(self.headings)
        writer.writerows([word(cell) if isinstance(cell, bool) else cell for cell in row] for row in self.rows)
        return buffer.getvalue().rstrip("\n")

    def as_json(self) -> list[dict[str, Cell]]:
        return [dict(zip(self.headings, row, strict=True)) for row in self.rows]

    def _words(self) -> list[list[str]]:
        return [[word(cell, decimals=self.decimals) for cell in row] for row in self.rows]

    def _numeric(self) -> list[bool]:
        """Tell which columns have numbers alone, and stand to the right."""
        columns = ([row[at] for row in self.rows if row[at] is not None] for at in range(len(self.headings)))
        return [
            bool(column) and all(type(cell) is not bool and not isinstance(cell, str) for cell in column)
            for column in columns
        ]


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


def written(value: Json) -> str:
    """Return a setting as written in a recipe; a long one is truncated.

    >>> written(20_000), written(1e-12), written("lamb"), written(True), written(None)
    ('20000', '1e-12', 'lamb', 'true', 'unset')
    """
    if value is None:
        return "unset"
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= LONGEST_VALUE else f"{text[:LONGEST_VALUE]}…"


def frame(rows: Sequence[TableRow]) -> Frame:
    """Return rows as a data frame; its columns are all their names, in order of appearance.

    >>> frame([{"step": 1, "loss": 2.0}, {"step": 2, "accuracy": 0.5}]).shape
    (2, 3)
    """
    if find_spec("pandas") is not None:
        from pandas import DataFrame

        return DataFrame(list(rows))
    names = tuple(dict.fromkeys(name for row in rows for name in row))

    def cell(value: Json) -> Cell:
        return value if value is None or isinstance(value, str | int | float | bool) else str(value)

    return Table(names, tuple(tuple(cell(row.get(name)) for name in names) for row in rows))
