"""The cells of a user's own file that have labels, and the kind of task that follows from
them.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from litebert.errors import LitebertError
from litebert.reading.tables import Row
from litebert.tasks.tables.cells import (
    MISSING,
    are_joined_labels,
    is_number,
    list_of,
    mark_of,
    number_of,
    rating_of,
)

MANY = 20  # distinct whole numbers may be scores if there are more than this
# in a column of fractions, at most one cell in this many may not be a number
SLIPS = 20
# a column of many whole numbers with such a name has scores
AMOUNTS = ("score", "rating", "similarity", "relatedness")


@dataclass(frozen=True)
class LabelColumn:
    """The labels of a training file: how often each is alone in a cell, or a member of a
    list; cells without a label are left out.
    """

    file: str
    column: str
    single: Counter[str]
    listed: Counter[str]

    def kind_of(self, names: Sequence[str]) -> str:
        """Return the kind of task that follows from the labels; what has names is no
        score.
        """
        if self.listed:
            return "multi-label"
        if not names and _are_scores(self.column, self.single):
            return "regression"
        if self._are_few():
            return "classification"
        if are_joined_labels([*self.single.elements()]):
            return "multi-label"
        raise LitebertError(
            "LB-862",
            f"{self.file}: column {self.column} does not look like labels",
            received=f"{len(self.single):,} different values in"
            f" {self.single.total():,} rows, such as {next(iter(self.single))}",
            next="--column label=NAME; write numbers like 1234.5; if these are labels:"
            " --problem classification",
        )

    def are_ratings(self) -> bool:
        """Return whether the labels are stars or points: they say so, or are numbers in
        a column of that name.
        """
        if are_numbers(self.single):
            return any(word in self.column.lower() for word in (*AMOUNTS, "stars"))
        return all(rating_of(label) is not None for label in self.single)

    def _are_few(self) -> bool:
        return len(self.single) <= max(MANY, self.single.total() // 2)


def _are_scores(name: str, counts: Counter[str]) -> bool:
    numbers = dict[str, float]()
    for label in counts:
        number = number_of(label)
        if number is not None:
            numbers[label] = number
    if not all(map(float.is_integer, numbers.values())):
        # A typing error among fractions does not turn scores into classes; reading its
        # row raises an error.
        num_slips = counts.total() - sum(counts[label] for label in numbers)
        return num_slips * SLIPS <= counts.total()
    is_called_so = any(word in name.lower() for word in AMOUNTS)
    nearly_all_differ = len(numbers) * 2 > counts.total()
    are_many = are_numbers(counts) and len(numbers) > MANY
    return are_many and (is_called_so or nearly_all_differ)


def are_numbers(labels: Iterable[str]) -> bool:
    """Return whether all labels that are not words for a missing value are numbers."""
    filled = [label for label in labels if label.lower() not in MISSING]
    return bool(filled) and all(map(is_number, filled))


def only_member(cell: object) -> object:
    """Return the only member of a list; any other cell as it is."""
    members = list_of(cell)
    return members[0] if members is not None and len(members) == 1 else cell


def is_marked(row: Row, name: str, place: str) -> bool:
    """Return whether a cell says that its label is given."""
    mark = mark_of(row.get(name))
    if mark not in (0, 1):
        raise LitebertError(
            "LB-860",
            f"{place}: column {name} does not say whether the label is given",
            received=row.get(name),
            expected="0 or 1",
            next="--column label=NAME with one column, for one label per row",
        )
    return bool(mark)
