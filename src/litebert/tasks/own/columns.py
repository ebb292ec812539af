"""Columns of a table: what stands in their cells, what a user says they are, and what can be guessed."""

from __future__ import annotations

import json
import math
import re
import shlex
import tomllib
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Literal, TypeAlias, get_args

from litebert.errors import RequestError, did_you_mean
from litebert.reading.tables import Row
from litebert.tokenizer.models import replace_surrogates

RowShape: TypeAlias = Literal["texts", "words", "choices", "spans"]
Names: TypeAlias = tuple[str, ...]
Role: TypeAlias = Literal[
    "id", "text", "second", "label", "tokens", "tags", "context", "question", "choices", "answers",
    "start",
]  # fmt: skip
ROLES: tuple[Role, ...] = get_args(Role)
SYNONYMS = {"pair": "second"}
"""Other names of roles, which commands may use."""
SEVERAL: tuple[Role, ...] = ("label", "choices")
"""Roles that several columns can share: a column for each label, or for each choice."""
LEARNT: tuple[Role, ...] = ("label", "tags", "answers", "start")
"""Roles that are not needed in a file without labels."""

# The usual names of columns, without spaces and signs, the likelier first: names.toml
_USUAL = tomllib.loads(Path(__file__).with_name("names.toml").read_text(encoding="utf-8"))
PAIRS: Sequence[Sequence[str]] = _USUAL["pairs"]
NAMES: Mapping[Role, Sequence[str]] = _USUAL["roles"]
CHOSEN: Sequence[str] = _USUAL["chosen"]
"""More names of the label column if it says which choice is right."""
KNOWN_NAMES = frozenset([*CHOSEN, *(name for names in (*NAMES.values(), *PAIRS) for name in names)])


def normal(name: str) -> str:
    """Return a column's name normalised for comparison: letters and digits, in lower case.

    >>> normal("Review Text"), normal("sentence_A")
    ('reviewtext', 'sentencea')
    """
    return "".join(filter(str.isalnum, name)).lower()


# What stands in a cell; None if nothing does

_QUOTED = re.compile(r"'((?:[^'\\]|\\.)*)'|\"((?:[^\"\\]|\\.)*)\"")
_BETWEEN = re.compile(r"[\s,]*")


def text_of(value: object) -> str | None:
    """Return a cell as text.

    >>> text_of("a b"), text_of(3.0), text_of(True), text_of(""), text_of(float("nan"))
    ('a b', '3', 'true', None, None)
    """
    if isinstance(value, str):
        return replace_surrogates(value) or None
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float) and not math.isnan(value):
        return str(int(value)) if value.is_integer() else repr(value)
    return None


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
    strings: list[object] = []
    end = 0
    for found in _QUOTED.finditer(inside):
        if not _BETWEEN.fullmatch(inside, end, found.start()):
            return None
        strings.append(re.sub(r"\\(.)", r"\1", found[1] if found[1] is not None else found[2]))
        end = found.end()
    return strings if _BETWEEN.fullmatch(inside, end) else None


# What a user says: role=name


@dataclass(frozen=True)
class Columns:
    """The columns of each role, most often one; `has_header` says whether the first line has their names."""

    names: Mapping[Role, Names]
    has_header: bool | None = None

    def one(self, role: Role) -> str | None:
        """Return the column of a role, the first of several; None if it has none."""
        return next(iter(self.all(role)), None)

    def all(self, role: Role) -> Names:
        """Return the columns that share a role."""
        return self.names.get(role, ())

    @property
    def used(self) -> Names:
        """The columns that have a role."""
        return tuple(name for names in self.names.values() for name in names)

    def words(self) -> Names:
        """Return the assignments that a user would type for these columns.

        >>> Columns({"text": ("1",), "choices": ("2", "3")}, has_header=False).words()
        ('text=1', 'choices=2,3', 'header=no')
        """
        words = tuple(f"{role}={','.join(names)}" for role, names in self.names.items())
        return words if self.has_header is not False else (*words, "header=no")

    def require_in(self, columns: Sequence[str], *, without: Collection[Role] = (), where: str = "") -> None:
        """Check that a table has the columns of all roles, or of all but some."""
        pairs = [(role, name) for role, names in self.names.items() if role not in without for name in names]
        for role, name in pairs:
            if name not in columns:
                what, advice = f"there is no column {name}{where}", did_you_mean(name, columns)
                wanted, advice = f"one of {', '.join(columns)}", f"--column {role}=NAME ({advice})"
                raise RequestError("LB-851", what, received=f"{role}={name}", expected=wanted, next=advice)


HEADERS = {"header=yes": True, "header=no": False}


def chosen_columns(words: Iterable[str], columns: Sequence[str] | None = None) -> Columns:
    """Read assignments as a user types them: role=name, role=name,name for several columns, header=yes or header=no.

    Names must be among `columns`, if these are known.
    """
    names: dict[Role, Names] = {}
    has_header = None
    for word in words:
        if word in HEADERS:
            has_header = HEADERS[word]
            continue
        role, equals, name = word.partition("=")
        role = SYNONYMS.get(role, role)
        if role not in ROLES or not equals or not name:
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

_TEXT_CHARACTERS = 10
"""The mean length of texts, at least."""


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

_SIGNS: Mapping[Role, RowShape] = {
    "choices": "choices",
    "tokens": "words",
    "tags": "words",
    "start": "spans",
    "answers": "spans",
    "text": "texts",
    "second": "texts",
}
"""A column chosen for one of these says what the rows are."""
_POSE: Mapping[RowShape, str] = {
    "texts": "texts with a label",
    "words": "words with tags",
    "choices": "questions with choices",
    "spans": "questions on a context",
}
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

    >>> rows = [{"body": "It was good.", "stars": "5"}, {"body": "I fell asleep.", "stars": "1"}]
    >>> guess_columns(["body", "stars"], rows, Columns({}), None)[1].words()
    ('text=body', 'label=stars')
    """
    guess = _Guess(names, sample, chosen)
    shape = shape or guess.shape()
    if shape == "texts":
        found = guess.texts()
    elif shape == "choices":
        found = guess.choices()
    else:
        needed: tuple[Role, ...] = ("tokens",) if shape == "words" else ("question", "context")
        learnt: tuple[Role, ...] = ("tags",) if shape == "words" else ("answers", "start")
        found = {role: guess.named(role) or guess.cannot_tell(role, []) for role in needed}
        for role in (*learnt, "id"):
            found[role] = guess.named(role, found)
    for role in chosen.names:
        if role not in found:
            received = f"{role}={','.join(chosen.all(role))}"
            wanted = f"one of {', '.join(found)}, as these look like {_POSE[shape]}"
            advice = "omit this choice; or name the problem: --problem NAME"
            raise RequestError("LB-841", f"these rows have no {role}", received=received, expected=wanted, next=advice)
    return shape, Columns({role: columns for role, columns in found.items() if columns}, chosen.has_header)


class _Guess:
    def __init__(self, names: Sequence[str], sample: Sequence[Row], chosen: Columns) -> None:
        self.names, self.chosen = names, chosen
        self.cells = {name: [row.get(name) for row in sample] for name in names}
        self.by_normal = {normal(name): name for name in reversed(names)}  # the first of several counts

    def shape(self) -> RowShape:
        """Tell from chosen roles, then from names together with what stands in the columns."""
        for role, shape in _SIGNS.items():
            if self.chosen.all(role):
                return shape
        tokens = self.named("tokens")
        if tokens and (self.named("tags", {"tokens": tokens}) or has_list(self.cells[tokens[0]])):
            return "words"
        if self.named("question") and self.named("context"):
            answers = self.named("answers")
            if self.named("start") or (answers and "answer_start" in str(self.cells[answers[0]])):
                return "spans"
        return "choices" if self.columns_of_choices() else "texts"

    def texts(self) -> dict[Role, Names]:
        """Find a text, or a pair of texts by their usual names, with a label."""
        text, second = self.chosen.all("text"), self.chosen.all("second")
        if not text:
            pairs = (tuple(self.by_normal.get(name, "") for name in pair) for pair in PAIRS)
            whole = (pair for pair in pairs if all(pair) and not set(pair) & set(self.chosen.used))
            pair = () if second else next(whole, ())
            text = pair[:1] or self.named("text") or self.only(self.like_text(()), "text")
            second = second or pair[1:]
        found: dict[Role, Names] = {"text": text, "second": second, "label": ()}
        found["label"] = self.named("label", found)
        if not found["label"]:  # the only other column that looks like labels, if there is one
            taken = (*text, *second, *self.named("id", found))
            like = [name for name in self.names if name not in taken and are_labels(self.cells[name])]
            found["label"] = self.only(like, "label") if like else ()
        return {**found, "id": self.named("id", found)}

    def choices(self) -> dict[Role, Names]:
        """Find choices, the question, and which choice is right."""
        found: dict[Role, Names] = {"question": (), "context": ()}
        found["choices"] = self.columns_of_choices() or self.cannot_tell("choices", [])
        found["label"] = self.chosen.all("label") or self.first([*CHOSEN, *NAMES["label"]], found)
        found["question"] = self.named("question", found)
        found["context"] = self.named("context", found)
        if not found["question"] and not found["context"]:
            found["question"] = self.only(self.like_text((*found["choices"], *found["label"])), "question")
        return {**found, "id": self.named("id", found)}

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

    def like_text(self, taken: Names) -> list[str]:
        """Return columns of texts; else of texts that repeat; else of strings but no labels."""
        free = [name for name in self.names if name not in (*taken, *self.chosen.used)]
        if len(free) == 1:
            return free
        strings = [name for name in free if strings_of(self.cells[name])]
        return (
            [name for name in strings if are_texts(self.cells[name])]
            or [name for name in strings if are_worded(self.cells[name])]
            or [name for name in strings if not are_labels(self.cells[name])]
        )

    def named(self, role: Role, found: Mapping[Role, Names] | None = None) -> Names:
        """Return the chosen column of a role, or the free one with its usual name."""
        return self.chosen.all(role) or self.first(NAMES[role], found)

    def first(self, names: Sequence[str], found: Mapping[Role, Names] | None = None) -> Names:
        """Return the first of some usual names that a free column has."""
        taken = {*self.chosen.used, *(name for columns in (found or {}).values() for name in columns)}
        there = (self.by_normal[name] for name in names if name in self.by_normal)
        return next(((name,) for name in there if name not in taken), ())

    def only(self, candidates: Sequence[str], role: Role) -> Names:
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
    """Return the flags that make two columns a pair of texts.

    >>> pair_flags(["premise", "my claim"])
    "--column text=premise --column 'second=my claim'"
    """
    pair = zip(("text", "second"), names, strict=True)
    return " ".join(f"--column {shlex.quote(f'{part}={name}')}" for part, name in pair)
