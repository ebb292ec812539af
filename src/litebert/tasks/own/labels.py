"""The labels of a table: what its label column holds, and the problem that this makes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from litebert.errors import LitebertError, did_you_mean
from litebert.reading.rows import Row
from litebert.tasks.own.columns import Shape
from litebert.tasks.own.roles import Columns, Role
from litebert.tasks.own.rows import Table
from litebert.tasks.own.values import label_of, list_of, number_of

PROBLEMS: dict[str, Shape] = {
    "classification": "texts",
    "multi-label": "texts",
    "regression": "texts",
    "token-classification": "words",
    "multiple-choice": "choices",
    "question-answering": "spans",
}
"""The problems that rows of each shape can pose."""

MANY = 20
"""Whole numbers, if there are more of them than this and they nearly all differ, are amounts."""
SEPARATORS = "|;,"
AMOUNTS = ("score", "rating", "similarity", "relatedness")
"""A column of many whole numbers whose name has one of these holds amounts."""


@dataclass(frozen=True)
class LabelColumn:
    """What the label column of a whole table holds: single labels, or members of lists, counted."""

    name: str
    single: Counter[str]
    listed: Counter[str]

    @property
    def is_amounts(self) -> bool:
        """Whether these are numbers to be estimated and not names of classes."""
        numbers = [number_of(label) for label in self.single]
        whole = [number is not None and number.is_integer() for number in numbers]
        if None in numbers or not numbers:
            return False
        if not all(whole):
            return True
        is_called_so = any(word in self.name.lower() for word in AMOUNTS)
        nearly_all_differ = len(numbers) * 2 > self.single.total()
        return len(numbers) > MANY and (is_called_so or nearly_all_differ)

    @property
    def separator(self) -> str:
        """What stands between several labels in one cell."""
        joined = "".join(self.single)
        return next((mark for mark in SEPARATORS if mark in joined), SEPARATORS[-1])


def label_column(name: str, rows: Iterable[Row]) -> LabelColumn:
    """Count what a column holds; cells without a label are passed over."""
    single, listed = Counter[str](), Counter[str]()
    for row in rows:
        cell = row.get(name)
        if (members := list_of(cell)) is not None:
            listed.update(label for member in members if (label := label_of(member)) is not None)
        elif (label := label_of(cell)) is not None:
            single[label] += 1
    return LabelColumn(name, single, listed)


def text_problem(column: LabelColumn) -> str:
    """Decide what the labels of texts ask for.

    >>> text_problem(LabelColumn("stars", Counter({"1": 5, "2": 7}), Counter()))
    'classification'
    >>> text_problem(LabelColumn("score", Counter({"1.5": 2, "4.25": 1}), Counter()))
    'regression'
    """
    if column.listed:
        return "multi-label"
    return "regression" if column.is_amounts else "classification"


def split_labels(cell: object, separator: str) -> list[str]:
    """Return the labels of a cell that may have several: a list, or a text with separators.

    >>> split_labels("red| blue", "|"), split_labels(["red"], "|"), split_labels(None, "|")
    (['red', 'blue'], ['red'], [])
    """
    members = list_of(cell)
    if members is None:
        members = list((label_of(cell) or "").split(separator))
    return [label for member in members if (label := label_of(member)) is not None]


def in_order(labels: Iterable[str]) -> tuple[str, ...]:
    """Return labels in an order that the order of rows does not change: by number, or by name.

    >>> in_order(["10", "9"]), in_order(["b", "a", "10"])
    (('9', '10'), ('10', 'a', 'b'))
    """
    labels = set(labels)
    if all(number_of(label) is not None for label in labels):
        return tuple(sorted(labels, key=lambda label: (number_of(label) or 0.0, label)))
    return tuple(sorted(labels))


def require_problem(name: str | None) -> Shape | None:
    """Return the shape of rows that a problem asks for.

    Raises:
        LitebertError: LB-855, there is no such problem.
    """
    if name is None or name in PROBLEMS:
        return PROBLEMS[name] if name else None
    raise LitebertError(
        "LB-855",
        "there is no such problem",
        received=name,
        expected=f"one of {', '.join(PROBLEMS)}",
        next=f"--problem classification ({did_you_mean(name, PROBLEMS)})",
    )


def require_labels(table: Table, columns: Columns, role: Role) -> tuple[str, ...]:
    """Return the columns that hold what is to be learnt.

    Raises:
        LitebertError: LB-861, there are none.
    """
    if names := columns.all(role):
        return names
    raise LitebertError(
        "LB-861",
        f"{table.source.name} has no column of labels",
        received=f"columns {', '.join(table.columns)}",
        expected="a column that says what is right in every row, to learn from",
        next=f"--column {role}=NAME",
    )


def require_choice(labels: Sequence[str], place: str, column: str) -> None:
    """Refuse labels that leave nothing to be learnt.

    Raises:
        LitebertError: LB-856, there is but one label, or none.
    """
    if len(labels) > 1:
        return
    raise LitebertError(
        "LB-856",
        f"{place}: column {column} leaves nothing to be learnt",
        received=f"{labels[0]} in every row" if labels else "no label in any row",
        expected="two labels or more",
        next="--column label=NAME with another column",
    )


def require_number(name: str, labels: dict[str, int], label: str | None, place: str) -> int:
    """Return the number of a label.

    Raises:
        LitebertError: LB-857, there is none; LB-858, the training data has no such label.
    """
    if label is None:
        raise LitebertError(
            "LB-857",
            f"{place}: there is no label",
            received=f"nothing in column {name}",
            expected="a label in every row that is trained or evaluated on",
            next="take this row out; if rows have any number of labels: --problem multi-label",
        )
    if label not in labels:
        known = ", ".join(list(labels)[:20])
        raise LitebertError(
            "LB-858",
            f"{place}: the training data has no label {label}",
            received=label,
            expected=f"one of {known}{', …' if len(labels) > 20 else ''}",
            next=f"add examples of it for training, or correct it ({did_you_mean(label, labels)})",
        )
    return labels[label]
