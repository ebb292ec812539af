"""The guess at the columns of a table, by their usual names, otherwise by the cells of
the first rows.
"""

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain

from litebert.errors import RequestError
from litebert.reading.tables import Row
from litebert.tasks.own.cells import (
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
from litebert.tasks.own.columns import (
    NAMES,
    Columns,
    Names,
    Role,
    normalize_name,
    pair_flags,
)

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


# last words of the names of columns that tell rows apart: Ticket ID, phrase_id
ENDS_OF_IDENTIFIERS = (["id"], ["uuid"], ["guid"])

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
        # the columns of objects, whose parts are columns: a of a.b.c, and a.b
        self._with_parts = set[str]()
        for name in self.names:
            parent = name.rpartition(".")[0]
            while parent:
                self._with_parts.add(parent)
                parent = parent.rpartition(".")[0]
        # the first of several counts
        self.by_normal = {
            normalize_name(name.rpartition(".")[2]): name
            for name in reversed(self.names)
        } | {normalize_name(name): name for name in reversed(self.names)}

    def cells(self, name: str) -> list[object]:
        """Return the cells of a column in the first rows."""
        return [row.get(name) for row in self.sample]

    def free_columns(self) -> list[str]:
        """Return the columns that have no role yet; not those of objects, whose parts
        are columns.
        """
        taken = {*chain(*self.assigned.values())}
        return [
            name
            for name in self.names
            if name not in taken and not self._has_parts(name)
        ]

    def _has_parts(self, name: str) -> bool:
        return name in self._with_parts

    def usual(self, role: Role, more: Sequence[str] = ()) -> Names:
        """Return the chosen column of a role, or the first free one with a usual
        name.
        """
        if self.assigned.get(role):
            return self.assigned[role]
        free = self.free_columns()
        names = [self.by_normal.get(usual) for usual in (*more, *NAMES.get(role, ()))]
        if role in _OF_OBJECTS:
            free += [name for name in self.names if self._has_parts(name)]
        usual = [name for name in names if name is not None and name in free]
        if role == "text":
            filled = [name for name in usual if self._is_filled(name)]
            usual = filled or usual
        if role == "label":  # one that is the same everywhere teaches nothing
            varied = [name for name in usual if self._num_values(name) > 1]
            usual = varied or usual
        if role == "id" and not usual:
            usual = self._identifiers()
        return tuple(usual[:1])

    def _identifiers(self) -> list[str]:
        """Return the free columns such as Ticket ID, whose names end in a word for an
        identifier, with another value in each row.
        """
        identifiers = list[str]()
        for name in self.free_columns():
            cells = self.cells(name)
            values = {label_of(cell) for cell in cells}
            is_unique = len(values) == len(cells) and None not in values
            is_named = words_of(name)[-1:] in ENDS_OF_IDENTIFIERS
            if is_named and is_unique and not have_words(cells):
                identifiers.append(name)
        return identifiers

    def find_usual(self, roles: Sequence[Role]) -> None:
        """Give roles to the columns that have a usual name."""
        for role in roles:
            self.assigned[role] = self.usual(role)

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
            which = f"{' and '.join(candidates)} could be it"
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
        names = tuple(candidates[:1])
        if role == "label" and candidates:
            marks = [name for name in self.free_columns() if self._has_marks(name)]
            names = (min(reversed(candidates), key=self._num_values),)
            if len(marks) > 1:  # a column for each label
                names = tuple(marks)
        if not names:
            names = tuple(self.free_columns()[-1:]) or ("NAME",)
        word = Columns({role: names}).words()[0]
        return f"--column {shlex.quote(word)}"

    def _is_filled(self, name: str) -> bool:
        """Return whether most cells of a column have something in them."""
        num_empty = sum(cell in (None, "") for cell in self.cells(name))
        return num_empty * 2 <= len(self.sample)

    def _num_values(self, name: str) -> int:
        return len({label_of(cell) for cell in self.cells(name)})

    def likely_labels(self) -> list[str]:
        """Return the free columns with a usual word in their names that are not texts;
        else those that look like labels. Dates are none.
        """
        free = [name for name in self.free_columns() if not are_dates(self.cells(name))]
        named = [name for name in free if has_usual_word(name, "label")]
        named = [name for name in named if not have_words(self.cells(name))]
        if not named:
            return [name for name in free if self._has_labels(name)]
        # airline_sentiment_confidence is about airline_sentiment
        return [
            name
            for name in named
            if not any(name.startswith(f"{other}_") for other in named)
        ]

    def _has_labels(self, name: str) -> bool:
        cells = self.cells(name)
        return are_labels(cells) or are_joined_labels(cells)

    def label_marks(self) -> Names:
        """Return three or more free columns of 0 and 1, which are a column for each
        label.
        """
        marks = [name for name in self.free_columns() if self._has_marks(name)]
        has_both = [name for name in marks if self._num_values(name) > 1]
        return tuple(marks) if len(marks) > 2 and len(has_both) > 1 else ()

    def _has_marks(self, name: str) -> bool:
        cells = self.cells(name)
        return not has_list(cells) and all(mark_of(cell) in (0, 1) for cell in cells)

    def choices(self) -> Names:
        """Return the columns of choices: one of lists or objects, or columns that are
        numbered: ending0, ending1, …
        """
        choices = self.usual("choices")
        if "choices" in self.assigned:
            return choices
        for cell in self.cells(choices[0]) if choices else ():
            if isinstance(cell, Mapping) or list_of(cell) is not None:
                return choices
        return _find_numbered(self.names)

    def texts(self) -> list[str]:
        """Return the free columns of mostly distinct texts; else of any texts; else of
        strings that are not labels. Dates and labels that are joined are none.
        """
        free = [name for name in self.free_columns() if not are_dates(self.cells(name))]
        if len(free) == 1:
            return free
        worded = [name for name in free if have_words(self.cells(name))]
        texts = [name for name in worded if not are_joined_labels(self.cells(name))]
        varied = [name for name in texts if are_varied(self.cells(name))]
        strings = [name for name in free if strings_of(self.cells(name))]
        words = [name for name in strings if not are_labels(self.cells(name))]
        return varied or texts or words


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
