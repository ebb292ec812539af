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
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, islice, zip_longest
from pathlib import Path
from statistics import fmean
from typing import Literal, TypeAlias

from litebert.errors import LitebertError, RequestError, did_you_mean
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

RowShape: TypeAlias = Literal["texts", "words", "choices", "spans"]
Role: TypeAlias = str
Names: TypeAlias = tuple[str, ...]
ROLES_OF: Mapping[RowShape, tuple[Role, ...]] = {
    "choices": ("question", "context", "choices", "label", "id"),
    "words": ("tokens", "tags", "id"),
    "spans": ("question", "context", "answers", "start", "id"),
    "texts": ("text", "second", "label", "id"),
}
"""The roles that columns can have, for each shape of rows."""
ROLES: tuple[Role, ...] = tuple(dict.fromkeys(chain(*ROLES_OF.values())))
SYNONYMS = {"pair": "second"}  # other names of roles, which commands may use
# several columns can share these: one for each label or choice
SEVERAL: tuple[Role, ...] = ("label", "choices")
# not needed in a file without labels
LEARNT: tuple[Role, ...] = ("label", "tags", "answers", "start")

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
        if role not in ROLES or not name:
            wanted = f"ROLE=NAME, with a role of {', '.join(ROLES)}; or header=no"
            advice = f"--column text=NAME ({did_you_mean(role, ROLES)})"
            raise RequestError(
                "LB-850",
                f"{word} does not say what a column is",
                expected=wanted,
                next=advice,
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


def guess_columns(
    names: Sequence[str], sample: Sequence[Row], chosen: Columns, shape: RowShape | None
) -> tuple[RowShape, Columns]:
    """Return the shape of the rows (guessed if None) and the columns of each role; what
    was chosen is kept.
    """
    cells = {name: [row.get(name) for row in sample] for name in names}
    # the first of several counts
    by_normal = {normalize_name(name): name for name in reversed(names)}
    found = dict(chosen.names)

    def free_columns() -> list[str]:
        taken = {*chain(*found.values())}
        return [name for name in names if name not in taken]

    def find_usual(role: Role, more: Sequence[str] = ()) -> Names:
        """Return the chosen column of a role, or the first free one with a usual
        name.
        """
        there = (by_normal.get(name) for name in (*more, *NAMES[role]))
        return found.get(role) or next(
            ((name,) for name in there if name in free_columns()), ()
        )

    def require_one(role: Role, candidates: Sequence[str]) -> Names:
        """Return the only candidate for a role; with none or several, raise: the user
        must choose.
        """
        if len(candidates) == 1:
            return tuple(candidates)
        which = (
            f"{' and '.join(candidates)} could be it"
            if candidates
            else "none looks like it"
        )
        marks = [
            name
            for name in free_columns()
            if all(mark_of(cell) in (0, 1) for cell in cells[name])
        ]
        # a column for each label
        named = marks if role == "label" and len(marks) > 1 else candidates[:1]
        advice = (
            "--column"
            f" {shlex.quote(Columns({role: tuple(named) or ('NAME',)}).words()[0])}"
        )
        if role == "text" and len(candidates) == 2:
            advice = pair_flags(candidates)
        what = f"it is unclear which column is the {role}: {which}"
        received = f"columns {', '.join(names)}"
        expected = "a usual name, or exactly one column that looks like it"
        raise RequestError(
            "LB-854", what, received=received, expected=expected, next=advice
        )

    # Choices are in a column of lists or objects, or in columns that are numbered:
    # ending0, ending1, …
    choices = find_usual("choices")
    listed = cells[choices[0]] if choices else ()
    if "choices" not in found and not any(
        isinstance(cell, Mapping) or list_of(cell) is not None for cell in listed
    ):
        choices = _find_numbered(names)

    # The shape of the rows: by a chosen role that only one shape has, then by the names
    # and contents of columns
    if shape is None:
        shapes_of = (
            [each for each in ROLES_OF if role in ROLES_OF[each]]
            for role in chosen.names
        )
        tokens = find_usual("tokens")
        answers = find_usual("answers")
        implied = next((shapes[0] for shapes in shapes_of if len(shapes) == 1), None)
        if implied:
            shape = implied
        elif tokens and (find_usual("tags") or has_list(cells[tokens[0]])):
            shape = "words"
        elif (find_usual("question") and find_usual("context")) and (
            find_usual("start")
            or (answers and "answer_start" in str(cells[answers[0]]))
        ):
            shape = "spans"
        else:
            shape = "choices" if choices else "texts"
    roles = ROLES_OF[shape]
    for role in chosen.names:
        if role not in roles:
            received = f"{role}={','.join(chosen.all(role))}"
            wanted = f"one of {', '.join(roles)}, as these rows look like {shape}"
            advice = "omit this choice; or name the problem: --problem NAME"
            raise RequestError(
                "LB-841",
                f"these rows have no {role}",
                received=received,
                expected=wanted,
                next=advice,
            )

    # The columns with the usual names; a text column that was chosen is not made half
    # of a guessed pair
    if shape == "choices":
        found["choices"] = choices or require_one("choices", [])
    if shape == "texts" and not {"text", "second"} & {*found}:
        pairs = (
            [by_normal[name] for name in pair]
            for pair in PAIRS
            if {*pair} <= {*by_normal}
        )
        if pair := next((pair for pair in pairs if {*pair} <= {*free_columns()}), None):
            found["text"], found["second"] = (pair[0],), (pair[1],)
    for role in roles:
        if role != "second":
            found[role] = find_usual(
                role, CHOSEN if (shape, role) == ("choices", "label") else ()
            )

    # The others, by their contents
    if shape == "texts":
        found["text"] = found["text"] or require_one(
            "text", _find_texts(free_columns(), cells)
        )
        if not found["label"] and (
            like := [name for name in free_columns() if are_labels(cells[name])]
        ):
            found["label"] = require_one("label", like)
    elif shape == "choices":
        if not found["question"] and not found["context"]:
            found["question"] = require_one(
                "question", _find_texts(free_columns(), cells)
            )
    elif missing := [
        role for role in roles if not found[role] and role not in (*LEARNT, "id")
    ]:
        require_one(missing[0], [])
    return shape, Columns(
        {role: found[role] for role in roles if found.get(role)}, chosen.has_header
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


def _find_texts(
    free: Sequence[str], cells: Mapping[str, Sequence[object]]
) -> list[str]:
    """Return the columns of mostly distinct texts; else of any texts; else of strings
    that are not labels.
    """
    if len(free) == 1:
        return [*free]
    strings = {name: values for name in free if (values := strings_of(cells[name]))}
    texts = [name for name in strings if have_words(cells[name])]
    varied = [name for name in texts if len({*strings[name]}) * 2 > len(strings[name])]
    return varied or texts or [name for name in strings if not are_labels(cells[name])]


def pair_flags(names: Sequence[str]) -> str:
    """Return the flags that make two columns a pair of texts."""
    pair = zip(("text", "second"), names, strict=True)
    return " ".join(f"--column {shlex.quote(f'{part}={name}')}" for part, name in pair)
