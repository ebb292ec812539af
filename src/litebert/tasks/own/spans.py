"""Rows as questions that are answered by a span of a context or, as in SQuAD 2.0, not at all."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cached_property
from itertools import zip_longest
from typing import ClassVar

from litebert.errors import LitebertError
from litebert.reading.tables import Row
from litebert.tasks.kinds.spans import (
    ConditionalSpanAnswering,
    GoldAnswer,
    SpanAnswer,
    SpanAnswering,
    SpanExample,
    require_bounded_context,
)
from litebert.tasks.own.columns import RowShape
from litebert.tasks.own.reading import RowReading
from litebert.tasks.own.roles import Columns, Role
from litebert.tasks.own.rows import TableFile
from litebert.tasks.own.values import list_of, number_of, text_of

UNANSWERABLE = "unanswerable"


class SpanRows(RowReading[SpanExample, SpanAnswer]):
    """Questions on a context; `labels` has a name for "no answer" if some have none."""

    shape: ClassVar[RowShape] = "spans"
    problem: ClassVar[str] = "question-answering"
    learnt: ClassVar[Role] = "answers"
    needs_labels: ClassVar[bool] = False

    @classmethod
    def settle(cls, table: TableFile, columns: Columns, _problem: str | None) -> tuple[SpanRows, str]:
        number = sum(not _answers(row, columns) for _, row in table.rows())
        summary = f"{number:,} without an answer" if number else "all are answered"
        return cls(columns, (UNANSWERABLE,) if number else ()), f"questions; {summary}"

    @cached_property
    def family(self) -> SpanAnswering | ConditionalSpanAnswering:
        return ConditionalSpanAnswering() if self.labels else SpanAnswering()

    @property
    def key_measure(self) -> str:
        return "f1"

    def example(self, id: str, row: Row, place: str, *, is_labelled: bool) -> SpanExample:
        """Turn a row into an example; an empty list of answers means that there is none."""
        question, context = self.texts(row, "question", "context")
        require_bounded_context(context, place)
        found = _answers(row, self.columns) if is_labelled else []
        answers = tuple(_placed(text, start, context, place) for text, start in found)
        return SpanExample(id, question, context, answers if is_labelled else None)

    def lacks_label(self, row: Row) -> bool:  # noqa: ARG002
        """Return False: a question without an answer is labelled as unanswerable."""
        return False

    def stratum(self, example: SpanExample) -> str:
        return str(example.is_impossible)

    def key(self, example: SpanExample) -> str:
        return example.context


def _answers(row: Row, columns: Columns) -> list[tuple[str, float | None]]:
    """Return texts and starts of the answers, from objects, an object of lists, or two columns."""
    cell = _parsed(row.get(columns.all("answers")[0]))
    start = row.get(columns.one("start") or "")
    if isinstance(cell, Mapping):
        start, cell = cell.get("answer_start"), cell.get("text")
    members = list_of(cell)
    texts = [cell] if members is None else members
    objects = [member for member in texts if isinstance(member, Mapping)]
    starts = list_of(start) or [start]
    pairs = [(one.get("text"), one.get("answer_start")) for one in objects] or [
        *zip_longest(texts, starts[: len(texts)])
    ]
    return [(text, number_of(start)) for cell, start in pairs if (text := text_of(cell)) is not None]


def _parsed(cell: object) -> object:
    """Parse a cell that is a JSON object; return anything else unchanged."""
    if not isinstance(cell, str) or not cell.lstrip().startswith("{"):
        return cell
    try:
        parsed: object = json.loads(cell)
    except (ValueError, RecursionError):
        return cell
    return parsed


def _placed(text: str, start: float | None, context: str, place: str) -> GoldAnswer:
    """Return an answer at its given start; without one, where the text first occurs."""
    begin = context.find(text) if start is None else int(start)
    stands = context[begin : begin + len(text)] if begin >= 0 else ""
    if not text.strip() or stands != text:
        raise LitebertError(
            "LB-866",
            f"{place}: the answer is not in the context where it should be",
            received=repr(text) if start is None else f"{text!r}; {stands!r} is at {begin:,}",
            expected="a part of the context, and the position of its first character, from 0",
            next="correct this row; count characters, not bytes",
        )
    return GoldAnswer(text, begin)
