"""The roles of the columns of a table: their usual names, and what users type."""

import csv
import io
import shlex
import tomllib
import unicodedata
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import TypeAlias

from litebert.errors import RequestError, did_you_mean
from litebert.plugins import TASK_KINDS
from litebert.reading.tables import Row

Role: TypeAlias = str
Names: TypeAlias = tuple[str, ...]
# words such as text=review or, in Python, a column or several for each role
ColumnChoices: TypeAlias = Mapping[str, str | bool | Sequence[str]] | Sequence[str]
SYNONYMS = {"pair": "second"}  # other names of roles, which commands may use
# the roles of all kinds of task: which rows are trained on
OF_ALL_KINDS: tuple[Role, ...] = ("split",)
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
_USUAL_NAMES = frozenset(chain(CHOSEN, *NAMES.values(), *PAIRS))


def roles() -> tuple[Role, ...]:
    """Return the roles that columns can have, of all kinds of task."""
    names: dict[Role, None] = {}
    for kind in TASK_KINDS.values():
        if kind.reading is not None:
            names.update(dict.fromkeys(kind.reading.roles))
    return (*names, *OF_ALL_KINDS)


def normalize_name(name: str) -> str:
    """Return a column's name normalized for comparison: letters and digits, in lower
    case, without accents.

    >>> normalize_name("Catégorie 2"), normalize_name("Gold-Label")
    ('categorie2', 'goldlabel')
    """
    plain = unicodedata.normalize("NFD", name)
    return "".join(filter(str.isalnum, plain)).lower()


def is_usual_name(name: str) -> bool:
    """Return whether columns of some role are often called so."""
    return normalize_name(name) in _USUAL_NAMES


# ---- what users type: role=name ------------------------------------------------------


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

    @property
    def sentence(self) -> str | None:
        """The column that tells sentences apart in a table with a word in each row."""
        return next(iter(self.all("sentence")), None)

    def cell(self, row: Row, role: Role) -> object:
        """Return the cell of a role in a row, the first of several; None without
        one.
        """
        return next((row.get(name) for name in self.all(role)), None)

    def without(self, role: Role) -> "Columns":
        """Return the columns of all other roles."""
        names = dict(self.names)
        names.pop(role, None)
        return Columns(names, self.has_header)

    def words(self) -> Names:
        """Return the assignments that a user would type for these columns."""
        words = list[str]()
        for role, names in self.names.items():
            name = _joined(names) if role in SEVERAL else names[0]
            words.append(f"{role}={name}")
        if self.has_header is False:
            words.append("header=no")
        return tuple(words)

    def require_in(
        self, columns: Sequence[str], *, without: Collection[Role] = (), where: str = ""
    ) -> None:
        """Check that a table has the columns of all roles, except those in
        `without`.
        """
        for role, names in self.names.items():
            if role in without:
                continue
            for name in names:
                if name not in columns:
                    raise _no_such_column(role, name, columns, where)


def _no_such_column(
    role: Role, name: str, columns: Sequence[str], where: str
) -> RequestError:
    return RequestError(
        "LB-851",
        f"there is no column {name}{where}",
        received=f"{role}={name}",
        expected=f"one of {', '.join(columns)}",
        next=f"--column {role}=NAME ({did_you_mean(name, columns)})",
    )


HEADERS = {"header=yes": True, "header=no": False}


def column_words(columns: ColumnChoices) -> Names:
    """Return choices of columns as words, which Python may also give as a mapping.

    >>> column_words({"text": "review", "label": ["toxic", "insult"], "header": False})
    ('text=review', 'label=toxic,insult', 'header=no')
    """
    if isinstance(columns, str):
        return (columns,)
    if not isinstance(columns, Mapping):
        return tuple(columns)
    words = list[str]()
    for role, name in columns.items():
        if isinstance(name, bool):
            written = "yes" if name else "no"
        elif isinstance(name, str):
            written = name
        else:
            written = _joined(name)
        words.append(f"{role}={written}")
    return tuple(words)


def _joined(names: Sequence[str]) -> str:
    """Return names with commas between; one that has a comma is in double quotes."""
    written = io.StringIO()
    csv.writer(written, lineterminator="").writerow(names)
    return written.getvalue()


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
    # accents may be letters of their own, as in names that macOS gives to files
    composed = {unicodedata.normalize("NFC", name): name for name in columns or ()}
    for word in words:
        if word in HEADERS:
            has_header = HEADERS[word]
            continue
        typed_role, _, typed_name = word.partition("=")
        role = SYNONYMS.get(typed_role, typed_role)
        if role not in roles() or not typed_name:
            raise _no_assignment(word, role)
        name = composed.get(unicodedata.normalize("NFC", typed_name), typed_name)
        is_one_name = name in (columns or names.get(role, ()))
        if role in SEVERAL and not is_one_name:
            names[role] = _split_names(name)
        else:
            names[role] = (name,)
    chosen = Columns(names, has_header)
    if columns is not None:
        chosen.require_in(columns)
    return chosen


def _split_names(text: str) -> Names:
    """Return the different names in a text with commas between."""
    lines = csv.reader(io.StringIO(text, newline=""))
    return tuple(dict.fromkeys(chain(*lines)))


def _no_assignment(word: str, role: Role) -> RequestError:
    hint = "" if role in roles() else f" ({did_you_mean(role, roles())})"
    return RequestError(
        "LB-850",
        f"{word} does not name a column",
        expected=f"ROLE=NAME, with a role of {', '.join(roles())}; or header=no",
        next=f"--column text=NAME{hint}",
    )


def pair_flags(names: Sequence[str]) -> str:
    """Return the flags that make two columns a pair of texts."""
    first, second = names
    words = (f"text={first}", f"second={second}")
    return " ".join(f"--column {shlex.quote(word)}" for word in words)
