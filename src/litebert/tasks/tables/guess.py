"""The guess at the columns of a table, by their usual names, otherwise by the cells of
the first rows.
"""

import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain

from litebert.errors import RequestError
from litebert.reading.tables import Row
from litebert.tasks.tables.cells import (
    are_dates,
    are_joined_labels,
    are_labels,
    are_varied,
    has_list,
    have_words,
    label_of,
    list_of,
    mark_of,
    split_of,
    strings_of,
)
from litebert.tasks.tables.columns import (
    NAMES,
    Columns,
    Names,
    Role,
    normalize_name,
    pair_flags,
)

# the last words of the names of columns that tell rows apart: Ticket ID, phrase_id
_ENDS_OF_IDENTIFIERS = ("id", "uuid", "guid", "no", "nr")

# roles whose cells may be objects
_OF_OBJECTS = ("answers", "choices")


@dataclass
class ColumnGuess:
    """The columns of a table whose roles are being found, by their names and the cells
    of the first rows; `assigned` has those that were chosen.
    """

    names: Sequence[str]
    sample: Sequence[Row]
    chosen: Columns
    assigned: dict[Role, Names] = field(init=False)

    def __post_init__(self) -> None:
        self.assigned = dict(self.chosen.names)
        self.by_normal = _by_normal_name(self.names)
        # columns of objects, whose parts are columns, too
        self._with_parts = _columns_with_parts(self.names)

    def cells(self, name: str) -> list[object]:
        """Return the cells of a column in the first rows."""
        return [row.get(name) for row in self.sample]

    def free_columns(self) -> list[str]:
        """Return the columns that have no role yet; a column of objects is left out,
        since its parts are columns.
        """
        unavailable = {*chain(*self.assigned.values()), *self._with_parts}
        return [name for name in self.names if name not in unavailable]

    def usual(self, role: Role, more: Sequence[str] = ()) -> Names:
        """Return the chosen column of a role, or the first free one with a usual name;
        the names in `more` are likelier than the usual ones.
        """
        if self.assigned.get(role):
            return self.assigned[role]
        free = set(self.free_columns())
        if role in _OF_OBJECTS:
            free |= self._with_parts
        candidates = list[str]()
        for usual_name in (*more, *NAMES.get(role, ())):
            column = self.by_normal.get(usual_name)
            if column in free:
                candidates.append(column)
        if role == "text":
            candidates = _prefer(self._is_filled, candidates)
        if role == "label":  # one that is the same everywhere teaches nothing
            candidates = _prefer(self._has_several_values, candidates)
        if role == "id" and not candidates:
            candidates = self._identifiers()
        return tuple(candidates[:1])

    def _identifiers(self) -> list[str]:
        """Return the free columns such as Ticket ID, whose names end in a word for an
        identifier, with another value in each row.
        """
        identifiers = list[str]()
        for name in self.free_columns():
            cells = self.cells(name)
            values = {label_of(cell) for cell in cells}
            is_unique = len(values) == len(cells) and None not in values
            words = words_of(name)
            is_named = bool(words) and words[-1] in _ENDS_OF_IDENTIFIERS
            if is_named and is_unique and not have_words(cells):
                identifiers.append(name)
        return identifiers

    def find_usual(self, roles: Sequence[Role]) -> None:
        """Give roles to the columns that have a usual name."""
        for role in roles:
            self.assigned[role] = self.usual(role)

    def usual_pair(self, pairs: Sequence[Sequence[str]]) -> Sequence[str]:
        """Return the two free columns with the likeliest pair of usual names; none if no
        such pair is free.
        """
        free = self.free_columns()
        for usual in pairs:
            columns = [self.by_normal.get(name) for name in usual]
            pair = [column for column in columns if column in free]
            if len(pair) == 2:
                return pair
        return ()

    def assign_pair(self, pair: Sequence[str]) -> None:
        """Give the roles of the two texts of a pair."""
        self.assigned["text"] = (pair[0],)
        self.assigned["second"] = (pair[1],)

    def find_split(self) -> None:
        """Give the role of the split to a column with a usual word in its name whose
        cells all name splits.
        """
        if self.assigned.get("split"):
            return
        for name in self.free_columns():
            if not has_usual_word(name, "split"):
                continue
            if all(map(split_of, self.cells(name))):
                self.assigned["split"] = (name,)
                return

    def require_one(self, role: Role, candidates: Sequence[str]) -> None:
        """Give a role to the only candidate, or the only one with a usual word in its
        name; with none or several, raise: the user must choose.
        """
        named = [name for name in candidates if has_usual_word(name, role)]
        if len(named) == 1 or len(candidates) == 1:
            self.assigned[role] = tuple(named or candidates)
            return
        which = "none looks like it"
        if candidates:
            *first, last = candidates
            listed = f"{', '.join(first)} and {last}" if first else last
            which = f"{listed} could be it"
        raise RequestError(
            "LB-854",
            f"cannot tell which column is the {role}: {which}",
            received=f"columns {', '.join(self.names)}",
            expected="a usual name, or exactly one column that looks like it",
            next=self._advice(role, named or candidates),
        )

    def _advice(self, role: Role, candidates: Sequence[str]) -> str:
        """Return the flag with the likeliest column: of labels the one with the fewest
        values, and the last of several, where tables have what is to be learned.
        """
        if role == "text" and len(candidates) == 2:
            return pair_flags(candidates)
        likely = candidates[:1] or self.free_columns()[-1:] or ["NAME"]
        names = tuple(likely)
        if role == "label" and candidates:
            names = (min(reversed(candidates), key=self._num_values),)
            marks = self._columns_of_marks()
            if len(marks) > 1:  # a column for each label
                names = tuple(marks)
        word = Columns({role: names}).words()[0]
        return f"--column {shlex.quote(word)}"

    # ---- labels ----

    def likely_labels(self) -> list[str]:
        """Return the free columns with a usual word in their names, unless they are
        texts; else the columns that look like labels. Dates are left out.
        """
        free = self._free_without_dates()
        named = list[str]()
        for name in free:
            if has_usual_word(name, "label") and not have_words(self.cells(name)):
                named.append(name)
        if not named:
            return [name for name in free if self._has_labels(name)]
        # airline_sentiment_confidence is about airline_sentiment
        beginnings = tuple(f"{name}_" for name in named)
        return [name for name in named if not name.startswith(beginnings)]

    def _has_labels(self, name: str) -> bool:
        cells = self.cells(name)
        return are_labels(cells) or are_joined_labels(cells)

    def label_marks(self) -> Names:
        """Return three or more free columns of 0 and 1, which are a column for each
        label; none unless two of them have both.
        """
        marks = self._columns_of_marks()
        num_varied = sum(map(self._has_several_values, marks))
        if len(marks) < 3 or num_varied < 2:
            return ()
        return tuple(marks)

    def _columns_of_marks(self) -> list[str]:
        """Return the free columns whose cells say yes or no."""
        return [name for name in self.free_columns() if self._has_marks(name)]

    def _has_marks(self, name: str) -> bool:
        cells = self.cells(name)
        have_marks = all(mark_of(cell) in (0, 1) for cell in cells)
        return have_marks and not has_list(cells)

    # ---- choices and texts ----

    def choices(self) -> Names:
        """Return the columns of choices: one of lists or objects, or columns that are
        numbered: ending0, ending1, …
        """
        choices = self.usual("choices")
        if "choices" in self.assigned:
            return choices
        if choices and any(map(_has_members, self.cells(choices[0]))):
            return choices
        return _numbered_columns(self.names)

    def texts(self) -> list[str]:
        """Return the free columns of mostly distinct texts; else of any texts; else of
        strings that are not labels. Dates and joined labels are left out.
        """
        free = self._free_without_dates()
        if len(free) == 1:
            return free
        worded = [name for name in free if have_words(self.cells(name))]
        texts = [name for name in worded if not are_joined_labels(self.cells(name))]
        if texts:
            return _prefer(lambda name: are_varied(self.cells(name)), texts)
        strings = [name for name in free if strings_of(self.cells(name))]
        return [name for name in strings if not are_labels(self.cells(name))]

    # ---- what cells are like ----

    def _free_without_dates(self) -> list[str]:
        return [name for name in self.free_columns() if not are_dates(self.cells(name))]

    def _is_filled(self, name: str) -> bool:
        """Return whether most cells of a column have something in them."""
        num_empty = sum(cell in (None, "") for cell in self.cells(name))
        return num_empty * 2 <= len(self.sample)

    def _has_several_values(self, name: str) -> bool:
        return self._num_values(name) > 1

    def _num_values(self, name: str) -> int:
        return len({label_of(cell) for cell in self.cells(name)})


def _by_normal_name(names: Sequence[str]) -> dict[str, str]:
    """Return columns by their normalized names, or the parts after the last dot; the
    first of several counts.
    """
    by_name = dict[str, str]()
    for name in names:
        by_name.setdefault(normalize_name(name), name)
    for name in names:
        by_name.setdefault(normalize_name(name.rpartition(".")[2]), name)
    return by_name


def _columns_with_parts(names: Sequence[str]) -> set[str]:
    """Return the columns of which others are parts: of a.b.c, a.b and a."""
    parents = set[str]()
    for name in names:
        parent = name.rpartition(".")[0]
        while parent:
            parents.add(parent)
            parent = parent.rpartition(".")[0]
    return parents & set(names)


def _prefer(test: Callable[[str], bool], names: list[str]) -> list[str]:
    """Return the names that pass a test; if none does, all."""
    return [name for name in names if test(name)] or names


def _has_members(cell: object) -> bool:
    return isinstance(cell, Mapping) or list_of(cell) is not None


# ---- the words of a name -------------------------------------------------------------


def has_usual_word(name: str, role: Role) -> bool:
    """Return whether a usual name of a role is a word of a column's name.

    >>> has_usual_word("Rating (1-5)", "label"), has_usual_word("When", "label")
    (True, False)
    """
    return any(word in NAMES[role] for word in words_of(name))


def words_of(name: str) -> list[str]:
    """Return the words of a column's name, normalized for comparison.

    >>> words_of("Ticket ID"), words_of("phrase_id"), words_of("PhraseId")
    (['ticket', 'id'], ['phrase', 'id'], ['phrase', 'id'])
    """
    divided = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name)
    return [normalize_name(word) for word in re.findall(r"[^\W\d_]+", divided)]


# ---- columns of choices --------------------------------------------------------------

_NUMBERED = re.compile(r"(.*?)[ _-]?([0-9]|[a-e])", re.IGNORECASE).fullmatch
# What comes before the number or letter, normalized. Two columns that are called so are
# choices; of columns that have nothing before it, a, b and c, it takes three.
_STEMS = (
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
)
_FEWEST = {"": 3} | dict.fromkeys(_STEMS, 2)


def _numbered_columns(names: Sequence[str]) -> Names:
    """Return the columns whose names differ only in a number or letter at the end; of
    several such groups, the largest.
    """
    groups = dict[str, list[str]]()  # by the stem of their names
    for name in names:
        numbered = _NUMBERED(name)
        if numbered:
            groups.setdefault(normalize_name(numbered[1]), []).append(name)
    largest: Names = ()
    for stem, group in groups.items():
        is_known = stem in _FEWEST and len(group) >= _FEWEST[stem]
        # columns without names are called 1, 2, 3
        if is_known and not group[0].isdigit() and len(group) > len(largest):
            largest = tuple(group)
    return largest
