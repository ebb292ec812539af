"""Rows as a text, or a pair of texts, with a label, several labels, or a score."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

from litebert.config import HeadConfig
from litebert.config.head import Problem
from litebert.errors import LitebertError
from litebert.reading.rows import Row
from litebert.tasks.kinds.classification import TextClassification, TextExample
from litebert.tasks.kinds.problems import Label
from litebert.tasks.own.columns import Shape
from litebert.tasks.own.labels import (
    LabelColumn,
    in_order,
    is_missing,
    label_column,
    label_columns,
    require_choice,
    require_number,
    separator_in,
    split_labels,
    text_problem,
)
from litebert.tasks.own.roles import Columns
from litebert.tasks.own.rows import Table
from litebert.tasks.own.values import label_of, number_of, text_of

PROBLEM_TYPES: dict[str, Problem] = {
    "classification": "single_label_classification",
    "multi-label": "multi_label_classification",
    "regression": "regression",
}
_MARKS = {"0": False, "1": True, "false": False, "true": True, "no": False, "yes": True}
"""What a column for one label holds."""


@dataclass(frozen=True)
class Texts:
    """How rows become examples of classification, of multi-label problems or of regression."""

    columns: Columns
    labels: tuple[str, ...]
    problem: str
    shape: ClassVar[Shape] = "texts"

    @classmethod
    def settle(cls, table: Table, columns: Columns, problem: str | None) -> tuple[Texts, str]:
        """Read the labels of a whole table; return how its rows become examples, and say it.

        Raises:
            LitebertError: LB-861, it has no labels; LB-856, LB-862, these labels cannot be learnt;
                what reading the table raises.
        """
        names = label_columns(table, columns, "label")
        if len(names) > 1:
            return cls(columns, names, "multi-label"), f"a column for each of {len(names)} labels"
        found = label_column(names[0], (row for _, row in table.rows()))
        kind = problem or text_problem(found)
        if kind == "regression":
            return cls(columns, names, kind), f"numbers in column {names[0]}"
        if kind == "multi-label":
            mark = separator_in("".join(found.single))
            single = (label for cell in found.single for label in split_labels(cell, mark))
            labels = in_order([*single, *found.listed])
            return cls(
                columns, labels, kind
            ), f"{len(labels)} labels, of which a row has any number"
        if problem is None:
            _require_classes(table, found)
        labels = in_order(label for label in found.single if not found.lacks(label))
        require_choice(labels, table.source.name, names[0])
        return cls(columns, labels, kind), f"{len(labels)} labels: {_counted(found.single, labels)}"

    @cached_property
    def family(self) -> TextClassification:
        """Return the kind of task."""
        problem_type = PROBLEM_TYPES[self.problem]
        return TextClassification(
            HeadConfig(
                kind="sequence-classification", labels=self.labels, problem_type=problem_type
            )
        )

    @property
    def key_measure(self) -> str:
        """Return the measure by which evaluations are compared."""
        return self.family.problem.key_measure

    def example(self, id: str, row: Row, place: str, *, is_labelled: bool) -> TextExample:
        """Turn a row into an example; nothing in a text's column is an empty text.

        Raises:
            LitebertError: LB-857, LB-858, the label is not one; LB-859, it is no number; LB-860, a
                column for one label says neither yes nor no.
        """
        first, *second = (
            text_of(row.get(name)) or ""
            for name in (*self.columns.all("text"), *self.columns.all("second"))
        )
        label = self._read_label(row, place) if is_labelled else None
        return TextExample(id, first, second[0] if second else None, label)

    def lacks_label(self, row: Row) -> bool:
        """Whether a row says nothing to learn; of several labels it may give none."""
        cell = row.get(self.columns.all("label")[0])
        return self.problem != "multi-label" and is_missing(cell, is_number=self._are_numbers)

    def key(self, example: TextExample) -> str:
        """Return what may not be both trained and evaluated on."""
        return f"{example.first}\n{example.second or ''}"

    def stratum(self, example: TextExample) -> str:
        """Return which share of the rows an example is drawn from: its label's."""
        return "" if self.problem == "regression" else str(example.label)

    @cached_property
    def _read_label(self) -> Callable[[Row, str], Label]:
        readers: Mapping[str, Callable[[Row, str], Label]] = {
            "classification": self._one,
            "multi-label": self._several,
            "regression": self._score,
        }
        return readers[self.problem]

    def _one(self, row: Row, place: str) -> int:
        (name,) = self.columns.all("label")
        label = None if self.lacks_label(row) else label_of(row.get(name))
        return require_number(name, self._numbers, label, place)

    def _several(self, row: Row, place: str) -> tuple[int, ...]:
        names = self.columns.all("label")
        if len(names) > 1:
            marks = [_mark(name, row, place) for name in names]
            return tuple(number for number, is_marked in enumerate(marks) if is_marked)
        cell = row.get(names[0])
        is_one = label_of(cell) in self._numbers  # a label may hold a mark that separates others
        labels = [label_of(cell)] if is_one else split_labels(cell, separator_in(str(cell)))
        numbers = {require_number(names[0], self._numbers, label, place) for label in labels}
        return tuple(sorted(numbers))

    def _score(self, row: Row, place: str) -> float:
        (name,) = self.columns.all("label")
        score = number_of(row.get(name))
        if score is None:
            raise LitebertError(
                "LB-859",
                f"{place}: column {name} is not a number",
                received=repr(row.get(name)),
                expected="a finite number in every row that is trained or evaluated on",
                next="correct the row, or data.missing_labels=skip; for classes: --problem "
                "classification",
            )
        return score

    @cached_property
    def _numbers(self) -> dict[str, int]:
        return {label: number for number, label in enumerate(self.labels)}

    @cached_property
    def _are_numbers(self) -> bool:
        are_numbers = all(number_of(label) is not None for label in self.labels)
        return self.problem == "regression" or are_numbers


def _require_classes(table: Table, found: LabelColumn) -> None:
    """Refuse to guess that a column whose values hardly repeat holds classes."""
    num_distinct, num_rows = len(found.single), found.single.total()
    if num_distinct <= max(20, num_rows // 2):
        return
    raise LitebertError(
        "LB-862",
        f"{table.source.name}: column {found.name} does not look like labels",
        received=f"{num_distinct:,} different values in {num_rows:,} rows",
        expected="a few labels that many rows share, or numbers to be estimated",
        next="--column label=NAME; or, if these are labels, --problem classification",
    )


def _counted(counts: Counter[str], labels: Sequence[str], limit: int = 10) -> str:
    shown = ", ".join(f"{label} ({counts[label]:,})" for label in labels[:limit])
    return shown + (", …" if len(labels) > limit else "")


def _mark(name: str, row: Row, place: str) -> bool:
    cell = (label_of(row.get(name)) or "0").lower()
    if cell not in _MARKS:
        raise LitebertError(
            "LB-860",
            f"{place}: column {name} does not say whether the label is given",
            received=cell,
            expected="0 or 1, in a column for each label",
            next="--column label=NAME with one column, for one label a row",
        )
    return _MARKS[cell]
