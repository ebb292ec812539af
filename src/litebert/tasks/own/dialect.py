"""How a text of rows and cells is written: what stands between cells, what quotes mean, a header.

Nothing is assumed of a name but the order of preference: each way of writing is tried on the
first lines, and the one by which most of them have as many cells as the first is taken.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Literal, Protocol

from litebert.tasks.own.roles import KNOWN_NAMES, normal
from litebert.tasks.own.values import number_of

MAX_CELL = 1 << 24
"""Characters in the longest cell; the library's own limit is far below a long document."""
_NAMES = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars", "\x1f": "nothing"}
_NOTHING = "\x1f"
_NO_FIT = (False, 0.0)
_DOUBLED = re.compile(r'(?:^|\t)"(?:[^"\t]|"")*""')
Quoting = Literal["none", "doubled", "escaped"]


class Reader(Protocol):
    """Give what we use of csv.reader."""

    line_num: int

    def __iter__(self) -> Iterator[list[str]]: ...
    def __next__(self) -> list[str]: ...


@dataclass(frozen=True)
class Dialect:
    """What stands between cells, and how a cell that holds it is quoted."""

    delimiter: str
    quoting: Quoting

    def read(self, lines: Iterable[str]) -> Reader:
        """Read lines, given with their ends, as cells; raises csv.Error where they are not."""
        csv.field_size_limit(MAX_CELL)  # a setting of the process: always set to the same
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
        """Read some lines without their ends; rows that cannot be read are left out."""
        return [cells for cells, _ in self.sized(lines) if cells]

    def sized(self, lines: Sequence[str]) -> Iterator[tuple[list[str], int]]:
        """Yield the rows that can be read, each with the number of its lines."""
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
        quotes = "" if self.quoting != "none" else ", quotes mean nothing"
        return f"{_NAMES[self.delimiter]} between cells{quotes}"


def guess_dialect(lines: Sequence[str], *, kind: str, known: Collection[str] = ()) -> Dialect:
    """Choose the way of writing that fits the first lines best (without their ends).

    `known` are names that a header is likely to have. Where no way gives two cells or more, each
    line is one.

    >>> guess_dialect(['text;stars', '"good; really";5'], kind=".csv")
    Dialect(delimiter=';', quoting='doubled')
    """
    names = KNOWN_NAMES | set(map(normal, known))
    candidates = _candidates(lines, kind)
    fits = [_fit(dialect, lines, names) for dialect in candidates]
    best = max(fits)
    return candidates[fits.index(best)] if best > _NO_FIT else _one_cell(lines)


def guess_header(rows: Sequence[Sequence[str]], known: Collection[str] = ()) -> bool:
    """Tell whether the first of some rows names the columns.

    >>> guess_header([["text", "stars"], ["good", "5"]])
    True
    >>> guess_header([["good", "5"], ["bad", "1"], ["fine", "5"]])
    False
    """
    first, rest = [cell.strip() for cell in rows[0]], rows[1:]
    names = KNOWN_NAMES | set(map(normal, known))
    num_known = sum(normal(cell) in names for cell in first)
    columns = [
        [row[index].strip() for row in rest if index < len(row)] for index in range(len(first))
    ]
    if num_known > 1 or set(known) & set(first):
        return True
    if any(_is_repeated(cell, column) for cell, column in zip(first, columns, strict=True)):
        return False
    if num_known:
        return True
    if any(number_of(cell) is not None for cell in first):
        return False
    pairs = list(zip(first, columns, strict=True))
    return any(_stands_out(cell, column) for cell, column in pairs) or _reads_as_names(pairs)


def _candidates(lines: Sequence[str], kind: str) -> list[Dialect]:
    """List the ways of writing, preferred first: quotes rarely mean anything between tabs."""
    candidates: list[Dialect] = []
    for delimiter in "\t,;|" if kind == ".tsv" else ",;\t|":
        has_quotes = delimiter != "\t" or _has_quoted_cells(lines)
        ways: tuple[Quoting, ...] = (
            ("doubled", "escaped", "none") if has_quotes else ("none", "doubled", "escaped")
        )
        candidates += [Dialect(delimiter, way) for way in ways]
    return candidates


def _has_quoted_cells(lines: Sequence[str]) -> bool:
    """Whether quotes are marks: around the first name, or doubled inside a quoted cell."""
    return lines[0].startswith('"') or any(map(_DOUBLED.search, lines))


def _fit(dialect: Dialect, lines: Sequence[str], names: Collection[str]) -> tuple[bool, float]:
    """Return whether the first row has a known name, and the share of lines as wide as it."""
    first: list[str] = []
    num_fitting = 0
    for cells, size in dialect.sized(lines):
        first = first or cells
        if len(cells) in (0, len(first)):
            num_fitting += size
    if len(first) < 2:
        return _NO_FIT
    return any(normal(cell) in names for cell in first), num_fitting / len(lines)


def _one_cell(lines: Sequence[str]) -> Dialect:
    quoted = Dialect(_NOTHING, "doubled")
    num_read = sum(size for _, size in quoted.sized(lines))
    return quoted if num_read == len(lines) else Dialect(_NOTHING, "none")


def _is_repeated(cell: str, column: Sequence[str]) -> bool:
    """Whether the cell is one of the few values that the column has: then it is a value, too."""
    return cell in column and len(set(column)) <= max(2, len(column) // 2)


def _stands_out(cell: str, column: Sequence[str]) -> bool:
    """Whether all others are numbers, or are few values that repeat and this one does not."""
    filled = [value for value in column if value]
    if not filled:
        return False
    if all(number_of(value) is not None for value in filled):
        return True
    return len(filled) >= 4 and len(set(filled)) <= len(filled) // 2 and cell not in filled


def _reads_as_names(columns: Sequence[tuple[str, Sequence[str]]]) -> bool:
    """Whether all cells are short words, and what stands below one of them is far longer."""
    looks_like_name = re.compile(r"[\w .()/#-]{1,30}")
    cells = [cell for cell, _ in columns]
    if len(set(cells)) < len(cells) or not all(map(looks_like_name.fullmatch, cells)):
        return False
    return any(column and fmean(map(len, column)) > 3 * len(cell) for cell, column in columns)
