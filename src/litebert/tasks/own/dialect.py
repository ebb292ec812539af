"""Guess how a delimited file is written: its delimiter, its quotes, whether it has a header.

The suffix decides only which dialects are preferred: each one is tried on the first lines, and the
one with which most lines have as many cells as the first is taken.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from statistics import fmean

from litebert.reading.tables import NO_DELIMITER, Dialect, Quoting
from litebert.tasks.own.roles import KNOWN_NAMES, normal
from litebert.tasks.own.values import number_of

_NO_FIT = (False, 0.0)
_DOUBLED = re.compile(r'(?:^|\t)"(?:[^"\t]|"")*""')


def guess_dialect(lines: Sequence[str], *, kind: str, known: Collection[str] = ()) -> Dialect:
    """Choose the dialect that fits the first lines best; they have no line ends.

    `known` are names that a header is likely to have. If no dialect gives two cells, each line is
    one cell.

    >>> guess_dialect(['text;stars', '"good; really";5'], kind=".csv")
    Dialect(delimiter=';', quoting='doubled')
    """
    names = KNOWN_NAMES | set(map(normal, known))
    candidates = _candidates(lines, kind)
    fits = [_fit(dialect, lines, names) for dialect in candidates]
    best = max(fits)
    return candidates[fits.index(best)] if best > _NO_FIT else _one_cell(lines)


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
    columns = [[row[index].strip() for row in rest if index < len(row)] for index in range(len(first))]
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
    """List the dialects, preferred first: with tabs, quotes are rarely special."""
    candidates: list[Dialect] = []
    for delimiter in "\t,;|" if kind == ".tsv" else ",;\t|":
        has_quotes = delimiter != "\t" or _has_quoted_cells(lines)
        quotings: tuple[Quoting, ...] = ("doubled", "escaped", "none") if has_quotes else ("none", "doubled", "escaped")
        candidates += [Dialect(delimiter, quoting) for quoting in quotings]
    return candidates


def _has_quoted_cells(lines: Sequence[str]) -> bool:
    """Whether quotes are special: around the first name, or doubled inside a quoted cell."""
    return lines[0].startswith('"') or any(map(_DOUBLED.search, lines))


def _fit(dialect: Dialect, lines: Sequence[str], names: Collection[str]) -> tuple[bool, float]:
    """Return whether the first row has a known name, and the share of lines of its width."""
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
    quoted = Dialect(NO_DELIMITER, "doubled")
    num_read = sum(size for _, size in quoted.sized(lines))
    return quoted if num_read == len(lines) else Dialect(NO_DELIMITER, "none")


def _is_repeated(cell: str, column: Sequence[str]) -> bool:
    """Whether the cell is one of the few values of its column, so that it is no name."""
    return cell in column and len(set(column)) <= max(2, len(column) // 2)


def _stands_out(cell: str, column: Sequence[str]) -> bool:
    """Whether a cell differs from its column: others are numbers, or few repeated values."""
    filled = [value for value in column if value]
    if not filled:
        return False
    if all(number_of(value) is not None for value in filled):
        return True
    return len(filled) >= 4 and len(set(filled)) <= len(filled) // 2 and cell not in filled


def _reads_as_names(columns: Sequence[tuple[str, Sequence[str]]]) -> bool:
    """Whether all cells are distinct short words, and one has far longer cells below it."""
    looks_like_name = re.compile(r"[\w .()/#-]{1,30}")
    cells = [cell for cell, _ in columns]
    if len(set(cells)) < len(cells) or not all(map(looks_like_name.fullmatch, cells)):
        return False
    return any(column and fmean(map(len, column)) > 3 * len(cell) for cell, column in columns)
