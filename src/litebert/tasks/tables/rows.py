"""How the rows of a user's own file become the examples of a kind of task.

Each kind has a `RowReading`: the roles that its columns can have, how they are guessed,
and what a row says. It is settled once, on all rows of the training file; every other
file is read the same way.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from pathlib import Path
from shlex import quote
from typing import Any, ClassVar, Generic, Self

from litebert.config import Splitting
from litebert.errors import LitebertError, RequestError, did_you_mean, format_count
from litebert.reading.tables import Row
from litebert.tasks.kinds.family import Answer, Example, Family
from litebert.tasks.tables.cells import (
    SEPARATORS,
    is_number,
    label_of,
    list_of,
    name_of,
    number_of,
    text_of,
)
from litebert.tasks.tables.columns import OF_ALL_KINDS, Columns, Names, Role
from litebert.tasks.tables.guess import ColumnGuess
from litebert.tasks.tables.layouts import open_table
from litebert.tasks.tables.table import TableFile

_SHOWN_LABELS = 20
# A label with fewer rows cannot be learned and measured. It may be a mistake, such as a
# total below the table, if other labels have many rows.
FEWEST_ROWS = 3
MANY_ROWS = 10
_SHOWN_RARE = 5
# what layouts call the column of a role, if it is not called like the role
NAMED_LIKE: Mapping[Role, Names] = {
    "tokens": ("tokens", "text"),
    "tags": ("tags", "entities", "label"),
}


@dataclass(frozen=True)
class TrainingRows:
    """What a kind of task is settled on: the rows of a training file, and what the user
    chose.
    """

    file: str  # its name in messages
    rows: Callable[[], Iterable[Row]]
    columns: Columns
    problem: str | None = None  # the kind of task; None: it follows from the labels
    labels: tuple[str, ...] = ()  # in the user's order; (): sorted
    skips_unlabeled: bool = False


@dataclass(frozen=True)
class RowReading(ABC, Generic[Example, Answer]):
    """Turns the rows of one kind of task into examples; `labels` are the names of
    labels, tags or choices in the file.
    """

    columns: Columns
    problem: str
    labels: tuple[str, ...] = ()
    splitting: Splitting = "words"
    """How a text is divided into words, if its words have tags."""
    first_number: int | None = None
    """The number that the first label has in files, if they give numbers for names."""
    what: ClassVar[str]
    """What the rows are called in messages: texts, words, …"""
    roles: ClassVar[tuple[Role, ...]]
    """The roles that columns can have."""
    learned: ClassVar[tuple[Role, ...]] = ("label",)
    """Those of the right answers, which files without labels lack."""

    # ---- settling: what the columns are, and what the labels are -----------------

    @classmethod
    def are_like(cls, guess: ColumnGuess) -> bool:  # noqa: ARG003
        """Return whether the names and contents of columns look like these rows."""
        return False

    @classmethod
    @abstractmethod
    def guess(cls, guess: ColumnGuess) -> None:
        """Find the column of each role."""

    @classmethod
    @abstractmethod
    def settle(cls, training: TrainingRows) -> tuple[Self, str]:
        """Read all rows of a training file; return how they are read, and a note on
        their labels for the user.
        """

    # ---- reading -----------------------------------------------------------------

    @property
    @abstractmethod
    def family(self) -> Family[Example, Answer]:
        """The kind of task, with its labels."""

    @abstractmethod
    def example(self, id: str, row: Row, place: str, *, is_labeled: bool) -> Example:
        """Turn a row into an example; errors name its place."""

    def group(self, example: Example) -> tuple[str, str]:
        """Return the text and the label by which an example is held out: rows with the
        same text stay together, and the same share of each label is held out.
        """
        return self.family.texts(example)[0], ""

    def lacks_label(self, row: Row) -> bool:
        """Return whether a row has no label to learn."""
        return not members_of(self.columns.cell(row, self.learned[0]))

    def open(self, path: Path, *, is_labeled: bool) -> TableFile:
        """Open a file with the same columns, or with columns that are called like their
        roles; columns of labels are required only with `is_labeled`.
        """
        opened = open_table(
            path,
            has_header=self.columns.has_header is not False,
            sentence=self.columns.sentence,
        )
        table = opened.renamed(self._columns_by_role(opened.columns))
        optional = ("id", "sentence", *OF_ALL_KINDS)
        self._require_names_in(table, path)
        if is_labeled:
            self._require_labels_in(table, path)
        else:
            optional += self.learned
        self.columns.require_in(table.columns, without=optional, where=f" in {path}")
        return table

    def _columns_by_role(self, columns: Sequence[str]) -> dict[str, str]:
        """Return how columns are renamed: one that is called like a role gets the name
        that the column of this role had in training, if no column has that name.

        Folders and lines of words have no other names than those of roles.
        """
        new_names = dict[str, str]()
        taken = {*chain.from_iterable(self.columns.names.values())}
        for role in self.roles:
            trained = self.columns.all(role)
            if len(trained) != 1 or trained[0] in columns:
                continue
            usual = [name for name in NAMED_LIKE.get(role, (role,)) if name in columns]
            if usual and usual[0] not in taken:
                new_names[usual[0]] = trained[0]
        return new_names

    def _require_names_in(self, table: TableFile, path: Path) -> None:
        """Raise if the first line of a file has cells where that of the training file
        had the names of the columns.
        """
        trained = {*chain.from_iterable(self.columns.names.values())}
        if self.columns.has_header is not None or trained & {*table.columns}:
            return
        bare = open_table(path)
        if bare.has_header is not False:
            return
        kind = type(self)
        chosen = Columns({}, has_header=False)
        with suppress(RequestError):  # the likely columns may be several
            _, chosen = guess_columns(bare.columns, bare.sample(), chosen, [kind], kind)
        roles = {role: chosen.all(role) or ("NAME",) for role in self.columns.names}
        assignments = Columns(roles, has_header=False).words()
        raise RequestError(
            "LB-897",
            f"{path} has no names of columns in its first line, as the training data had",
            received=f"columns {', '.join(table.columns)}",
            expected=", ".join(sorted(trained)),
            next=" ".join(f"--column {quote(word)}" for word in assignments),
        )

    def _require_labels_in(self, table: TableFile, path: Path) -> None:
        """Raise if a file has none of the columns of labels, so that its rows can be
        answered but not measured.
        """
        for role in self.learned:
            names = self.columns.all(role)
            if not names or {*names} & {*table.columns}:
                continue
            raise RequestError(
                "LB-896",
                f"{path} has no labels: there is no column {', '.join(names)}",
                received=f"columns {', '.join(table.columns)}",
                expected=f"a column of labels; if it has another name, --column"
                f" {role}=NAME ({did_you_mean(names[0], table.columns)})",
                next="use predict for rows without labels: it takes the same file",
            )

    def example_of(
        self, table: TableFile, number: int, row: Row, *, is_labeled: bool
    ) -> Example:
        """Turn a row of a table into an example; its id is in the id column, or in one
        that is called id, or else its number.
        """
        cell = self.columns.cell(row, "id")
        if cell is None:
            cell = row.get("id")
        id_ = name_of(cell) or str(number)
        place = table.source.place(number)
        return self.example(id_, row, place, is_labeled=is_labeled)

    def text(self, row: Row, role: Role, place: str) -> str:
        """Return the text of a role, "" if the row has none."""
        cell = self.columns.cell(row, role)
        if not isinstance(cell, str | int | float | None):
            name = self.columns.all(role)[0]
            raise LitebertError(
                "LB-824",
                f"{place}: column {name} is not text",
                received=repr(cell),
                next=f"write text; or choose another column: --column {role}=NAME",
            )
        return text_of(cell) or ""

    @cached_property
    def label_indices(self) -> dict[str, int]:
        """The index of each label, by its name, by the name as a cell is read, and by its
        number in files that give numbers.
        """
        indices = dict[str, int]()
        for index, label in enumerate(self.labels):
            indices[label] = index
            indices.setdefault(label_of(label) or label, index)
            if self.first_number is not None:
                indices[str(self.first_number + index)] = index
        return indices

    def label_index(self, label: str | None, place: str) -> int:
        """Return the index of a label."""
        if label is None:
            column = self.columns.all(self.learned[0])[0]
            raise LitebertError(
                "LB-857",
                f"{place}: there is no label in column {column}",
                expected="a label in each row; with --problem multi-label, also none",
                next="correct or delete it; to train without such rows:"
                " data.missing_labels=skip",
            )
        if label not in self.label_indices:
            more = ", …" if len(self.labels) > _SHOWN_LABELS else ""
            hint = did_you_mean(label, self.labels)
            raise LitebertError(
                "LB-858",
                f"{place}: the training data has no label {label}",
                received=label,
                expected=f"one of {', '.join(self.labels[:_SHOWN_LABELS])}{more}",
                next=f"add examples of it for training, or correct it ({hint})",
            )
        return self.label_indices[label]


# ---- labels --------------------------------------------------------------------------


def sort_labels(labels: Iterable[str | None]) -> tuple[str, ...]:
    """Return labels sorted by number or by name, so that the order of rows does not
    matter.
    """
    names = {label for label in labels if label is not None}
    if not all(map(is_number, names)):
        return tuple(sorted(names))
    return tuple(sorted(names, key=lambda label: (number_of(label) or 0.0, label)))


def in_order(
    labels: tuple[str, ...], order: tuple[str, ...], file: str
) -> tuple[str, ...]:
    """Return the labels in the user's order, or those of the file if the user gives no
    `order`; if the file has numbers, `order` gives their names.
    """
    if not order:
        return labels
    names = tuple(label_of(name) or name for name in order)
    unknown = [label for label in labels if label not in names]
    if unknown and first_number(labels, names) is None:
        raise LitebertError(
            "LB-852",
            f"{file} has labels that data.labels does not list",
            received=", ".join(unknown[:_SHOWN_LABELS]),
            expected=f"only {', '.join(names)}",
            next="add them to data.labels, or correct the rows",
        )
    return names


def first_number(labels: Collection[str], names: Sequence[str]) -> int | None:
    """Return the number of the first name, 0 or 1, if the labels of a file are numbers
    for names; None if they are not.

    >>> first_number(["0", "2"], ["O", "B-PER", "I-PER"]), first_number(["a"], ["a"])
    (0, None)
    """
    numbers = [int(label) for label in labels if label.isdecimal()]
    are_all_numbers = bool(numbers) and len(numbers) == len(labels)
    if not are_all_numbers or any(map(is_number, names)):
        return None
    if max(numbers) < len(names):
        return 0
    if max(numbers) == len(names) and min(numbers) > 0:
        return 1
    return None


def require_labels(
    labels: Sequence[str],
    place: str,
    column: str,
    *,
    fewest: int = 2,
    role: Role = "label",
    noun: str = "label",
) -> None:
    """Check that there are enough labels, so that something can be learned; `noun` is
    what a user calls one of them.
    """
    if len(labels) >= fewest:
        return
    what = f"{place}: column {column} has only one {noun}"
    received = "".join(f"{label} in every row" for label in labels)
    advice = f"add rows with other {noun}s"
    if not labels:
        what = f"{place}: column {column} has no labels"
        received = "no label in any row"
        advice = "write a label in each row"
    raise LitebertError(
        "LB-856",
        what,
        received=received,
        next=f"{advice}, or choose another column: --column {role}=NAME",
    )


def members_of(cell: object, separator: str | None = None) -> Sequence[object]:
    """Return the members of a list, or the parts of a text between separators, by
    default its words.
    """
    members = list_of(cell)
    if members is not None:
        return members
    text = text_of(cell) or ""
    return text.split(separator)


def labels_in(cell: object, text: str) -> list[str]:
    """Return the labels of a cell that may have several: the members of a list, or the
    parts of `text` between the likeliest separator that it has.
    """
    present = [mark for mark in SEPARATORS if mark in text]
    separator = present[0] if present else SEPARATORS[-1]
    labels = [label_of(member) for member in members_of(cell, separator)]
    return [label for label in labels if label is not None]


# ---- doubts about labels -------------------------------------------------------------


def is_joined(label: str, labels: Collection[str]) -> bool:
    """Return whether a label is several of the others, as in "good;bad"."""
    parts = labels_in(label, label)
    return len(parts) > 1 and all(part in labels for part in parts)


def usual_spellings(labels: Mapping[str, int]) -> dict[str, str]:
    """Return for each label, given its number of rows, its most common spelling: of the
    labels that differ from it at most in case, the one with most rows.

    >>> usual_spellings({"Good": 9, "good": 1, "bad": 5})
    {'Good': 'Good', 'good': 'Good', 'bad': 'bad'}
    """
    commonest = dict[str, str]()
    for label in sorted(labels, key=lambda label: (-labels[label], label)):
        commonest.setdefault(label.casefold(), label)
    return {label: commonest[label.casefold()] for label in labels}


def label_warnings(labels: Mapping[str, int]) -> list[str]:
    """Return what looks wrong with the labels of single-label rows, in words."""
    warnings = list[str]()
    joined = [label for label in labels if is_joined(label, labels)]
    if joined:
        warnings.append(
            f"{len(joined)} of the labels join others ({joined[0]}): if rows have"
            " several labels, add --problem multi-label"
        )
    misspelt = list[str]()
    for label, usual in usual_spellings(labels).items():
        if label != usual:
            misspelt.append(label)
            warnings.append(
                f"label {label} ({labels[label]}) looks like {usual} ({labels[usual]})"
            )
    rare = list[str]()
    for label, number in labels.items():
        if number < FEWEST_ROWS and label not in (*joined, *misspelt):
            rare.append(f"{label} ({number})")
    if rare and max(labels.values()) >= MANY_ROWS:
        more = ", …" if len(rare) > _SHOWN_RARE else ""
        warnings.append(
            f"{format_count(len(rare), 'label')} with fewer than {FEWEST_ROWS} rows,"
            f" too few to learn: {', '.join(rare[:_SHOWN_RARE])}{more}"
        )
    return warnings


# ---- the guess at columns ------------------------------------------------------------


def guess_columns(
    names: Sequence[str],
    sample: Sequence[Row],
    chosen: Columns,
    readings: Sequence[type[RowReading[Any, Any]]],
    fallback: type[RowReading[Any, Any]],
) -> tuple[type[RowReading[Any, Any]], Columns]:
    """Return how the rows are read, and the columns of each role, with those that the
    user has chosen.
    """
    guess = ColumnGuess(names, sample, chosen)
    reading = _reading_of(guess, readings, fallback)
    roles = (*reading.roles, *OF_ALL_KINDS)
    _require_roles(chosen, roles, reading)
    guess.find_split()
    reading.guess(guess)
    assigned: dict[Role, Names] = {}
    for role in roles:
        if guess.assigned.get(role):
            assigned[role] = guess.assigned[role]
    return reading, Columns(assigned, chosen.has_header)


def _reading_of(
    guess: ColumnGuess,
    readings: Sequence[type[RowReading[Any, Any]]],
    fallback: type[RowReading[Any, Any]],
) -> type[RowReading[Any, Any]]:
    """Return the reading that alone has a role which the user has chosen, or else the
    first that the columns look like.
    """
    if len(readings) == 1:
        return readings[0]
    for role in guess.chosen.names:
        with_role = [reading for reading in readings if role in reading.roles]
        if len(with_role) == 1:
            return with_role[0]
    for reading in readings:
        if reading.are_like(guess):
            return reading
    return fallback


def _require_roles(
    chosen: Columns, roles: Sequence[Role], reading: type[RowReading[Any, Any]]
) -> None:
    """Refuse a chosen column whose role these rows do not have."""
    for role in chosen.names:
        if role not in roles:
            usual = ", ".join(reading.roles)
            raise LitebertError(
                "LB-841",
                f"these rows have no {role}",
                received=f"{role}={','.join(chosen.all(role))}",
                expected=f"one of {usual}, as these rows look like {reading.what}",
                next="omit this choice; or name the problem: --problem NAME",
            )
