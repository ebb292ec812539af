"""The label column of a table: what it contains, and which problem follows from that."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

from litebert.errors import LitebertError
from litebert.reading.tables import Row
from litebert.tasks.own.values import label_of, list_of, number_of

MANY = 20
"""Distinct whole numbers are scores if there are more than this and nearly all rows differ."""
SEPARATORS = "|;,"
SLIPS = 20
"""In a column of fractions, at most one cell in this many may not be a number."""
AMOUNTS = ("score", "rating", "similarity", "relatedness")
"""A column of many whole numbers contains scores if its name has one of these words."""
MISSING = ("nan", "na", "n/a", "null", "none")
"""Words for a missing value in a column of numbers."""


@dataclass(frozen=True)
class LabelColumn:
    """The counted labels of a whole table: those of single cells, and those in lists."""

    name: str
    single: Counter[str]
    listed: Counter[str]

    @cached_property
    def numbers(self) -> list[float]:
        """The distinct numbers in it."""
        found = (number_of(label) for label in self.single)
        return [number for number in found if number is not None]

    @property
    def are_numbers(self) -> bool:
        """Whether it contains only numbers, apart from words for a missing value."""
        return bool(self.numbers) and len(self.numbers) == sum(label.lower() not in MISSING for label in self.single)

    @property
    def is_amounts(self) -> bool:
        """Whether these are scores to be estimated, and not names of classes.

        Among fractions a few cells may not be numbers: a typing error does not turn scores into
        classes. Reading such a row is an error.
        """
        fractions = sum(
            count
            for label, count in self.single.items()
            if (number := number_of(label)) is not None and not number.is_integer()
        )
        not_numbers = sum(self.single[label] for label in self.single if number_of(label) is None)
        if fractions:
            return not_numbers * SLIPS <= self.single.total()
        is_called_so = any(word in self.name.lower() for word in AMOUNTS)
        nearly_all_differ = len(self.numbers) * 2 > self.single.total()
        return self.are_numbers and len(self.numbers) > MANY and (is_called_so or nearly_all_differ)

    def lacks(self, label: str) -> bool:
        """Whether this is a word for a missing value, and not a label."""
        return is_missing(label, is_number=self.are_numbers)


def is_missing(cell: object, *, is_number: bool) -> bool:
    """Whether a cell has no value; among numbers, "nan" and the like are no values, either."""
    label = label_of(cell)
    return label is None or (is_number and label.lower() in MISSING)


def label_column(name: str, rows: Iterable[Row]) -> LabelColumn:
    """Count the labels of a column; cells without one are skipped."""
    single, listed = Counter[str](), Counter[str]()
    for row in rows:
        cell = row.get(name)
        if (members := list_of(cell)) is not None:
            listed.update(label for member in members if (label := label_of(member)) is not None)
        elif (label := label_of(cell)) is not None:
            single[label] += 1
    return LabelColumn(name, single, listed)


def text_problem(column: LabelColumn) -> str:
    """Return the problem that follows from the labels of texts.

    >>> text_problem(LabelColumn("stars", Counter({"1": 5, "2": 7}), Counter()))
    'classification'
    >>> text_problem(LabelColumn("score", Counter({"1.5": 2, "4.25": 1}), Counter()))
    'regression'
    """
    if column.listed:
        return "multi-label"
    return "regression" if column.is_amounts else "classification"


def separator_in(text: str) -> str:
    """Return the separator between the labels of one cell."""
    return next((mark for mark in SEPARATORS if mark in text), SEPARATORS[-1])


def split_labels(cell: object, separator: str) -> list[str]:
    """Return the labels of a cell that may have several, as a list or a text with separators.

    >>> split_labels("red| blue", "|"), split_labels(["red"], "|"), split_labels(None, "|")
    (['red', 'blue'], ['red'], [])
    """
    members = list_of(cell)
    if members is None:
        members = list((label_of(cell) or "").split(separator))
    return [label for member in members if (label := label_of(member)) is not None]


def in_order(labels: Iterable[str]) -> tuple[str, ...]:
    """Return labels sorted by number or by name, so that the order of rows does not matter.

    >>> in_order(["10", "9"]), in_order(["b", "a", "10"])
    (('9', '10'), ('10', 'a', 'b'))
    """
    labels = set(labels)
    if all(number_of(label) is not None for label in labels):
        return tuple(sorted(labels, key=lambda label: (number_of(label) or 0.0, label)))
    return tuple(sorted(labels))


def require_choice(labels: Sequence[str], place: str, column: str) -> None:
    """Check that there is more than one label.

    Raises:
        LitebertError: LB-856, there is not, so nothing can be learnt.
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
