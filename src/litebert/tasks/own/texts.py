"""Rows as texts, or pairs of texts, with a label, several labels or a score."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from litebert.config import HeadConfig
from litebert.config.head import Problem
from litebert.errors import LitebertError
from litebert.reading.rows import Row
from litebert.tasks.kinds.classification import TextClassification, TextExample
from litebert.tasks.own.labels import (
    LabelColumn,
    in_order,
    label_column,
    require_choice,
    require_labels,
    require_number,
    split_labels,
    text_problem,
)
from litebert.tasks.own.roles import Columns
from litebert.tasks.own.rows import Table
from litebert.tasks.own.values import label_of, number_of, text_of

KEY_MEASURES = {"classification": "accuracy", "multi-label": "micro_f1", "regression": "pearson"}
_HEAD_PROBLEMS: dict[str, Problem] = {
    "classification": "single_label_classification",
    "multi-label": "multi_label_classification",
    "regression": "regression",
}
_MARKS = {"0": False, "1": True, "false": False, "true": True, "no": False, "yes": True}
"""What a column for one label holds."""


@dataclass(frozen=True)
class Texts:
    """How rows become examples of classification, of multi-label problems or of regression.

    `separator` stands between several labels in one cell.
    """

    columns: Columns
    problem: str
    labels: tuple[str, ...]
    separator: str = "|"

    @property
    def family(self) -> TextClassification:
        """Return the kind of task."""
        return TextClassification(
            HeadConfig(
                kind="sequence-classification",
                labels=self.labels,
                problem_type=_HEAD_PROBLEMS[self.problem],
            )
        )

    @property
    def key_measure(self) -> str:
        """Return the measure by which evaluations are compared."""
        return KEY_MEASURES[self.problem]

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
        label = self._label(row, place) if is_labelled else None
        return TextExample(id, first, second[0] if second else None, label)

    def key(self, example: TextExample) -> str:
        """Return what may not be both trained and evaluated on."""
        return f"{example.first}\n{example.second or ''}"

    def _label(self, row: Row, place: str) -> int | float | tuple[int, ...]:
        names = self.columns.all("label")
        if self.problem == "regression":
            return _score(names[0], row, place)
        if self.problem == "classification":
            return require_number(names[0], self._numbers, label_of(row.get(names[0])), place)
        if len(names) > 1:
            marks = [_mark(name, row, place) for name in names]
            return tuple(number for number, is_marked in enumerate(marks) if is_marked)
        labels = split_labels(row.get(names[0]), self.separator)
        numbers = {require_number(names[0], self._numbers, label, place) for label in labels}
        return tuple(sorted(numbers))

    @cached_property
    def _numbers(self) -> dict[str, int]:
        return {label: number for number, label in enumerate(self.labels)}


def settle_texts(table: Table, columns: Columns, problem: str | None) -> tuple[Texts, str]:
    """Read the labels of a whole table; return how its rows become examples, and say it.

    Raises:
        LitebertError: LB-861, it has no labels; LB-856, LB-862, these labels cannot be learnt; what
            reading the table raises.
    """
    names = require_labels(table, columns, "label")
    if len(names) > 1:
        return Texts(columns, "multi-label", names), f"a column for each of {len(names)} labels"
    found = label_column(names[0], (row for _, row in table.rows()))
    kind = problem or text_problem(found)
    if kind == "regression":
        return Texts(columns, kind, names), f"numbers in column {names[0]}"
    if kind == "multi-label":
        texts = _multi_label(columns, found)
        return texts, f"{len(texts.labels)} labels, of which a row has any number"
    if problem is None:
        _require_classes(table, found)
    labels = in_order(found.single)
    require_choice(labels, table.source.name, names[0])
    return Texts(columns, kind, labels), f"{len(labels)} labels: {_counted(found, labels)}"


def _multi_label(columns: Columns, found: LabelColumn) -> Texts:
    separator = found.separator
    single = (label for cell in found.single for label in split_labels(cell, separator))
    return Texts(columns, "multi-label", in_order([*single, *found.listed]), separator)


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


def _counted(found: LabelColumn, labels: Sequence[str], limit: int = 10) -> str:
    shown = ", ".join(f"{label} ({found.single[label]:,})" for label in labels[:limit])
    return shown + (", …" if len(labels) > limit else "")


def _score(name: str, row: Row, place: str) -> float:
    score = number_of(row.get(name))
    if score is None:
        raise LitebertError(
            "LB-859",
            f"{place}: column {name} is not a number",
            received=repr(row.get(name)),
            expected="a finite number in every row that is trained or evaluated on",
            next="take this row out; for names of classes: --problem classification",
        )
    return score


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
