"""Rows as questions with choices: in a list, in a column each, or in an object with their names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from string import ascii_uppercase
from typing import ClassVar

from litebert.errors import LitebertError
from litebert.reading.tables import Row
from litebert.tasks.kinds.choice import ChoiceExample, MultipleChoice
from litebert.tasks.kinds.classification import Scores
from litebert.tasks.own.columns import RowShape
from litebert.tasks.own.reading import RowReading
from litebert.tasks.own.roles import Columns
from litebert.tasks.own.rows import TableFile
from litebert.tasks.own.values import label_of, list_of, text_of


class ChoiceRows(RowReading[ChoiceExample, Scores]):
    """Questions with choices; `labels` are the names of the choices in the label column, in order.

    A row may also name its choices itself, or its label may repeat the text of a choice.
    """

    shape: ClassVar[RowShape] = "choices"
    problem: ClassVar[str] = "multiple-choice"

    @classmethod
    def settle(cls, table: TableFile, columns: Columns, _problem: str | None) -> tuple[ChoiceRows, str]:
        name = columns.all("label")[0]
        most, found, are_texts, counts_from_one = 0, set[str](), True, False
        for _, row in table.rows():
            texts, names = _choices(row, columns)
            most = max(most, len(texts))
            label = label_of(row.get(name)) or ""
            are_texts = are_texts and label in texts
            if not names:
                found.add(label)
                counts_from_one = counts_from_one or label == str(len(texts))
        labels = _spelling(most, set() if are_texts else found, counts_from_one=counts_from_one)
        return cls(columns, labels), f"up to {most} choices, called {', '.join(labels)}"

    @cached_property
    def family(self) -> MultipleChoice:
        return MultipleChoice(num_choices=len(self.labels))

    @property
    def key_measure(self) -> str:
        return "accuracy"

    def example(self, id: str, row: Row, place: str, *, is_labelled: bool) -> ChoiceExample:
        texts, names = _choices(row, self.columns)
        if len(texts) < 2:
            raise LitebertError(
                "LB-864",
                f"{place}: there is nothing to choose from",
                received=f"{len(texts)} choices in {', '.join(self.columns.all('choices'))}",
                expected="two choices or more: a list, or a column for each",
                next="correct this row, or --column choices=NAME,NAME,…",
            )
        question, context = ("".join(self.texts(row, role)) for role in ("question", "context"))
        label = self._label(row, texts, names, place) if is_labelled else None
        return ChoiceExample(id, context, question, texts, label)

    def key(self, example: ChoiceExample) -> str:
        """Return the context, which several questions may share; without one, the question."""
        return example.context or example.question

    def _label(self, row: Row, texts: Sequence[str], names: Sequence[str], place: str) -> int:
        label = label_of(row.get(self.label_column)) or ""
        for spelling in (names, self.labels[: len(texts)], texts):
            if label in spelling:
                return spelling.index(label)
        raise LitebertError(
            "LB-865",
            f"{place}: column {self.label_column} names none of the choices",
            received=label or "nothing",
            expected=f"one of {', '.join(names or self.labels[: len(texts)])}, or a choice's text",
            next="correct this row",
        )


def _spelling(number: int, found: set[str], *, counts_from_one: bool) -> tuple[str, ...]:
    """Return the names of the choices in the spelling that the labels `found` use."""
    spellings = (
        tuple(map(str, range(number))),
        tuple(map(str, range(1, number + 1))),
        tuple(ascii_uppercase[:number]),
        tuple(ascii_uppercase[:number].lower()),
    )
    fitting = [spelling for spelling in spellings if found and found <= {*spelling}]
    if counts_from_one and spellings[1] in fitting:
        return spellings[1]
    return fitting[0] if fitting else tuple(f"choice {place}" for place in range(1, number + 1))


def _choices(row: Row, columns: Columns) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the texts of the choices, and their names if the row gives them."""
    columns_of = columns.all("choices")
    cell = row.get(columns_of[0])
    if len(columns_of) > 1:
        texts = [text_of(row.get(name)) or "" for name in columns_of]
    elif isinstance(cell, Mapping):
        names = [label_of(name) or "" for name in list_of(cell.get("label")) or []]
        return tuple(text_of(text) or "" for text in list_of(cell.get("text")) or []), tuple(names)
    else:
        texts = [text_of(text) or "" for text in list_of(cell) or []]
    while texts and not texts[-1]:
        texts.pop()
    return tuple(texts), ()
