"""A table of one's own: its format, its columns and what is in their cells, and which column plays which role.

A row is read at a time, in bounded memory.
"""

from __future__ import annotations

import json
import math
import re
import shlex
import tomllib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain, islice
from pathlib import Path
from statistics import fmean
from typing import Literal, TypeAlias, get_args

from litebert.errors import LitebertError, RequestError, did_you_mean
from litebert.reading import tables
from litebert.reading.source import DELIMITED, JSON_LINES, TAGGED, Source, find_table, no_content
from litebert.reading.tables import Dialect, Quoting, Row, Scanned
from litebert.tokenizer.models import replace_surrogates

RowShape: TypeAlias = Literal["texts", "words", "choices", "spans"]
Names: TypeAlias = tuple[str, ...]
Role: TypeAlias = Literal[
    "id", "text", "second", "label", "tokens", "tags", "context", "question", "choices", "answers",
    "start",
]  # fmt: skip
ROLES: tuple[Role, ...] = get_args(Role)
ROLES_OF: Mapping[RowShape, tuple[Role, ...]] = {
    "choices": ("question", "context", "choices", "label", "id"),
    "words": ("tokens", "tags", "id"),
    "spans": ("question", "context", "answers", "start", "id"),
    "texts": ("text", "second", "label", "id"),
}
"""What the columns of rows of each shape can be."""
SYNONYMS = {"pair": "second"}  # other names of roles, which commands may use
SEVERAL: tuple[Role, ...] = ("label", "choices")  # several columns can share these: one for each label or choice
LEARNT: tuple[Role, ...] = ("label", "tags", "answers", "start")  # not needed in a file without labels

# The usual names of columns, without spaces and signs, the likelier first: names.toml
_USUAL = tomllib.loads(Path(__file__).with_name("names.toml").read_text(encoding="utf-8"))
PAIRS: Sequence[Sequence[str]] = _USUAL["pairs"]
NAMES: Mapping[Role, Sequence[str]] = _USUAL["roles"]
CHOSEN: Sequence[str] = _USUAL["chosen"]  # more names of the label column if it says which choice is right
KNOWN_NAMES = frozenset([*CHOSEN, *(name for names in (*NAMES.values(), *PAIRS) for name in names)])


def normal(name: str) -> str:
    """Return a column's name normalised for comparison: letters and digits, in lower case.

    >>> normal("Review Text"), normal("sentence_A")
    ('reviewtext', 'sentencea')
    """
    return "".join(filter(str.isalnum, name)).lower()


# A file of rows

SAMPLE_ROWS = 1_000  # from which the columns of a table and their contents are guessed
_DOUBLED = re.compile(r'(?:^|\t)"(?:[^"\t]|"")*""')
_NAME = re.compile(r"[\w .()/#-]{1,30}")


@dataclass(frozen=True)
class TableFile:
    """A file of rows: its format in words, its columns, a function that reads it; without a header by kind, None."""

    source: Source
    writing: str
    columns: tuple[str, ...]
    scan: Callable[[], Iterator[Scanned]]
    has_header: bool | None = None

    def rows(self) -> Iterator[tuple[int, Row]]:
        """Yield each row with its number; a row that is not valid is an error."""
        for number, row in self.scan():
            if isinstance(row, LitebertError):
                raise row
            yield number, row

    def sample(self) -> list[Row]:
        """Return the valid ones of the first rows; if none is, their first error."""
        scanned = [row for _, row in islice(self.scan(), SAMPLE_ROWS)]
        good = [row for row in scanned if not isinstance(row, LitebertError)]
        errors = [row for row in scanned if isinstance(row, LitebertError)]
        if not good:
            raise errors[0] if errors else no_content(self.source.name, "rows")
        return good


def open_table(path: Path, *, has_header: bool | None = None, known: Collection[str] = ()) -> TableFile:
    """Find out the format of a file and its columns.

    `has_header` says whether a .csv or .tsv file names its columns in the first line (None: guess); without a header
    they are called 1, 2, 3, … `known` are names that a header is likely to have.
    """
    source = find_table(path)
    if source.kind in DELIMITED:
        lines = tables.first_lines(source)
        if not any(lines):
            raise no_content(source.name, "rows")
        dialect = guess_dialect(lines, kind=source.kind, known=known)
        sample = [cells for cells, _ in dialect.sized(lines) if cells]
        if not sample:  # raises the error of the first row
            cells = partial(tables.scan_delimited, source, dialect, ("1",), has_header=False)
            TableFile(source, str(dialect), ("1",), cells).sample()
        named = guess_header(sample, known) if has_header is None else has_header
        columns = tables.header_names(sample[0] if named else [""] * len(sample[0]), source)
        writing = f"{dialect}, {'names in the first line' if named else 'no header'}"
        scan = partial(tables.scan_delimited, source, dialect, columns, has_header=named)
        return TableFile(source, writing, columns, scan, named)
    if source.kind == ".parquet":
        columns = tuple(next(tables.read_parquet(source, ()), {}))
        return TableFile(source, "parquet", columns, lambda: enumerate(tables.read_parquet(source, columns), 1))
    if source.kind in JSON_LINES:
        writing, scan = "an object per line", partial(tables.scan_json_lines, source)
    elif source.kind in TAGGED:
        writing, scan = "a word per line", partial(tables.scan_tagged, source)
    else:
        writing, scan = "a list of objects", partial(tables.scan_json, source)
    keys = chain.from_iterable(TableFile(source, writing, (), scan).sample())
    return TableFile(source, writing, tuple(dict.fromkeys(keys)), scan)  # in order of appearance


# How a delimited file is written: its delimiter, its quotes, whether it has a header
#
# The sniffer of the csv module reads no header, and takes letters for delimiters where texts are long.


def guess_dialect(lines: Sequence[str], *, kind: str, known: Collection[str] = ()) -> Dialect:
    """Choose the dialect that fits the first lines best; they have no line ends.

    The suffix decides only which dialects are preferred: each one is tried, and the one with which most lines have as
    many cells as the first is taken. If none gives two cells, each line is one cell. `known` are names that a header is
    likely to have.
    """
    names = KNOWN_NAMES | set(map(normal, known))
    # With tabs, quotes are rarely special: only if they stand around the first name, or doubled in a quoted cell.
    has_quoted_cells = lines[0].startswith('"') or any(map(_DOUBLED.search, lines))
    best, best_fit = None, (False, 0.0)
    for delimiter in "\t,;|" if kind == ".tsv" else ",;\t|":
        quotings: tuple[Quoting, ...] = ("doubled", "escaped", "none")
        if delimiter == "\t" and not has_quoted_cells:
            quotings = ("none", "doubled", "escaped")
        for dialect in (Dialect(delimiter, quoting) for quoting in quotings):
            # whether the first row has a known name, and the share of lines of its width
            rows = list(dialect.sized(lines))
            first = next((cells for cells, _ in rows if cells), [])
            num_fitting = sum(size for cells, size in rows if len(cells) in (0, len(first)))
            fit = (any(normal(cell) in names for cell in first), num_fitting / len(lines))
            if len(first) > 1 and fit > best_fit:
                best, best_fit = dialect, fit
    if best is not None:
        return best
    quoted = Dialect(tables.NO_DELIMITER, "doubled")
    num_read = sum(size for _, size in quoted.sized(lines))
    return quoted if num_read == len(lines) else Dialect(tables.NO_DELIMITER, "none")


def guess_header(rows: Sequence[Sequence[str]], known: Collection[str] = ()) -> bool:
    """Tell whether the first row names the columns."""
    first, rest = [cell.strip() for cell in rows[0]], rows[1:]
    names = KNOWN_NAMES | set(map(normal, known))
    num_known = sum(normal(cell) in names for cell in first)
    below = [[row[index].strip() for row in rest if index < len(row)] for index in range(len(first))]
    columns = list(zip(first, below, strict=True))
    if num_known > 1 or set(known) & set(first):
        return True
    # One of the few values of its column is no name.
    if any(cell in column and len(set(column)) <= max(2, len(column) // 2) for cell, column in columns):
        return False
    if num_known:
        return True
    if any(number_of(cell) is not None for cell in first):
        return False
    # A cell differs from its column: the others are numbers, or few repeated values.
    for cell, column in columns:
        filled = [value for value in column if value]
        are_few = len(filled) >= 4 and len(set(filled)) <= len(filled) // 2 and cell not in filled
        if are_few or (filled and all(number_of(value) is not None for value in filled)):
            return True
    # Distinct short words, and one of them has far longer cells below it
    are_names = len(set(first)) == len(first) and all(map(_NAME.fullmatch, first))
    return are_names and any(column and fmean(map(len, column)) > 3 * len(cell) for cell, column in columns)


# What stands in a cell; None if nothing does

_QUOTED = re.compile(r"'((?:[^'\\]|\\.)*)'|\"((?:[^\"\\]|\\.)*)\"")


def text_of(value: object) -> str | None:
    """Return a cell as text.

    >>> text_of("a b"), text_of(3.0), text_of(True), text_of(""), text_of(float("nan"))
    ('a b', '3', 'true', None, None)
    """
    if isinstance(value, str):
        return replace_surrogates(value) or None
    if isinstance(value, float):
        if math.isnan(value):
            return None
        value = int(value) if value.is_integer() else value
    return str(value).lower() if isinstance(value, int | float) else None


def label_of(value: object) -> str | None:
    """Return a cell as the name of a label, without surrounding white space.

    >>> label_of(" positive "), label_of(1), label_of("  ")
    ('positive', '1', None)
    """
    return (text_of(value) or "").strip() or None


def number_of(value: object) -> float | None:
    """Return a cell as a finite number.

    >>> number_of("4.5"), number_of(3), number_of("NaN"), number_of("four")
    (4.5, 3.0, None, None)
    """
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return None
    if isinstance(value, str) and "_" in value:  # Python reads 1_000 as a number; data do not
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


def list_of(value: object) -> list[object] | None:
    """Return a cell as a list: a list, or a text that JSON, Python or numpy wrote for one.

    >>> list_of('["a", "b"]'), list_of("['a', 'b']"), list_of("['a' 'b']"), list_of("a b")
    (['a', 'b'], ['a', 'b'], ['a', 'b'], None)
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
    return [re.sub(r"\\(.)", r"\1", single or double) for single, double in _QUOTED.findall(inside)]


# What a user says: role=name


@dataclass(frozen=True)
class Columns:
    """The columns of each role, most often one; `has_header` says whether the first line has their names."""

    names: Mapping[Role, Names]
    has_header: bool | None = None

    def all(self, role: Role) -> Names:
        """Return the columns that share a role."""
        return self.names.get(role, ())

    def cell(self, row: Row, role: Role) -> object:
        """Return the cell of a role in a row, the first of several; None without one."""
        return next((row.get(name) for name in self.all(role)), None)

    @property
    def used(self) -> Names:
        """The columns that have a role."""
        return tuple(chain.from_iterable(self.names.values()))

    def words(self) -> Names:
        """Return the assignments that a user would type for these columns.

        >>> Columns({"text": ("1",), "choices": ("2", "3")}, has_header=False).words()
        ('text=1', 'choices=2,3', 'header=no')
        """
        words = tuple(f"{role}={','.join(names)}" for role, names in self.names.items())
        return words if self.has_header is not False else (*words, "header=no")

    def require_in(self, columns: Sequence[str], *, without: Collection[Role] = (), where: str = "") -> None:
        """Check that a table has the columns of all roles, or of all but some."""
        for role, name in ((role, name) for role, names in self.names.items() for name in names):
            if role not in without and name not in columns:
                what, advice = f"there is no column {name}{where}", did_you_mean(name, columns)
                wanted, advice = f"one of {', '.join(columns)}", f"--column {role}=NAME ({advice})"
                raise RequestError("LB-851", what, received=f"{role}={name}", expected=wanted, next=advice)


HEADERS = {"header=yes": True, "header=no": False}


def chosen_columns(words: Iterable[str], columns: Sequence[str] | None = None) -> Columns:
    """Read assignments as a user types them: role=name, role=name,name for several columns, header=yes or header=no.

    Names must be among `columns`, if these are known.
    """
    names, has_header = dict[Role, Names](), None
    for word in words:
        if word in HEADERS:
            has_header = HEADERS[word]
            continue
        role, _, name = word.partition("=")
        role = SYNONYMS.get(role, role)
        if role not in ROLES or not name:
            wanted = f"ROLE=NAME, with a role of {', '.join(ROLES)}; or header=no"
            advice = f"--column text=NAME ({did_you_mean(role, ROLES)})"
            raise RequestError("LB-850", f"{word} does not say what a column is", expected=wanted, next=advice)
        is_one = role not in SEVERAL or name in (columns or ())
        names[role] = (name,) if is_one else tuple(name.split(","))
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


def are_worded(cells: Sequence[object]) -> bool:
    """Whether most cells have several words."""
    values = strings_of(cells)
    if not values or len(values) * 2 < len(cells):
        return False
    num_worded = sum(" " in value or not value.isascii() for value in values)
    return num_worded * 2 > len(values) and fmean(map(len, values)) >= _TEXT_CHARACTERS


def are_texts(cells: Sequence[object]) -> bool:
    """Whether most cells have several words, and most of these differ."""
    values = strings_of(cells)
    return are_worded(cells) and len(set(values)) * 2 > len(values)


def are_labels(cells: Sequence[object]) -> bool:
    """Whether there are few distinct values, or fractions, or nothing but lists."""
    filled = [value for cell in cells if (value := label_of(cell)) is not None]
    numbers = [number for value in filled if (number := number_of(value)) is not None]
    num_distinct = len(set(filled))
    if not filled:
        return has_list(cells)
    if len(numbers) < len(filled):
        return 1 < num_distinct <= max(2, len(filled) // 2)
    return num_distinct > 1 and (num_distinct * 2 <= len(filled) or not all(map(float.is_integer, numbers)))


def has_list(cells: Sequence[object]) -> bool:
    """Whether any cell is a list, or a text that is a list."""
    return any(list_of(cell) is not None for cell in cells)


# What is guessed: by the names that people use, otherwise by what stands in the first rows

_NUMBERED = re.compile(r"(.*?)[ _-]?([0-9]|[a-e])", re.IGNORECASE)
_FEWEST = {"": 3} | dict.fromkeys(
    ("choice", "option", "opt", "op", "ending", "answer", "ans", "sol", "solution", "candidate",
     "alternative"), 2
)  # fmt: skip
"""How many columns ending in a number or letter, by what is before it, are choices."""


def guess_columns(
    names: Sequence[str], sample: Sequence[Row], chosen: Columns, shape: RowShape | None
) -> tuple[RowShape, Columns]:
    """Return what the rows are and which column plays which role.

    What was chosen stays; `shape` None is guessed, too.
    """
    guess = _Guess(names, sample, chosen)
    shape = shape or guess.shape()
    for role in chosen.names:
        if role not in ROLES_OF[shape]:
            received = f"{role}={','.join(chosen.all(role))}"
            wanted = f"one of {', '.join(ROLES_OF[shape])}, as these rows look like {shape}"
            advice = "omit this choice; or name the problem: --problem NAME"
            raise RequestError("LB-841", f"these rows have no {role}", received=received, expected=wanted, next=advice)
    if shape == "texts":
        guess.texts()
    elif shape == "choices":
        guess.choices()
    else:
        for role in ROLES_OF[shape]:
            guess.found[role] = guess.named(role)
            if not guess.found[role] and role not in (*LEARNT, "id"):
                guess.cannot_tell(role, [])
    found = {role: guess.found[role] for role in ROLES_OF[shape] if guess.found[role]}
    return shape, Columns(found, chosen.has_header)


class _Guess:
    def __init__(self, names: Sequence[str], sample: Sequence[Row], chosen: Columns) -> None:
        self.names, self.chosen, self.found = names, chosen, dict[Role, Names]()
        self.cells = {name: [row.get(name) for row in sample] for name in names}
        self.by_normal = {normal(name): name for name in reversed(names)}  # the first of several counts

    def shape(self) -> RowShape:
        """Tell from a chosen role that only one shape has, then from names with what stands in the columns."""
        for shape, roles in ROLES_OF.items():
            of_others = chain.from_iterable(own for other, own in ROLES_OF.items() if other != shape)
            if ({*roles} - {*of_others}) & {*self.chosen.names}:
                return shape
        tokens = self.named("tokens")
        if tokens and (self.named("tags") or has_list(self.cells[tokens[0]])):
            return "words"
        if self.named("question") and self.named("context"):
            answers = self.named("answers")
            if self.named("start") or (answers and "answer_start" in str(self.cells[answers[0]])):
                return "spans"
        return "choices" if self.columns_of_choices() else "texts"

    def texts(self) -> None:
        """Find a text, or a pair of texts by their usual names, with a label."""
        found, chosen, pair = self.found, self.chosen, Names()
        if not chosen.all("text") and not chosen.all("second"):
            pairs = (tuple(self.by_normal.get(name, "") for name in pair) for pair in PAIRS)
            pair = next((pair for pair in pairs if all(pair) and not set(pair) & set(chosen.used)), ())
        found["text"] = pair[:1] or self.named("text") or self.only("text", self.like_text())
        found["second"] = chosen.all("second") or pair[1:]
        found["label"] = self.named("label")
        found["id"] = self.named("id")
        if not found["label"]:  # the only other column that looks like labels, if there is one
            like = [name for name in self.free() if are_labels(self.cells[name])]
            found["label"] = self.only("label", like) if like else ()

    def choices(self) -> None:
        """Find choices, which one is right, and the question."""
        found = self.found
        found["choices"] = self.columns_of_choices() or self.cannot_tell("choices", [])
        found["label"] = self.chosen.all("label") or self.first([*CHOSEN, *NAMES["label"]])
        found["question"] = self.named("question")
        found["context"] = self.named("context")
        if not found["question"] and not found["context"]:
            found["question"] = self.only("question", self.like_text())
        found["id"] = self.named("id")

    def columns_of_choices(self) -> Names:
        """Find the column with the list of choices, or the columns with one choice each."""
        named = self.named("choices")
        cells = self.cells[named[0]] if named and not self.chosen.all("choices") else []
        if self.chosen.all("choices") or has_list(cells) or any(isinstance(cell, Mapping) for cell in cells):
            return named
        stems: dict[str, list[str]] = {}
        for name in self.names:
            if numbered := _NUMBERED.fullmatch(name):
                stems.setdefault(normal(numbered[1]), []).append(name)
        alike = [group for stem, group in stems.items() if len(group) >= _FEWEST.get(stem, 99)]
        spelt = [tuple(group) for group in alike if not group[0].isdigit()]
        return max(spelt, key=len, default=())

    def free(self) -> list[str]:
        """Return the columns without a role."""
        taken = {*self.chosen.used, *chain.from_iterable(self.found.values())}
        return [name for name in self.names if name not in taken]

    def like_text(self) -> list[str]:
        """Return free columns of texts; else of texts that repeat; else of strings but no labels."""
        free = self.free()
        if len(free) == 1:
            return free
        strings = [name for name in free if strings_of(self.cells[name])]
        return (
            [name for name in strings if are_texts(self.cells[name])]
            or [name for name in strings if are_worded(self.cells[name])]
            or [name for name in strings if not are_labels(self.cells[name])]
        )

    def named(self, role: Role) -> Names:
        """Return the chosen column of a role, or the free one with its usual name."""
        return self.chosen.all(role) or self.first(NAMES[role])

    def first(self, names: Sequence[str]) -> Names:
        """Return the first of some usual names that a free column has."""
        free = self.free()
        there = (self.by_normal[name] for name in names if name in self.by_normal)
        return next(((name,) for name in there if name in free), ())

    def only(self, role: Role, candidates: Sequence[str]) -> Names:
        return tuple(candidates) if len(candidates) == 1 else self.cannot_tell(role, candidates)

    def cannot_tell(self, role: Role, candidates: Sequence[str]) -> Names:
        which = f"{' and '.join(candidates)} could be it" if candidates else "none looks like it"
        advice = f"--column {shlex.quote(f'{role}={candidates[0]}' if candidates else f'{role}=NAME')}"
        raise RequestError(
            "LB-854",
            f"it is unclear which column is the {role}: {which}",
            received=f"columns {', '.join(self.names)}",
            expected="a usual name, or one column alone that looks like it",
            next=pair_flags(candidates) if role == "text" and len(candidates) == 2 else advice,
        )


def pair_flags(names: Sequence[str]) -> str:
    """Return the flags that make two columns a pair of texts."""
    pair = zip(("text", "second"), names, strict=True)
    return " ".join(f"--column {shlex.quote(f'{part}={name}')}" for part, name in pair)
