"""Rows as the words of a sentence with a tag each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

from litebert.config import HeadConfig
from litebert.errors import LitebertError
from litebert.reading.rows import Row
from litebert.tasks.kinds.tagging import TagExample, TokenClassification
from litebert.tasks.own.columns import Shape
from litebert.tasks.own.labels import in_order, label_columns, require_choice, require_number
from litebert.tasks.own.roles import Columns
from litebert.tasks.own.rows import Table
from litebert.tasks.own.values import label_of, list_of, text_of

PREFIXES = ("B-", "I-", "O")
"""What the names of tags begin with where runs of words are entities."""


@dataclass(frozen=True)
class Words:
    """How rows become sentences: lists, or texts with a space between words."""

    columns: Columns
    labels: tuple[str, ...]
    problem: str = "token-classification"
    shape: ClassVar[Shape] = "words"

    @classmethod
    def settle(cls, table: Table, columns: Columns, _: str | None) -> tuple[Words, str]:
        """Read the tags of a whole table; return how its rows become examples, and say it.

        Raises:
            LitebertError: LB-861, it has no tags; LB-856, they are all the same; what reading
                raises.
        """
        (name,) = label_columns(table, columns, "tags")
        tags = (label_of(tag) for _, row in table.rows() for tag in _members(row, name))
        labels = in_order(tag for tag in tags if tag is not None)
        require_choice(labels, table.source.name, name)
        return cls(columns, labels), f"{len(labels)} tags: {', '.join(labels)}"

    @cached_property
    def family(self) -> TokenClassification:
        """Return the kind of task."""
        return TokenClassification(HeadConfig(kind="token-classification", labels=self.labels))

    @property
    def key_measure(self) -> str:
        """Return F1 of entities where tags mark these, otherwise the share of right tags."""
        return "f1" if all(label.startswith(PREFIXES) for label in self.labels) else "accuracy"

    def example(self, id: str, row: Row, place: str, *, is_labelled: bool) -> TagExample:
        """Turn a row into an example.

        Raises:
            LitebertError: LB-863, there is not one tag a word; LB-857, LB-858, a tag is none.
        """
        words = tuple(text_of(word) or "" for word in _members(row, self.columns.one("tokens")))
        if not is_labelled:
            return TagExample(id, words)
        name = self.columns.all("tags")[0]
        tags = [label_of(tag) for tag in _members(row, name)]
        if len(tags) != len(words):
            raise LitebertError(
                "LB-863",
                f"{place}: there is not one tag for each word",
                received=f"{len(words)} words, {len(tags)} tags in column {name}",
                expected="two lists, or texts with a space between words, equally long",
                next="correct this row",
            )
        return TagExample(
            id, words, tuple(require_number(name, self._numbers, tag, place) for tag in tags)
        )

    def lacks_label(self, row: Row) -> bool:
        """Whether a row has no tags."""
        return not _members(row, self.columns.one("tags"))

    def key(self, example: TagExample) -> str:
        """Return what may not be both trained and evaluated on."""
        return " ".join(example.words)

    def stratum(self, example: TagExample) -> str:  # noqa: ARG002
        """Return nothing: a sentence has no label of its own."""
        return ""

    @cached_property
    def _numbers(self) -> dict[str, int]:
        return {label: number for number, label in enumerate(self.labels)}


def _members(row: Row, name: str | None) -> Sequence[object]:
    """Return the members of a list, or the words of a text."""
    cell = None if name is None else row.get(name)
    members = list_of(cell)
    return (text_of(cell) or "").split() if members is None else members
