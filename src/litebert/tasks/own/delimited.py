"""How a delimited file is written: its delimiter, its quotes, its decimal commas, and
whether its first row has the names of the columns.

csv.Sniffer is not enough: it takes letters for delimiters if texts are long.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, count, takewhile, zip_longest
from statistics import fmean
from typing import TypeAlias

from litebert.reading import tables
from litebert.reading.source import Source
from litebert.reading.spreadsheet import Sheet
from litebert.reading.tables import Dialect, Quoting, Scanned
from litebert.tasks.own.cells import MISSING, name_of, number_of, text_of
from litebert.tasks.own.columns import KNOWN_NAMES, NAMES, normalize_name
from litebert.tasks.own.table import SAMPLE_ROWS, TableFile

NumberedCells: TypeAlias = tuple[int, Sequence[object]]
"""The number of a row of a sheet, and its cells."""


def open_delimited(
    source: Source, lines: Sequence[str], has_header: bool | None
) -> TableFile:
    """Determine how a delimited file is written, given its first lines."""
    dialect = guess_dialect(lines, kind=source.kind)
    # if no row is valid, reading it raises the reason
    sample = _rows(dialect, lines) or [[""]]
    headings = Headings.of(sample, has_header)
    scan = partial(
        tables.scan_delimited,
        source,
        dialect,
        headings.columns,
        num_headings=headings.number,
    )
    writing = f"{dialect}, {headings}"
    return TableFile(source, writing, headings.columns, scan, headings.number > 0)


def open_sheet(source: Source, sheet: Sheet, has_header: bool | None) -> TableFile:
    """Return a sheet of a spreadsheet as a table.

    Rows above the header that have one cell only, such as a title, are left out.
    """
    rows = _without_title(sheet.rows)
    sample = [_texts_of(cells) for _, cells in rows[:SAMPLE_ROWS]]
    headings = Headings.of(sample, has_header)
    data = rows[headings.number :]
    writing = f"sheet {sheet.name}, {headings}"
    if sheet.others:
        others = ", ".join(sheet.others)
        writing += f"; not read: {others} (save it as another file)"
    scan = partial(_scan_sheet, data, headings.columns)
    return TableFile(source, writing, headings.columns, scan, headings.number > 0)


def _without_title(rows: Sequence[NumberedCells]) -> Sequence[NumberedCells]:
    """Return the rows from the first with two cells or more; all, if there is none."""
    for place, (_, cells) in enumerate(rows):
        num_filled = sum(cell is not None for cell in cells)
        if num_filled > 1:
            return rows[place:]
    return rows


def _texts_of(cells: Sequence[object]) -> list[str]:
    return [text_of(cell) or "" for cell in cells]


def _scan_sheet(
    rows: Sequence[NumberedCells], columns: Sequence[str]
) -> Iterator[Scanned]:
    for number, cells in rows:
        yield number, dict(zip(columns, cells, strict=False))


def _rows(dialect: Dialect, lines: Sequence[str]) -> list[list[str]]:
    """Return the rows that can be read, without blank ones."""
    rows = list[list[str]]()
    for row in dialect.rows(lines[dialect.num_skipped :]):
        if isinstance(row.cells, list) and row.cells:
            rows.append(row.cells)
    return rows


# ---- the dialect ---------------------------------------------------------------------

# By delimiter, the share of lines that must be as wide as the first, to be sure of it.
# Commas are none: in prose, they divide nothing.
_SURE_SHARES = {"\t": 0.95, ";": 1.0, "|": 1.0}
# that is enough, for any delimiter, if the first line has a usual name
_SHARE_WITH_NAMES = 0.9


def are_delimited(lines: Sequence[str]) -> bool:
    """Return whether lines of any file are rows of cells: between tabs, semicolons or
    bars, or with usual names in the first one.
    """
    dialect = guess_dialect(lines, kind=".txt")
    trial = _Trial.of(dialect, lines[dialect.num_skipped :] or [""])
    if trial.num_cells < 2:
        return False
    if trial.has_known_name and trial.share > _SHARE_WITH_NAMES:
        return True
    sure_share = _SURE_SHARES.get(dialect.delimiter)
    return sure_share is not None and trial.share >= sure_share


_DOUBLED = re.compile(r'(?:^|\t)"(?:[^"\t]|"")*""')
# the line with which Excel is told the delimiter
_DECLARED = re.compile(r'"?sep=(.)"?', re.IGNORECASE)
_QUOTINGS: tuple[Quoting, ...] = ("doubled", "escaped", "none")


@dataclass(frozen=True)
class _Trial:
    """How well a dialect fits the first lines."""

    dialect: Dialect
    num_cells: int  # in the first row
    has_known_name: bool  # in the first row
    share: float  # of the lines, in rows as wide as the first one

    @classmethod
    def of(cls, dialect: Dialect, lines: Sequence[str]) -> "_Trial":
        """Read the lines in a dialect."""
        first = list[str]()
        num_fitting = 0
        for row in dialect.rows(lines):
            if not isinstance(row.cells, list):
                continue
            first = first or row.cells
            if len(row.cells) in (0, len(first)):
                num_fitting += row.num_lines
        names = map(normalize_name, first)
        has_known_name = any(name in KNOWN_NAMES for name in names)
        return cls(dialect, len(first), has_known_name, num_fitting / len(lines))


def guess_dialect(lines: Sequence[str], *, kind: str) -> Dialect:
    """Choose the dialect that best fits the first lines, given without line ends.

    The suffix decides only which dialects are preferred: each one is tried, and of
    those that divide the first row, one that finds a usual name in it wins, then the
    one with which most lines have as many cells as the first. If none divides it, each
    line is one cell.
    """
    num_comments = sum(1 for _ in takewhile(_is_comment, lines))
    body = lines[num_comments:] or [""]
    declared = _DECLARED.fullmatch(body[0].strip())
    if declared:
        dialects = [Dialect(declared[1], quoting) for quoting in _QUOTINGS]
        body = body[1:] or [""]
    else:
        dialects = _likely(body, kind)
    trials = [_Trial.of(dialect, body) for dialect in dialects]
    divided = _best_quoting([trial for trial in trials if trial.num_cells > 1])
    if divided:
        named = [trial for trial in divided if trial.has_known_name]
        trials = named or divided
    elif not declared:
        whole = (Dialect(tables.NO_DELIMITER, "doubled"), Dialect(tables.NO_DELIMITER))
        trials = [_Trial.of(dialect, body) for dialect in whole]
    best = max(trials, key=lambda trial: trial.share).dialect
    return replace(
        best, decimals=tuple(_decimals(best, body)), num_skipped=len(lines) - len(body)
    )


def _is_comment(line: str) -> bool:
    """Return whether a line above a table is a comment: # exported in May."""
    return line.startswith("# ")


def _best_quoting(trials: Sequence[_Trial]) -> list[_Trial]:
    """Return the best trial of each delimiter, the likeliest delimiter first."""
    best = dict[str, _Trial]()
    for trial in trials:
        other = best.setdefault(trial.dialect.delimiter, trial)
        if trial.share > other.share:
            best[trial.dialect.delimiter] = trial
    return list(best.values())


def _likely(lines: Sequence[str], kind: str) -> list[Dialect]:
    """Return the dialects to be tried, the likeliest first."""
    # With tabs, quotes are rarely special: only if they enclose the first name, or are
    # doubled in a quoted cell.
    has_quoted_cells = lines[0].startswith('"') or any(map(_DOUBLED.search, lines))
    has_escapes = any('\\"' in line for line in lines)
    delimiters = ",;\t|" if kind == ".csv" else "\t,;|"
    dialects = list[Dialect]()
    for delimiter in delimiters:
        quotings = _QUOTINGS
        if delimiter == "\t" and not has_quoted_cells:
            quotings = ("none", "doubled", "escaped")
        for quoting in quotings:
            if quoting != "escaped" or has_escapes:
                dialects.append(Dialect(delimiter, quoting))
    return dialects


# a number that is whole or has a decimal comma
_COMMA = re.compile(r"[+-]?\d+(,\d+)?").fullmatch
# of grades and halves of stars
_USUAL_FRACTIONS = {"0", "00", "5", "50", "25", "75"}
# if all are like 12,345, the commas may separate thousands
_THOUSANDS = re.compile(r"[+-]?(\d+|[1-9]\d{0,2},\d{3})").fullmatch


def _decimals(dialect: Dialect, lines: Sequence[str]) -> Iterator[int]:
    """Yield the places of columns that have numbers with decimal commas; ids have none.

    "1,5" may also be two labels: rows often have one, so most cells of numbers have a
    comma or, where commas are no delimiters, only halves and quarters follow it.
    """
    rows = _rows(dialect, lines)
    for place, (name, *column) in enumerate(zip_longest(*rows, fillvalue="")):
        if normalize_name(name) in NAMES["id"]:
            continue
        cells = [cell.strip().lower() for cell in column]
        numbers = [cell for cell in cells if cell not in ("", *MISSING)]
        if not all(map(_COMMA, numbers)) or all(map(_THOUSANDS, numbers)):
            continue
        with_comma = [number for number in numbers if "," in number]
        fractions = {number.partition(",")[2] for number in with_comma}
        are_usual = dialect.delimiter != "," and fractions <= _USUAL_FRACTIONS
        if are_usual or len(with_comma) * 2 > len(numbers):
            yield place


# ---- the header ----------------------------------------------------------------------


@dataclass(frozen=True)
class Headings:
    """The names of the columns, and how many rows at the top have names; in exports of
    surveys, several.
    """

    columns: tuple[str, ...]
    number: int

    @classmethod
    def of(cls, rows: Sequence[Sequence[str]], has_header: bool | None) -> "Headings":
        """Read the headings of a table, given its first rows.

        Without a header, columns are called 1, 2, 3, …, and so is one without a name;
        of columns that are called alike, the second gets a 2.
        """
        number = _count_headings(rows)
        first = rows[0]
        names_first = has_header
        if names_first is None:
            names_first = guess_header([first, *rows[number:]])
        if not names_first:
            return cls(tuple(str(place) for place in range(1, len(first) + 1)), 0)
        columns = list[str]()
        for place, cell in enumerate(first, 1):
            columns.append(_unused_name(name_of(cell) or str(place), columns))
        return cls(tuple(columns), number)

    def __str__(self) -> str:
        if not self.number:
            return "no header"
        if self.number == 1:
            return "names in the first line"
        return f"names in the first of {self.number} rows of headings"


def _unused_name(name: str, others: Sequence[str]) -> str:
    numbered = (f"{name} {number}" for number in count(2))
    return next(free for free in chain([name], numbered) if free not in others)


# what Qualtrics and SurveyMonkey write below the names
_IMPORT_ID = '{"ImportId"'
_KINDS_OF_ANSWER = {"Response", "Open-Ended Response"}


def _count_headings(rows: Sequence[Sequence[str]]) -> int:
    """Return how many rows have headings, if the first has names."""
    for place in (1, 2):
        filled = [cell.strip() for cell in rows[place]] if place < len(rows) else []
        if any(cell.startswith(_IMPORT_ID) for cell in filled):
            return place + 1
    if len(rows) > 1:
        kinds = _KINDS_OF_ANSWER.intersection(rows[1])
        if kinds and not rows[1][0]:
            return 2
    return 1


_NAME = re.compile(r"[\w .()/#-]{1,30}")


def guess_header(rows: Sequence[Sequence[str]]) -> bool:
    """Return whether the first row has the names of the columns; empty cells of it say
    nothing.
    """
    names = [cell.strip() for cell in rows[0] if cell.strip()]
    below = _cells_below(rows)
    num_known = sum(normalize_name(name) in KNOWN_NAMES for name in names)
    if num_known > 1:
        return True
    if any(_is_value(name, cells) for name, cells in below.items()):
        return False
    if num_known:
        return True
    if any(number_of(name) is not None for name in names):
        return False
    if any(_is_heading(name, cells) for name, cells in below.items()):
        return True
    # Distinct short words, and one of them has far longer cells below it
    are_distinct = len(below) == len(names)
    if not are_distinct or not all(map(_NAME.fullmatch, names)):
        return False
    return any(_is_far_shorter(name, cells) for name, cells in below.items())


def _cells_below(rows: Sequence[Sequence[str]]) -> dict[str, list[str]]:
    """Return the cells below each one of the first row, by its text; of equal ones,
    those of the first.
    """
    below = dict[str, list[str]]()
    for place, cell in enumerate(rows[0]):
        name = cell.strip()
        if name and name not in below:
            below[name] = [row[place].strip() for row in rows[1:] if place < len(row)]
    return below


def _is_value(name: str, cells: Sequence[str]) -> bool:
    """Return whether a cell is one of the few values of its column."""
    return name in cells and len(set(cells)) <= max(2, len(cells) // 2)


def _is_heading(name: str, cells: Sequence[str]) -> bool:
    """Return whether a cell differs from the others of its column, which are numbers or
    a few repeated values.
    """
    filled = [cell for cell in cells if cell]
    if not filled:
        return False
    if all(number_of(cell) is not None for cell in filled):
        return True
    are_repeated = len(filled) >= 4 and len(set(filled)) <= len(filled) // 2
    return are_repeated and name not in filled


def _is_far_shorter(name: str, cells: Sequence[str]) -> bool:
    """Return whether a cell is far shorter than the others of its column."""
    return bool(cells) and fmean(map(len, cells)) > 3 * len(name)
