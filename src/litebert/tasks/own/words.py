"""Rows as sentences with a tag for each word."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import ClassVar

from litebert.config import HeadConfig
from litebert.errors import LitebertError
from litebert.reading.tables import Row
from litebert.tasks.kinds.tagging import TagAnswer, TagExample, TokenClassification
from litebert.tasks.own.columns import RowShape
from litebert.tasks.own.labels import in_order, require_choice
from litebert.tasks.own.reading import RowReading
from litebert.tasks.own.roles import Columns, Role
from litebert.tasks.own.rows import TableFile
from litebert.tasks.own.values import label_of, list_of, text_of

PREFIXES = ("B-", "I-", "O")
"""What tags begin with if they mark entities of several words."""


class WordRows(RowReading[TagExample, TagAnswer]):
    """Sentences: lists, or texts with a space between words."""

    shape: ClassVar[RowShape] = "words"
    problem: ClassVar[str] = "token-classification"
    learnt: ClassVar[Role] = "tags"

    @classmethod
    def settle(cls, table: TableFile, columns: Columns, _problem: str | None) -> tuple[WordRows, str]:
        (name,) = columns.all("tags")
        tags = (label_of(tag) for _, row in table.rows() for tag in _members(row, name))
        labels = in_order(tag for tag in tags if tag is not None)
        require_choice(labels, table.source.name, name)
        return cls(columns, labels), f"{len(labels)} tags: {', '.join(labels)}"

    @cached_property
    def family(self) -> TokenClassification:
        return TokenClassification(HeadConfig(kind="token-classification", labels=self.labels))

    @property
    def key_measure(self) -> str:
        """F1 of entities if the tags mark entities, otherwise the share of right tags."""
        return "f1" if all(label.startswith(PREFIXES) for label in self.labels) else "accuracy"

    def example(self, id: str, row: Row, place: str, *, is_labelled: bool) -> TagExample:
        words = tuple(text_of(word) or "" for word in _members(row, self.columns.one("tokens")))
        if not is_labelled:
            return TagExample(id, words)
        tags = [label_of(tag) for tag in _members(row, self.label_column)]
        if len(tags) != len(words):
            raise LitebertError(
                "LB-863",
                f"{place}: there is not one tag for each word",
                received=f"{len(words)} words, {len(tags)} tags in column {self.label_column}",
                expected="two lists, or texts with a space between words, equally long",
                next="correct this row",
            )
        return TagExample(id, words, tuple(self.number(tag, place) for tag in tags))

    def lacks_label(self, row: Row) -> bool:
        return not _members(row, self.columns.one("tags"))

    def key(self, example: TagExample) -> str:
        return " ".join(example.words)


def _members(row: Row, name: str | None) -> Sequence[object]:
    """Return the members of a list, or the words of a text."""
    cell = None if name is None else row.get(name)
    members = list_of(cell)
    return (text_of(cell) or "").split() if members is None else members
