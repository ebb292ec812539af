"""A table of results: written for the terminal, as JSON, CSV or Markdown, with the same numbers."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

Cell: TypeAlias = str | int | float | bool | None


@dataclass(frozen=True)
class Table:
    """Rows under headings; numbers are rounded already, what is not known is None."""

    headings: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    title: str = ""
    decimals: int = 4

    def as_text(self) -> str:
        """Write aligned columns, numbers to the right.

        >>> print(Table(("run", "f1"), (("one", 0.5), ("two", None))).as_text())
        run      f1
        one  0.5000
        two       -
        """
        cells = [self.headings, *(tuple(map(self._word, row)) for row in self.rows)]
        columns = list(zip(*cells, strict=True))
        widths = [max(map(len, column)) for column in columns]
        numeric = [self._is_numeric(place) for place in range(len(self.headings))]
        lines = ["  ".join(map(_aligned, row, widths, numeric)).rstrip() for row in cells]
        return "\n".join([self.title, *lines] if self.title else lines)

    def as_markdown(self) -> str:
        """Write a table of Markdown.

        >>> print(Table(("run", "f1"), (("a|b", 0.5),)).as_markdown())
        | run | f1 |
        |:--|--:|
        | a\\|b | 0.5000 |
        """
        rules = ("--:" if self._is_numeric(at) else ":--" for at in range(len(self.headings)))
        lines = [
            f"| {' | '.join(self.headings)} |",
            f"|{'|'.join(rules)}|",
            *(
                f"| {' | '.join(_markdown(self._word(cell)) for cell in row)} |"
                for row in self.rows
            ),
        ]
        return "\n".join([f"**{self.title}**", "", *lines] if self.title else lines)

    def as_csv(self) -> str:
        """Write a line a row, headings first; what is not known is empty."""
        buffer = io.StringIO()
        writer = csv.writer(buffer, lineterminator="\n")
        writer.writerow(self.headings)
        writer.writerows(map(_csv_cell, row) for row in self.rows)
        return buffer.getvalue().rstrip("\n")

    def as_records(self) -> list[dict[str, Cell]]:
        """Return each row by heading, for JSON."""
        return [dict(zip(self.headings, row, strict=True)) for row in self.rows]

    def _word(self, cell: Cell) -> str:
        return word(cell, decimals=self.decimals)

    def _is_numeric(self, place: int) -> bool:
        column: Sequence[Cell] = [row[place] for row in self.rows if row[place] is not None]
        numbers = [isinstance(c, int | float) and not isinstance(c, bool) for c in column]
        return bool(numbers) and all(numbers)


def _csv_cell(cell: Cell) -> str | int | float:
    if cell is None:
        return ""
    return word(cell) if isinstance(cell, bool) else cell


def word(cell: Cell, *, decimals: int = 4) -> str:
    """Write a value for people; measures have decimals, counts none."""
    if cell is None:
        return "-"
    if isinstance(cell, bool):
        return "yes" if cell else "no"
    return f"{cell:.{decimals}f}" if isinstance(cell, float) else str(cell)


def _markdown(text: str) -> str:
    return " ".join(text.replace("|", "\\|").split())


def _aligned(word: str, width: int, is_number: bool) -> str:
    return f"{word:>{width}}" if is_number else f"{word:<{width}}"
