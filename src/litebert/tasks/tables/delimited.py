"""How a delimited file is written: its delimiter, its quotes, its decimal commas, and
whether its first row has the names of the columns.

csv.Sniffer is not enough: it takes letters for delimiters if texts are long.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import dropwhile, zip_longest
from statistics import fmean
from typing import TypeAlias

from litebert.reading import tables
from litebert.reading.spreadsheet import read_sheet
from litebert.reading.tables import Dialect, Quoting, Scanned
from litebert.tasks.tables.cells import MISSING, is_number, name_of, text_of
from litebert.tasks.tables.columns import NAMES, is_usual_name, normalize_name
from litebert.tasks.tables.table import SAMPLE_ROWS, Opening, TableFile

NumberedCells: TypeAlias = tuple[int, Sequence[object]]
"""The number of a row of a sheet, and its cells."""


def open_delimited(opening: Opening, has_header: bool | None) -> TableFile:
    """Determine how a delimited file is written, by its first lines."""
    source = opening.source
    dialect = guess_dialect(opening.lines, kind=source.kind)
    # if no row is valid, reading it raises the reason
    sample = _rows(dialect, opening.lines) or [[""]]
    headings = Headings.of(sample, has_header)
    scan = partial(
        tables.scan_delimited,
        source,
        dialect,
        headings.columns,
        num_headings=headings.number,
    )
    return TableFile(
        source,
        f"{dialect}, {headings}",
        headings.columns,
        scan,
        has_header=headings.number > 0,
        spare=headings.blank_columns(sample),
    )


def open_sheet(opening: Opening, has_header: bool | None) -> TableFile:
    """Return a sheet of a spreadsheet as a table.

    Rows above the header that have one cell only, such as a title, are left out.
    """
    sheet = read_sheet(opening.source)
    rows = _without_title(sheet.rows)
    sample = [_texts_of(cells) for _, cells in rows[:SAMPLE_ROWS]]
    headings = Headings.of(sample, has_header)
    data = rows[headings.number :]
    writing = f"sheet {sheet.name}, {headings}"
    if sheet.others:
        others = ", ".join(sheet.others)
        writing += f"; not read: {others} (to read one of these sheets, save it as a"
        writing += " file of its own)"
    return TableFile(
        opening.source,
        writing,
        headings.columns,
        partial(_scan_sheet, data, headings.columns),
        has_header=headings.number > 0,
        spare=headings.blank_columns(sample),
    )


def _without_title(rows: Sequence[NumberedCells]) -> Sequence[NumberedCells]:
    """Return the rows from the first one with two cells or more; if there is none, all
    rows.
    """
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
# If the first line has a usual name, this share is enough for any delimiter.
_SHARE_WITH_NAMES = 0.9


def are_delimited(lines: Sequence[str]) -> bool:
    """Return whether lines of any file are rows of cells: between tabs, semicolons or
    bars, or with usual names in the first one.
    """
    dialect = guess_dialect(lines, kind=".txt")
    trial = _Trial.of(dialect, lines[dialect.num_skipped :] or [""])
    if trial.num_cells < 2:
        return False
    if trial.has_usual_name and trial.share > _SHARE_WITH_NAMES:
        return True
    sure_share = _SURE_SHARES.get(dialect.delimiter)
    return sure_share is not None and trial.share >= sure_share


_DOUBLED = re.compile(r'(?:^|\t)"(?:[^"\t]|"")*""')
# the line with which Excel is told the delimiter
_DECLARED = re.compile(r'"?sep=(.)"?', re.IGNORECASE)
_QUOTINGS: tuple[Quoting, ...] = ("doubled", "escaped", "none")
# dialects in which each line is one cell
_UNDIVIDED = (Dialect(tables.NO_DELIMITER, "doubled"), Dialect(tables.NO_DELIMITER))


@dataclass(frozen=True)
class _Trial:
    """How well a dialect fits the first lines."""

    dialect: Dialect
    num_cells: int  # in the first row
    has_usual_name: bool  # in the first row
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
        has_usual_name = any(map(is_usual_name, first))
        return cls(dialect, len(first), has_usual_name, num_fitting / len(lines))


def guess_dialect(lines: Sequence[str], *, kind: str) -> Dialect:
    """Choose the dialect that best fits the first lines, given without line ends.

    The suffix decides only which dialects are preferred: each one is tried, and of
    those that divide the first row, one that finds a usual name in it wins, then the
    one with which most lines have as many cells as the first. If none divides it, each
    line is one cell.
    """
    body = list(dropwhile(_is_above_table, lines)) or [""]
    declared = _DECLARED.fullmatch(body[0].strip())
    if declared:
        body = body[1:] or [""]
        trials = _try(_with_each_quoting(declared[1]), body)
    else:
        body = _without_title_lines(body, kind)
        trials = _try(_likely(body, kind), body)
    divided = _best_quoting([trial for trial in trials if trial.num_cells > 1])
    if divided:
        named = [trial for trial in divided if trial.has_usual_name]
        trials = named or divided
    elif not declared:
        trials = _try(_UNDIVIDED, body)

    best = max(trials, key=lambda trial: trial.share)
    decimals = tuple(_decimals(best.dialect, body))
    num_skipped = len(lines) - len(body)
    return replace(best.dialect, decimals=decimals, num_skipped=num_skipped)


def _is_above_table(line: str) -> bool:
    """Return whether a line above a table is blank, or a comment: # exported in May."""
    return not line.strip() or line.startswith("# ")


_MOST_TITLE_LINES = 5
_ANY_DELIMITER = re.compile(r"[,;\t|]")


def _without_title_lines(lines: list[str], kind: str) -> list[str]:
    """Return the lines from the names of the columns on, if they are below a title, as
    in the exports of spreadsheets; all lines, if no such names follow.

    A line of a title has one cell, whatever the delimiter.
    """
    for place, line in enumerate(lines[: _MOST_TITLE_LINES + 1]):
        filled = list(filter(str.strip, _ANY_DELIMITER.split(line)))
        if len(filled) < 2:
            continue
        body = lines[place:]
        if place and any(map(_begins_with_names, _try(_likely(body, kind), body))):
            return body
        break
    return lines


def _begins_with_names(trial: "_Trial") -> bool:
    """Return whether the first row has the names of columns, which nearly all rows
    have.
    """
    is_divided = trial.num_cells > 1
    return is_divided and trial.has_usual_name and trial.share > _SHARE_WITH_NAMES


def _with_each_quoting(delimiter: str) -> list[Dialect]:
    return [Dialect(delimiter, quoting) for quoting in _QUOTINGS]


def _try(dialects: Sequence[Dialect], lines: Sequence[str]) -> list[_Trial]:
    return [_Trial.of(dialect, lines) for dialect in dialects]


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
    delimiters = ",;\t|" if kind == ".csv" else "\t,;|"
    dialects = list[Dialect]()
    for delimiter in delimiters:
        with_quotings = _with_each_quoting(delimiter)
        if delimiter == "\t" and not has_quoted_cells:
            with_quotings.insert(0, with_quotings.pop())  # no quoting comes first
        dialects += with_quotings
    has_escapes = '\\"' in "\n".join(lines)
    if has_escapes:
        return dialects
    return [dialect for dialect in dialects if dialect.quoting != "escaped"]


# a number that is whole or has a decimal comma
_COMMA = re.compile(r"[+-]?\d+(,\d+)?").fullmatch
# the usual decimals of grades, and of stars that are halved
_USUAL_FRACTIONS = {"0", "00", "5", "50", "25", "75"}
# if all are like 12,345, the commas may separate thousands
_THOUSANDS = re.compile(r"[+-]?(\d+|[1-9]\d{0,2},\d{3})").fullmatch


def _decimals(dialect: Dialect, lines: Sequence[str]) -> Iterator[int]:
    """Yield the places of columns that have numbers with decimal commas; ids have none.

    "1,5" may also be two labels: rows often have one, so most cells of numbers have a
    comma or, where commas are no delimiters, only halves and quarters follow it.
    """
    rows = _rows(dialect, lines)
    for place, (name, *cells) in enumerate(zip_longest(*rows, fillvalue="")):
        if normalize_name(name) in NAMES["id"]:
            continue
        plain = [cell.strip().lower() for cell in cells]
        numbers = [cell for cell in plain if cell not in ("", *MISSING)]
        if not all(map(_COMMA, numbers)) or all(map(_THOUSANDS, numbers)):
            continue
        fractions = list[str]()
        for number in numbers:
            _, comma, fraction = number.partition(",")
            if comma:
                fractions.append(fraction)
        is_no_delimiter = dialect.delimiter != ","
        are_usual = is_no_delimiter and _USUAL_FRACTIONS.issuperset(fractions)
        if are_usual or len(fractions) * 2 > len(numbers):
            yield place


# ---- the header ----------------------------------------------------------------------


@dataclass(frozen=True)
class Headings:
    """The names of the columns, and how many rows at the top have names; in exports of
    surveys, several.
    """

    columns: tuple[str, ...]
    number: int  # of rows

    @classmethod
    def of(cls, rows: Sequence[Sequence[str]], has_header: bool | None) -> "Headings":
        """Read the headings of a table, given its first rows.

        Without a header, columns are called 1, 2, 3, …, and so is one without a name;
        of columns that are called alike, the second gets a 2.
        """
        first = rows[0]
        number = _count_headings(rows)
        is_header = has_header
        if is_header is None:
            is_header = guess_header([first, *rows[number:]])
        if not is_header:
            number = 0
        columns = list[str]()
        for place, cell in enumerate(first, 1):
            name = name_of(cell) if is_header else None
            columns.append(_unused_name(name or str(place), columns))
        return cls(tuple(columns), number)

    def blank_columns(self, rows: Sequence[Sequence[str]]) -> tuple[str, ...]:
        """Return the columns without a name that are empty in the first rows of a
        table, such as those outside of the outer bars of Markdown.
        """
        if not self.number:
            return ()
        rows_with_cells = [rows[0], *rows[self.number :]]
        blank = list[str]()
        for place, name in enumerate(self.columns):
            cells = [row[place] for row in rows_with_cells if place < len(row)]
            if not any(map(str.strip, cells)):
                blank.append(name)
        return tuple(blank)

    def __str__(self) -> str:
        if not self.number:
            return "no header"
        if self.number == 1:
            return "names in the first line"
        return f"names in the first of {self.number} rows of headings"


def _unused_name(name: str, others: Sequence[str]) -> str:
    """Return a name, or the first of `name 2`, `name 3`, … that no other has."""
    if name not in others:
        return name
    number = 2
    while f"{name} {number}" in others:
        number += 1
    return f"{name} {number}"


# how Qualtrics and SurveyMonkey begin the rows of headings below the names
_IMPORT_ID = '{"ImportId"'
_KINDS_OF_ANSWER = {"Response", "Open-Ended Response"}
# a cell of the line below the names in Markdown, | --- | :--: |
_RULE = re.compile(r"\s*:?-{2,}:?\s*").fullmatch


def _count_headings(rows: Sequence[Sequence[str]]) -> int:
    """Return how many rows have headings, if the first has names."""
    for place, cells in enumerate(rows[1:3], 1):
        if any(cell.strip().startswith(_IMPORT_ID) for cell in cells):
            return place + 1
    if len(rows) > 1:
        kinds = _KINDS_OF_ANSWER.intersection(rows[1])
        if kinds and not rows[1][0]:
            return 2
        filled = list(filter(None, rows[1]))
        if len(filled) > 1 and all(map(_RULE, filled)):
            return 2
    return 1


_NAME = re.compile(r"[\w .()/#-]{1,30}")


def guess_header(rows: Sequence[Sequence[str]]) -> bool:
    """Return whether the first row has the names of the columns; empty cells of it say
    nothing.
    """
    first = list(filter(None, map(str.strip, rows[0])))
    columns = _columns_of(rows)
    num_usual = sum(map(is_usual_name, first))
    if num_usual > 1:
        return True
    if any(map(_Column.begins_with_value, columns)):
        return False
    if num_usual:
        return True
    if any(map(is_number, first)):
        return False
    if any(map(_Column.begins_with_heading, columns)):
        return True
    # Distinct short words, and one of them has far longer cells below it
    are_distinct = len(columns) == len(first)
    if not are_distinct or not all(map(_NAME.fullmatch, first)):
        return False
    return any(map(_Column.begins_far_shorter, columns))


@dataclass(frozen=True)
class _Column:
    """A cell of the first row, and the cells below it."""

    first: str
    others: Sequence[str]

    def begins_with_value(self) -> bool:
        """Return whether the first cell is one of a few values of the column."""
        most_values = max(2, len(self.others) // 2)
        return self.first in self.others and len(set(self.others)) <= most_values

    def begins_with_heading(self) -> bool:
        """Return whether the first cell differs from the others, which are numbers or a
        few repeated values.
        """
        filled = list(filter(None, self.others))
        if not filled:
            return False
        if all(map(is_number, filled)):
            return True
        num_values = len(set(filled))
        are_repeated = len(filled) >= 4 and num_values <= len(filled) // 2
        return are_repeated and self.first not in filled

    def begins_far_shorter(self) -> bool:
        """Return whether the first cell is far shorter than the others."""
        if not self.others:
            return False
        return fmean(map(len, self.others)) > 3 * len(self.first)


def _columns_of(rows: Sequence[Sequence[str]]) -> list[_Column]:
    """Return the columns with a cell in the first row; of those that begin with the same
    text, the first.
    """
    columns = dict[str, _Column]()
    for place, cell in enumerate(rows[0]):
        first = cell.strip()
        if first and first not in columns:
            others = [row[place].strip() for row in rows[1:] if place < len(row)]
            columns[first] = _Column(first, others)
    return list(columns.values())
