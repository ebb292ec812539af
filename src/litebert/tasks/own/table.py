"""A user's own table: its format, its columns, the contents of their cells, and the
role of each column.

Rows are read one at a time, in bounded memory.
"""

import csv
import io
import json
import math
import re
import shlex
import tomllib
import unicodedata
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain, islice, zip_longest
from pathlib import Path
from statistics import fmean
from typing import TypeAlias

from litebert.errors import LitebertError, RequestError, did_you_mean
from litebert.plugins import TASK_KINDS
from litebert.reading import tables
from litebert.reading.parquet import read_parquet
from litebert.reading.source import (
    DELIMITED,
    JSON_LINES,
    TABLES,
    TAGGED,
    Source,
    find_input,
    no_content,
    read_lines,
)
from litebert.reading.tables import Dialect, Quoting, Row, Scanned
from litebert.tokenizer.models import replace_surrogates

Role: TypeAlias = str
Names: TypeAlias = tuple[str, ...]
SYNONYMS = {"pair": "second"}  # other names of roles, which commands may use
# several columns can share these: one for each label or choice
SEVERAL: tuple[Role, ...] = ("label", "choices")

# The usual names of columns, without spaces and punctuation, the likeliest first:
# names.toml
_USUAL = tomllib.loads(
    Path(__file__).with_name("names.toml").read_text(encoding="utf-8")
)
PAIRS: Sequence[Sequence[str]] = _USUAL["pairs"]
NAMES: Mapping[Role, Sequence[str]] = _USUAL["roles"]
# more names of the label column, if rows have choices
CHOSEN: Sequence[str] = _USUAL["chosen"]
KNOWN_NAMES = frozenset(
    [*CHOSEN, *(name for names in (*NAMES.values(), *PAIRS) for name in names)]
)


def roles() -> tuple[Role, ...]:
    """Return the roles that columns can have, of all kinds of task."""
    readings = (kind.reading for kind in TASK_KINDS.values())
    named = (reading.roles for reading in readings if reading is not None)
    return tuple(dict.fromkeys(chain.from_iterable(named)))


def normalize_name(name: str) -> str:
    """Return a column's name normalised for comparison: letters and digits, in lower
    case.
    """
    return "".join(filter(str.isalnum, name)).lower()


# A file of rows

# from which a table's dialect, columns and contents are guessed
SAMPLE_ROWS = 1_000
SAMPLE_CHARACTERS = 1 << 20
_DOUBLED = re.compile(r'(?:^|\t)"(?:[^"\t]|"")*""')
_NAME = re.compile(r"[\w .()/#-]{1,30}")
# a number that is whole or has a decimal comma
_COMMA = re.compile(r"[+-]?\d+(,\d+)?").fullmatch
_THOUSANDS = re.compile(r"[+-]?(\d+|[1-9]\d{0,2},\d{3})").fullmatch
# words for a missing value, in a column of numbers
MISSING = ("nan", "na", "n/a", "null", "none")


@dataclass(frozen=True)
class TableFile:
    """A file of rows: its format in words, its columns, a function that reads it; a
    header only if delimited.
    """

    source: Source
    writing: str
    columns: tuple[str, ...]
    scan: Callable[[], Iterator[Scanned]]
    has_header: bool | None = None

    def rows(self) -> Iterator[tuple[int, Row]]:
        """Yield each row with its number; raise the error of an invalid row."""
        for number, row in self.scan():
            if isinstance(row, LitebertError):
                raise row
            yield number, row

    def sample(self) -> list[Row]:
        """Return the valid rows among the first ones; if there are none, raise their
        first error.
        """
        scanned = [row for _, row in islice(self.scan(), SAMPLE_ROWS)]
        good = [row for row in scanned if not isinstance(row, LitebertError)]
        if not good:
            raise next(
                (row for row in scanned if isinstance(row, LitebertError)),
                no_content(self.source.name),
            )
        return good


def open_table(path: str | Path, *, has_header: bool | None = None) -> TableFile:
    """Determine the format and the columns of a file.

    `has_header` says whether a .csv or .tsv file names its columns in the first line
    (None: guess); without a header, columns are called 1, 2, 3, …
    """
    source = find_input(str(path), TABLES)
    if source.kind in DELIMITED:
        lines = list[str]()
        size = 0
        for _, line in islice(read_lines(source), SAMPLE_ROWS):
            lines.append(line)
            if (size := size + len(line)) > SAMPLE_CHARACTERS:
                break
        if not any(lines):
            raise no_content(source.name)
        dialect = guess_dialect(lines, kind=source.kind)
        sample = [
            cells
            for _, _, cells in dialect.rows(lines)
            if isinstance(cells, list) and cells
        ]
        sample = sample or [[""]]  # if no row is valid, reading it raises the reason
        named = guess_header(sample) if has_header is None else has_header
        # a column without a name is named by its number
        header = sample[0] if named else [""] * len(sample[0])
        columns = tuple(
            label_of(cell) or str(place) for place, cell in enumerate(header, 1)
        )
        expected = "a name for each column; or, if line 1 is a row: --column header=no"
        tables.require_distinct(columns, f"{source.name}, line 1", expected)
        writing = f"{dialect}, {'names in the first line' if named else 'no header'}"
        scan = partial(
            tables.scan_delimited, source, dialect, columns, has_header=named
        )
        return TableFile(source, writing, columns, scan, named)
    if source.kind == ".parquet":
        columns = tuple(next(read_parquet(source, ()), {}))
        return TableFile(
            source,
            "parquet",
            columns,
            lambda: enumerate(read_parquet(source, columns), 1),
        )
    if source.kind in JSON_LINES:
        writing = "an object per line"
        scan = partial(tables.scan_json_lines, source)
    elif source.kind in TAGGED:
        writing = "a word per line"
        scan = partial(tables.scan_tagged, source)
    else:
        writing = "a list of objects"
        scan = partial(tables.scan_json, source)
    keys = chain.from_iterable(TableFile(source, writing, (), scan).sample())
    # in order of appearance
    return TableFile(source, writing, tuple(dict.fromkeys(keys)), scan)


# How a delimited file is written: its delimiter, its quotes, whether it has a header
#
# csv.Sniffer is not enough: it takes letters for delimiters if texts are long.


def guess_dialect(lines: Sequence[str], *, kind: str) -> Dialect:
    """Choose the dialect that best fits the first lines, given without line ends.

    The suffix decides only which dialects are preferred: each one is tried, and the one
    with which most lines have the same number of cells as the first line wins. If none
    gives two cells, each line is one cell.
    """
    # With tabs, quotes are rarely special: only if they enclose the first name, or are
    # doubled in a quoted cell.
    has_quoted_cells = lines[0].startswith('"') or any(map(_DOUBLED.search, lines))
    special: tuple[Quoting, ...] = ("doubled", "escaped", "none")
    quotings = dict.fromkeys("\t,;|" if kind == ".tsv" else ",;\t|", special)
    if not has_quoted_cells:
        quotings["\t"] = ("none", "doubled", "escaped")
    quotings[tables.NO_DELIMITER] = ("doubled", "none")

    def fit(dialect: Dialect) -> tuple[bool, bool, bool, float]:
        """Prefer several cells, else no delimiter; a known name in the first row; more
        lines of its width.
        """
        rows = [
            (size, cells)
            for _, size, cells in dialect.rows(lines)
            if isinstance(cells, list)
        ]
        first = next((cells for _, cells in rows if cells), [])
        num_fitting = sum(size for size, cells in rows if len(cells) in (0, len(first)))
        # a control character, which a text may have
        is_whole = dialect.delimiter == tables.NO_DELIMITER
        is_named = len(first) > 1 and any(
            normalize_name(cell) in KNOWN_NAMES for cell in first
        )
        return (
            len(first) > 1 and not is_whole,
            is_whole,
            is_named,
            num_fitting / len(lines),
        )

    best = max(
        (Dialect(mark, each) for mark, several in quotings.items() for each in several),
        key=fit,
    )
    if best.delimiter not in ";\t":
        return best
    # Columns of numbers with decimal commas; if all are like 12,345, the commas may
    # separate thousands.
    rows = [
        [cell.strip().lower() for cell in cells]
        for _, _, cells in best.rows(lines)
        if isinstance(cells, list)
    ]
    columns = enumerate(
        {*cells} - {"", *MISSING}
        for cells in zip_longest(*[*filter(None, rows)][1:], fillvalue="")
    )
    found = (
        n
        for n, cells in columns
        if all(map(_COMMA, cells)) and not all(map(_THOUSANDS, cells))
    )
    return replace(best, decimals=tuple(found))


def guess_header(rows: Sequence[Sequence[str]]) -> bool:
    """Return whether the first row has the names of the columns."""
    first = [cell.strip() for cell in rows[0]]
    rest = rows[1:]
    num_known = sum(normalize_name(cell) in KNOWN_NAMES for cell in first)
    below = [
        [row[index].strip() for row in rest if index < len(row)]
        for index in range(len(first))
    ]
    columns = list(zip(first, below, strict=True))
    if num_known > 1:
        return True
    # A cell that is one of the few values of its column is not a name.
    if any(
        cell in column and len(set(column)) <= max(2, len(column) // 2)
        for cell, column in columns
    ):
        return False
    if num_known:
        return True
    if any(number_of(cell) is not None for cell in first):
        return False
    # A cell differs from the rest of its column, which has numbers or a few repeated
    # values.
    for cell, column in columns:
        filled = [value for value in column if value]
        are_few = (
            len(filled) >= 4
            and len(set(filled)) <= len(filled) // 2
            and cell not in filled
        )
        if are_few or (
            filled and all(number_of(value) is not None for value in filled)
        ):
            return True
    # Distinct short words, and one of them has far longer cells below it
    are_names = len(set(first)) == len(first) and all(map(_NAME.fullmatch, first))
    return are_names and any(
        column and fmean(map(len, column)) > 3 * len(cell) for cell, column in columns
    )


# The content of a cell; None if it is empty

_QUOTED = re.compile(r"'((?:[^'\\]|\\.)*)'|\"((?:[^\"\\]|\\.)*)\"")


def text_of(value: object) -> str | None:
    """Return a cell as text: 3.0 as 3, True as true, an empty cell and NaN as None."""
    if isinstance(value, str):
        return replace_surrogates(value) or None
    if isinstance(value, float):
        if math.isnan(value):
            return None
        value = int(value) if value.is_integer() else value
    return str(value).lower() if isinstance(value, int | float) else None


def label_of(value: object) -> str | None:
    """Return a cell as the name of a label: without surrounding white space, accents
    composed (NFC).
    """
    return unicodedata.normalize("NFC", text_of(value) or "").strip() or None


def number_of(value: object) -> float | None:
    """Return a cell as a number that is finite in float32, in which the network
    computes.
    """
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return None
    # Python reads 1_000 as a number; in data, it is none
    if isinstance(value, str) and "_" in value:
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if abs(number) < 3.4e38 else None  # false for NaN, too


def mark_of(value: object) -> float | None:
    """Return 1 if a cell says that a label is given, 0 if it does not (or is empty);
    another value says neither.
    """
    mark = (label_of(value) or "0").lower()
    return {"false": 0, "true": 1, "no": 0, "yes": 1}.get(mark, number_of(mark))


def list_of(value: object) -> list[object] | None:
    """Return a cell as a list: from a list, or from text as JSON, Python or numpy write
    one.
    """
    if isinstance(value, (list, tuple)):
        return list(value)
    text = value.strip() if isinstance(value, str) else ""
    if not (text.startswith("[") and text.endswith("]")):
        return None
    try:
        parsed = json.loads(text)
        return parsed if isinstance(parsed, list) else None
    except (ValueError, RecursionError):
        inside = text[1:-1]
    if "'" not in inside and '"' not in inside:  # bare words
        return [word for word in re.split(r"[\s,]+", inside) if word]
    if not re.fullmatch(r"[\s,]*", _QUOTED.sub("", inside)):
        return None
    return [
        re.sub(r"\\(.)", r"\1", single or double)
        for single, double in _QUOTED.findall(inside)
    ]


# What users type: role=name


@dataclass(frozen=True)
class Columns:
    """The columns of each role, usually one; `has_header` says whether the first line
    has their names.
    """

    names: Mapping[Role, Names]
    has_header: bool | None = None

    def all(self, role: Role) -> Names:
        """Return the columns that share a role."""
        return self.names.get(role, ())

    def cell(self, row: Row, role: Role) -> object:
        """Return the cell of a role in a row, the first of several; None without
        one.
        """
        return next((row.get(name) for name in self.all(role)), None)

    def words(self) -> Names:
        """Return the assignments that a user would type for these columns."""
        words = list[str]()
        for role, names in self.names.items():
            written = io.StringIO()
            csv.writer(written, lineterminator="\n").writerow(names)
            words.append(
                f"{role}={written.getvalue()[:-1] if role in SEVERAL else names[0]}"
            )
        return (*words, "header=no") if self.has_header is False else tuple(words)

    def require_in(
        self, columns: Sequence[str], *, without: Collection[Role] = (), where: str = ""
    ) -> None:
        """Check that a table has the columns of all roles, except those in
        `without`.
        """
        for role, name in (
            (role, name) for role, names in self.names.items() for name in names
        ):
            if role not in without and name not in columns:
                what = f"there is no column {name}{where}"
                advice = did_you_mean(name, columns)
                wanted = f"one of {', '.join(columns)}"
                advice = f"--column {role}=NAME ({advice})"
                raise RequestError(
                    "LB-851",
                    what,
                    received=f"{role}={name}",
                    expected=wanted,
                    next=advice,
                )


HEADERS = {"header=yes": True, "header=no": False}


def chosen_columns(
    words: Iterable[str], columns: Sequence[str] | None = None
) -> Columns:
    """Read assignments as a user types them: role=name, role=name,name for several
    columns, header=yes or header=no.

    A name with a comma is in double quotes, unless `columns` or an earlier word have
    it. Names must be in `columns`.
    """
    names = dict[Role, Names]()
    has_header = None
    composed = {unicodedata.normalize("NFC", name): name for name in columns or ()}
    for word in words:
        if word in HEADERS:
            has_header = HEADERS[word]
            continue
        role, _, name = word.partition("=")
        role = SYNONYMS.get(role, role)
        name = composed.get(unicodedata.normalize("NFC", name), name)
        if role not in roles() or not name:
            raise RequestError(
                "LB-850",
                f"{word} does not say what a column is",
                expected=f"ROLE=NAME, with a role of {', '.join(roles())}; or header=no",
                next=f"--column text=NAME ({did_you_mean(role, roles())})",
            )
        is_one = role not in SEVERAL or name in (columns or names.get(role, ()))
        names[role] = (
            (name,)
            if is_one
            else tuple(dict.fromkeys(chain(*csv.reader(io.StringIO(name, newline="")))))
        )
    chosen = Columns(names, has_header)
    if columns is not None:
        chosen.require_in(columns)
    return chosen


# What the cells of a column look like

_TEXT_CHARACTERS = 10  # the mean length of texts, at least


def strings_of(cells: Iterable[object]) -> list[str]:
    """Return the texts among cells that are not numbers."""
    values = (text_of(cell) for cell in cells if isinstance(cell, str))
    return [value for value in values if value is not None and number_of(value) is None]


def have_words(cells: Sequence[object]) -> bool:
    """Return whether most cells have several words."""
    values = strings_of(cells)
    if not values or len(values) * 2 < len(cells):
        return False
    num_worded = sum(" " in value or not value.isascii() for value in values)
    return num_worded * 2 > len(values) and fmean(map(len, values)) >= _TEXT_CHARACTERS


def are_labels(cells: Sequence[object]) -> bool:
    """Return whether there are few distinct values, or fractions, or nothing but
    lists.
    """
    filled = [value for cell in cells if (value := label_of(cell)) is not None]
    numbers = [number for value in filled if (number := number_of(value)) is not None]
    num_distinct = len(set(filled))
    if not filled:
        return has_list(cells)
    if len(numbers) < len(filled):
        return 1 < num_distinct <= max(2, len(filled) // 2)
    return num_distinct > 1 and (
        num_distinct * 2 <= len(filled) or not all(map(float.is_integer, numbers))
    )


def has_list(cells: Sequence[object]) -> bool:
    """Return whether any cell is a list, or a list written as text."""
    return any(list_of(cell) is not None for cell in cells)


# Guesses: by the usual names of columns, otherwise by the contents of the first rows

_NUMBERED = re.compile(r"(.*?)[ _-]?([0-9]|[a-e])", re.IGNORECASE)
_FEWEST = {"": 3} | dict.fromkeys(
    (
        "choice",
        "option",
        "opt",
        "op",
        "ending",
        "answer",
        "ans",
        "sol",
        "solution",
        "candidate",
        "alternative",
    ),
    2,
)
"""How many columns it takes to be choices, if their names end in a number or letter, by
what comes before it.
"""


@dataclass
class ColumnGuess:
    """The columns of a table whose roles are being found, by their names and the cells
    of the first rows; `found` has those that were chosen.
    """

    names: Sequence[str]
    sample: Sequence[Row]
    chosen: Columns
    found: dict[Role, Names] = field(init=False)

    def __post_init__(self) -> None:
        self.found = dict(self.chosen.names)
        self._cells = {
            name: [row.get(name) for row in self.sample] for name in self.names
        }
        # the first of several counts
        self.by_normal = {normalize_name(name): name for name in reversed(self.names)}

    def cells(self, name: str) -> list[object]:
        """Return the cells of a column in the first rows."""
        return self._cells[name]

    def free_columns(self) -> list[str]:
        """Return the columns that have no role yet."""
        taken = {*chain(*self.found.values())}
        return [name for name in self.names if name not in taken]

    def usual(self, role: Role, more: Sequence[str] = ()) -> Names:
        """Return the chosen column of a role, or the first free one with a usual
        name.
        """
        if self.found.get(role):
            return self.found[role]
        free = self.free_columns()
        for usual in (*more, *NAMES.get(role, (role,))):
            name = self.by_normal.get(usual)
            if name in free:
                return (name,)
        return ()

    def find_usual(self, roles: Sequence[Role]) -> None:
        """Give roles to the columns that have a usual name."""
        for role in roles:
            self.found[role] = self.usual(role)

    def require_one(self, role: Role, candidates: Sequence[str]) -> None:
        """Give a role to the only candidate; with none or several, raise: the user must
        choose.
        """
        if len(candidates) == 1:
            self.found[role] = tuple(candidates)
            return
        which = "none looks like it"
        if candidates:
            which = f"{' and '.join(candidates)} could be it"
        raise RequestError(
            "LB-854",
            f"it is unclear which column is the {role}: {which}",
            received=f"columns {', '.join(self.names)}",
            expected="a usual name, or exactly one column that looks like it",
            next=self._advice(role, candidates),
        )

    def _advice(self, role: Role, candidates: Sequence[str]) -> str:
        if role == "text" and len(candidates) == 2:
            return pair_flags(candidates)
        names = tuple(candidates[:1])
        if role == "label":
            marks = [name for name in self.free_columns() if self._has_marks(name)]
            if len(marks) > 1:  # a column for each label
                names = tuple(marks)
        word = Columns({role: names or ("NAME",)}).words()[0]
        return f"--column {shlex.quote(word)}"

    def _has_marks(self, name: str) -> bool:
        return all(mark_of(cell) in (0, 1) for cell in self.cells(name))

    def choices(self) -> Names:
        """Return the columns of choices: one of lists or objects, or columns that are
        numbered: ending0, ending1, …
        """
        choices = self.usual("choices")
        if "choices" in self.found:
            return choices
        for cell in self.cells(choices[0]) if choices else ():
            if isinstance(cell, Mapping) or list_of(cell) is not None:
                return choices
        return _find_numbered(self.names)

    def texts(self) -> list[str]:
        """Return the free columns of mostly distinct texts; else of any texts; else of
        strings that are not labels.
        """
        free = self.free_columns()
        if len(free) == 1:
            return free
        strings = {name: strings_of(self.cells(name)) for name in free}
        texts = [name for name in free if have_words(self.cells(name))]
        varied = [
            name for name in texts if len({*strings[name]}) * 2 > len(strings[name])
        ]
        words = [name for name in free if strings[name]]
        return (
            varied
            or texts
            or [name for name in words if not are_labels(self.cells(name))]
        )


def _find_numbered(names: Sequence[str]) -> Names:
    stems: dict[str, list[str]] = {}
    for name in names:
        if numbered := _NUMBERED.fullmatch(name):
            stems.setdefault(normalize_name(numbered[1]), []).append(name)
    alike = [
        group for stem, group in stems.items() if len(group) >= _FEWEST.get(stem, 99)
    ]
    return max(
        (tuple(group) for group in alike if not group[0].isdigit()), key=len, default=()
    )


def pair_flags(names: Sequence[str]) -> str:
    """Return the flags that make two columns a pair of texts."""
    pair = zip(("text", "second"), names, strict=True)
    return " ".join(f"--column {shlex.quote(f'{part}={name}')}" for part, name in pair)
