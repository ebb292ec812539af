"""Rows as a text, or a pair of texts, with a label, several labels, or a score."""

from __future__ import annotations

from abc import abstractmethod
from collections import Counter
from collections.abc import Sequence
from functools import cached_property
from typing import ClassVar

from litebert.config import HeadConfig
from litebert.config.head import ProblemType
from litebert.errors import LitebertError
from litebert.reading.tables import Row
from litebert.tasks.kinds.classification import Scores, TextClassification, TextExample
from litebert.tasks.kinds.problems import Label
from litebert.tasks.own.columns import RowShape
from litebert.tasks.own.labels import (
    LabelColumn,
    in_order,
    is_missing,
    label_column,
    require_choice,
    separator_in,
    split_labels,
    text_problem,
)
from litebert.tasks.own.reading import RowReading
from litebert.tasks.own.roles import Columns
from litebert.tasks.own.rows import TableFile
from litebert.tasks.own.values import label_of, number_of

_SHOWN_LABELS = 10
_MARKS = {"0": False, "1": True, "false": False, "true": True, "no": False, "yes": True}
"""The values of a column that marks one label."""


class TextRows(RowReading[TextExample, Scores]):
    """Texts with a label, several labels or a score, by subclass."""

    shape: ClassVar[RowShape] = "texts"
    problem_type: ClassVar[ProblemType]

    @classmethod
    def settle(cls, table: TableFile, columns: Columns, problem: str | None) -> tuple[TextRows, str]:
        names = columns.all("label")
        if len(names) > 1:
            return SeveralLabels(columns, names), f"a column for each of {len(names)} labels"
        found = label_column(names[0], (row for _, row in table.rows()))
        reading = TEXTS[problem or text_problem(found)]
        if problem is None and reading is OneLabel:
            _require_classes(table, found)
        labels, note = reading.labels_in(found, table.source.name)
        return reading(columns, labels), note

    @classmethod
    @abstractmethod
    def labels_in(cls, found: LabelColumn, file: str) -> tuple[tuple[str, ...], str]:
        """Return the labels of a column, and a note on them."""

    @cached_property
    def family(self) -> TextClassification:
        kind, problem_type = "sequence-classification", self.problem_type
        return TextClassification(HeadConfig(kind=kind, labels=self.labels, problem_type=problem_type))

    @property
    def key_measure(self) -> str:
        return self.family.problem.key_measure

    def example(self, id: str, row: Row, place: str, *, is_labelled: bool) -> TextExample:
        first, *second = self.texts(row, "text", "second")
        label = self.label(row, place) if is_labelled else None
        return TextExample(id, first, second[0] if second else None, label)

    @abstractmethod
    def label(self, row: Row, place: str) -> Label:
        """Read the label of a row: an index, several indices, or a score."""

    def key(self, example: TextExample) -> str:
        return f"{example.first}\n{example.second or ''}"

    def stratum(self, example: TextExample) -> str:
        return str(example.label)


class OneLabel(TextRows):
    """Each text has one label."""

    problem: ClassVar[str] = "classification"
    problem_type: ClassVar[ProblemType] = "single_label_classification"

    @classmethod
    def labels_in(cls, found: LabelColumn, file: str) -> tuple[tuple[str, ...], str]:
        labels = in_order(label for label in found.single if not found.lacks(label))
        require_choice(labels, file, found.name)
        return labels, f"{len(labels)} labels: {_counted(found.single, labels)}"

    def label(self, row: Row, place: str) -> int:
        cell = row.get(self.label_column)
        return self.number(None if self.lacks_label(row) else label_of(cell), place)

    def lacks_label(self, row: Row) -> bool:
        return is_missing(row.get(self.label_column), is_number=self._are_numbers)

    @cached_property
    def _are_numbers(self) -> bool:
        return all(number_of(label) is not None for label in self.labels)


class SeveralLabels(TextRows):
    """Each text has any number of labels: in one column, or in a column for each."""

    problem: ClassVar[str] = "multi-label"
    problem_type: ClassVar[ProblemType] = "multi_label_classification"

    @classmethod
    def labels_in(cls, found: LabelColumn, file: str) -> tuple[tuple[str, ...], str]:  # noqa: ARG003
        mark = separator_in("".join(found.single))
        single = (label for cell in found.single for label in split_labels(cell, mark))
        labels = in_order([*single, *found.listed])
        return labels, f"{len(labels)} labels, of which a row has any number"

    def label(self, row: Row, place: str) -> tuple[int, ...]:
        names = self.columns.all("label")
        if len(names) > 1:
            marks = [_mark(name, row, place) for name in names]
            return tuple(number for number, is_marked in enumerate(marks) if is_marked)
        cell = row.get(names[0])
        is_one = label_of(cell) in self.numbers  # a label may contain the separator
        labels = [label_of(cell)] if is_one else split_labels(cell, separator_in(str(cell)))
        return tuple(sorted({self.number(label, place) for label in labels}))

    def lacks_label(self, row: Row) -> bool:  # noqa: ARG002
        return False


class OneScore(TextRows):
    """Each text has a score to estimate."""

    problem: ClassVar[str] = "regression"
    problem_type: ClassVar[ProblemType] = "regression"

    @classmethod
    def labels_in(cls, found: LabelColumn, file: str) -> tuple[tuple[str, ...], str]:  # noqa: ARG003
        return (found.name,), f"numbers in column {found.name}"

    def label(self, row: Row, place: str) -> float:
        cell = row.get(self.label_column)
        score = number_of(cell)
        if score is None:
            raise LitebertError(
                "LB-859",
                f"{place}: column {self.label_column} is not a number",
                received=repr(cell),
                expected="a finite number in every row that is trained or evaluated on",
                next="correct the row, or data.missing_labels=skip; for classes: --problem classification",
            )
        return score

    def lacks_label(self, row: Row) -> bool:
        return is_missing(row.get(self.label_column), is_number=True)

    def stratum(self, example: TextExample) -> str:  # noqa: ARG002
        return ""


TEXTS: dict[str, type[TextRows]] = {reading.problem: reading for reading in (OneLabel, SeveralLabels, OneScore)}


def _require_classes(table: TableFile, found: LabelColumn) -> None:
    """Raise LB-862 if the values of a column hardly repeat, so that they may not be classes."""
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


def _counted(counts: Counter[str], labels: Sequence[str]) -> str:
    shown = ", ".join(f"{label} ({counts[label]:,})" for label in labels[:_SHOWN_LABELS])
    return shown + (", …" if len(labels) > _SHOWN_LABELS else "")


def _mark(name: str, row: Row, place: str) -> bool:
    cell = (label_of(row.get(name)) or "0").lower()
    if cell not in _MARKS:
        raise LitebertError(
            "LB-860",
            f"{place}: column {name} does not say whether the label is given",
            received=cell,
            expected="0 or 1, in a column for each label",
            next="--column label=NAME with one column, for one label per row",
        )
    return _MARKS[cell]
