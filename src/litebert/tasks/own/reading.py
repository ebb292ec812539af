"""Turn rows into examples: the base class of all problems in users' own files."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Generic, Self, TypeVar

from litebert.errors import LitebertError, did_you_mean
from litebert.reading.tables import Row
from litebert.tasks.kinds.family import Answer, Family
from litebert.tasks.own.columns import RowShape
from litebert.tasks.own.roles import Columns, Role
from litebert.tasks.own.rows import TableFile
from litebert.tasks.own.values import label_of, text_of

Read = TypeVar("Read")


@dataclass(frozen=True)
class RowReading(ABC, Generic[Read, Answer]):
    """Turns the rows of one problem into examples.

    `labels` are the names of labels, tags or choices, as written in the file.
    """

    columns: Columns
    labels: tuple[str, ...] = ()
    shape: ClassVar[RowShape]
    problem: ClassVar[str]
    learnt: ClassVar[Role] = "label"
    """The role of the column with the right answers."""
    needs_labels: ClassVar[bool] = True

    @classmethod
    @abstractmethod
    def settle(cls, table: TableFile, columns: Columns, problem: str | None) -> tuple[Self, str]:
        """Read a whole table; return how its rows become examples, and a note on its labels.

        Raises:
            LitebertError: Nothing can be learnt from it, or the table cannot be read.
        """

    @property
    @abstractmethod
    def family(self) -> Family[Read, Answer]:
        """The kind of task."""

    @property
    @abstractmethod
    def key_measure(self) -> str:
        """The measure by which evaluations are compared."""

    @abstractmethod
    def example(self, id: str, row: Row, place: str, *, is_labelled: bool) -> Read:
        """Turn a row into an example.

        Raises:
            LitebertError: The row is not valid; the message names its place.
        """

    @abstractmethod
    def key(self, example: Read) -> str:
        """Return the text that may not be in both training and held-out rows."""

    def stratum(self, example: Read) -> str:  # noqa: ARG002
        """Return the label, if there is one: the same share of each is held out."""
        return ""

    def lacks_label(self, row: Row) -> bool:
        """Whether a row has no label to learn."""
        return label_of(row.get(self.label_column)) is None

    @property
    def label_column(self) -> str:
        """The first column with the right answers."""
        return self.columns.all(self.learnt)[0]

    def texts(self, row: Row, *roles: Role) -> list[str]:
        """Return the text of each column of the roles, "" if the row has none."""
        return [text_of(row.get(name)) or "" for role in roles for name in self.columns.all(role)]

    def number(self, label: str | None, place: str) -> int:
        """Return the index of a label.

        Raises:
            LitebertError: LB-857, there is none; LB-858, the training data has no such label.
        """
        if label is None:
            raise LitebertError(
                "LB-857",
                f"{place}: there is no label",
                received=f"nothing in column {self.label_column}",
                expected="a label in every row that is trained or evaluated on",
                next="data.missing_labels=skip, or --problem multi-label if a row may have none",
            )
        if label not in self.numbers:
            some = ", ".join(self.labels[:20]) + (", …" if len(self.labels) > 20 else "")
            raise LitebertError(
                "LB-858",
                f"{place}: the training data has no label {label}",
                received=label,
                expected=f"one of {some}",
                next=f"add examples of it for training, or correct it ({did_you_mean(label, self.labels)})",
            )
        return self.numbers[label]

    @cached_property
    def numbers(self) -> dict[str, int]:
        """The index of each label."""
        return {label: number for number, label in enumerate(self.labels)}
