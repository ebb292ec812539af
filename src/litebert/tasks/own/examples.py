"""From rows to examples: texts with labels, words with tags, questions with choices, questions on a context.

What a column of labels holds is found out once, from the whole training file; then every file is read the same way. A
new kind of task is a `RowReading` here and a line in `READINGS`, besides how its columns are guessed.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from itertools import zip_longest
from string import ascii_uppercase
from typing import Any, ClassVar, Generic, Self, TypeVar

from litebert.config import HeadConfig
from litebert.errors import LitebertError, did_you_mean
from litebert.reading.tables import Row
from litebert.tasks.kinds.choice import ChoiceExample, MultipleChoice
from litebert.tasks.kinds.family import Answer, Family
from litebert.tasks.kinds.spans import (
    ConditionalSpanAnswering,
    GoldAnswer,
    SpanAnswer,
    SpanAnswering,
    SpanExample,
    require_bounded_context,
)
from litebert.tasks.kinds.tagging import TagAnswer, TagExample, TokenClassification
from litebert.tasks.kinds.text import Label, Scores, TextClassification, TextExample
from litebert.tasks.own.columns import Columns, Role, RowShape, label_of, list_of, number_of, text_of
from litebert.tasks.own.table import TableFile

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
        """Read a whole table; return how its rows become examples, and a note on its labels."""

    @property
    @abstractmethod
    def family(self) -> Family[Read, Answer]:
        """The kind of task."""

    @abstractmethod
    def example(self, id: str, row: Row, place: str, *, is_labelled: bool) -> Read:
        """Turn a row into an example; errors name its place."""

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
        """Return the index of a label."""
        if label is None:
            what = f"{place}: there is no label in column {self.label_column}"
            advice = "data.missing_labels=skip, or --problem multi-label if a row may have none"
            raise LitebertError("LB-857", what, next=advice)
        if label not in self.numbers:
            some = ", ".join(self.labels[:20]) + (", …" if len(self.labels) > 20 else "")
            what = f"{place}: the training data has no label {label}"
            advice = f"add examples of it for training, or correct it ({did_you_mean(label, self.labels)})"
            raise LitebertError("LB-858", what, received=label, expected=f"one of {some}", next=advice)
        return self.numbers[label]

    @cached_property
    def numbers(self) -> dict[str, int]:
        """The index of each label."""
        return {label: number for number, label in enumerate(self.labels)}


# A column of labels, and which problem follows from it

MANY = 20
"""Distinct whole numbers are scores if there are more than this and nearly all rows differ."""
SEPARATORS = "|;,"
SLIPS = 20
"""In a column of fractions, at most one cell in this many may not be a number."""
AMOUNTS = ("score", "rating", "similarity", "relatedness")
"""A column of many whole numbers contains scores if its name has one of these words."""
MISSING = ("nan", "na", "n/a", "null", "none")
"""Words for a missing value in a column of numbers."""
_SHOWN_LABELS = 10
_MARKS = {"0": False, "1": True, "false": False, "true": True, "no": False, "yes": True}
"""The values of a column that marks one label."""


@dataclass(frozen=True)
class LabelColumn:
    """The counted labels of a whole table: those of single cells, and those in lists."""

    name: str
    single: Counter[str]
    listed: Counter[str]

    @classmethod
    def count(cls, name: str, rows: Iterable[Row]) -> Self:
        """Count the labels of a column; cells without one are skipped."""
        single, listed = Counter[str](), Counter[str]()
        for row in rows:
            cell = row.get(name)
            if (members := list_of(cell)) is not None:
                listed.update(label for member in members if (label := label_of(member)) is not None)
            elif (label := label_of(cell)) is not None:
                single[label] += 1
        return cls(name, single, listed)

    @property
    def are_numbers(self) -> bool:
        """Whether it contains only numbers, apart from words for a missing value."""
        number = sum(number_of(label) is not None for label in self.single)
        return 0 < number == sum(label.lower() not in MISSING for label in self.single)

    @property
    def problem(self) -> str:
        """The problem that follows from the labels of texts.

        Among fractions a few cells may not be numbers: a typing error does not turn scores into classes. Reading such a
        row is an error.

        >>> LabelColumn("stars", Counter({"1": 5, "2": 7}), Counter()).problem
        'classification'
        >>> LabelColumn("score", Counter({"1.5": 2, "4.25": 1}), Counter()).problem
        'regression'
        """
        if self.listed:
            return "multi-label"
        numbers = {label: number for label in self.single if (number := number_of(label)) is not None}
        total = self.single.total()
        if not all(number.is_integer() for number in numbers.values()):
            not_numbers = total - sum(self.single[label] for label in numbers)
            is_amounts = not_numbers * SLIPS <= total
        else:
            is_called_so = any(word in self.name.lower() for word in AMOUNTS)
            nearly_all_differ = len(numbers) * 2 > total
            is_amounts = self.are_numbers and len(numbers) > MANY and (is_called_so or nearly_all_differ)
        return "regression" if is_amounts else "classification"


def is_missing(cell: object, *, is_number: bool) -> bool:
    """Whether a cell has no value; among numbers, "nan" and the like are no values, either."""
    label = label_of(cell)
    return label is None or (is_number and label.lower() in MISSING)


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
    """Check that there is more than one label, so that something can be learnt."""
    if len(labels) < 2:
        what = f"{place}: column {column} leaves nothing to be learnt"
        received = f"{labels[0]} in every row" if labels else "no label in any row"
        raise LitebertError("LB-856", what, received=received, next="--column label=NAME with another column")


# A text, or a pair of texts, with a label, several labels, or a score


class TextRows(RowReading[TextExample, Scores]):
    """Texts with a label, several labels or a score, by subclass."""

    shape: ClassVar[RowShape] = "texts"
    problem_type: ClassVar[str]

    @classmethod
    def settle(cls, table: TableFile, columns: Columns, problem: str | None) -> tuple[TextRows, str]:
        names = columns.all("label")
        if len(names) > 1:
            return SeveralLabels(columns, names), f"a column for each of {len(names)} labels"
        found = LabelColumn.count(names[0], (row for _, row in table.rows()))
        reading = TEXTS[problem or found.problem]
        num_distinct, num_rows = len(found.single), found.single.total()
        if problem is None and reading is OneLabel and num_distinct > max(20, num_rows // 2):
            what = f"{table.source.name}: column {found.name} does not look like labels"
            received = f"{num_distinct:,} different values in {num_rows:,} rows"
            advice = "--column label=NAME; or, if these are labels, --problem classification"
            raise LitebertError("LB-862", what, received=received, next=advice)
        labels, note = reading.labels_in(found, table.source.name)
        return reading(columns, labels), note

    @classmethod
    @abstractmethod
    def labels_in(cls, found: LabelColumn, file: str) -> tuple[tuple[str, ...], str]:
        """Return the labels of a column, and a note on them."""

    @abstractmethod
    def label(self, row: Row, place: str) -> Label:
        """Read the label of a row: an index, several indices, or a score."""

    @cached_property
    def family(self) -> TextClassification:
        kind = "sequence-classification"
        return TextClassification.of(HeadConfig(kind=kind, labels=self.labels, problem_type=self.problem_type))

    def example(self, id: str, row: Row, place: str, *, is_labelled: bool) -> TextExample:
        first, *second = self.texts(row, "text", "second")
        label = self.label(row, place) if is_labelled else None
        return TextExample(id, first, second[0] if second else None, label)

    def key(self, example: TextExample) -> str:
        return f"{example.first}\n{example.second or ''}"

    def stratum(self, example: TextExample) -> str:
        return str(example.label)


class OneLabel(TextRows):
    """Each text has one label."""

    problem: ClassVar[str] = "classification"
    problem_type: ClassVar[str] = "single_label_classification"

    @classmethod
    def labels_in(cls, found: LabelColumn, file: str) -> tuple[tuple[str, ...], str]:
        is_number = found.are_numbers
        labels = in_order(label for label in found.single if not is_missing(label, is_number=is_number))
        require_choice(labels, file, found.name)
        shown = ", ".join(f"{label} ({found.single[label]:,})" for label in labels[:_SHOWN_LABELS])
        return labels, f"{len(labels)} labels: {shown}" + (", …" if len(labels) > _SHOWN_LABELS else "")

    def label(self, row: Row, place: str) -> int:
        return self.number(None if self.lacks_label(row) else label_of(row.get(self.label_column)), place)

    def lacks_label(self, row: Row) -> bool:
        return is_missing(row.get(self.label_column), is_number=self._are_numbers)

    @cached_property
    def _are_numbers(self) -> bool:
        return all(number_of(label) is not None for label in self.labels)


class SeveralLabels(TextRows):
    """Each text has any number of labels: in one column, or in a column for each."""

    problem: ClassVar[str] = "multi-label"
    problem_type: ClassVar[str] = "multi_label_classification"

    @classmethod
    def labels_in(cls, found: LabelColumn, file: str) -> tuple[tuple[str, ...], str]:  # noqa: ARG003
        mark = separator_in("".join(found.single))
        single = (label for cell in found.single for label in split_labels(cell, mark))
        labels = in_order([*single, *found.listed])
        return labels, f"{len(labels)} labels, of which a row has any number"

    def label(self, row: Row, place: str) -> tuple[int, ...]:
        names = self.columns.all("label")
        if len(names) > 1:
            return tuple(number for number, name in enumerate(names) if self._is_marked(name, row, place))
        cell = row.get(names[0])
        is_one = label_of(cell) in self.numbers  # a label may contain the separator
        labels = [label_of(cell)] if is_one else split_labels(cell, separator_in(str(cell)))
        return tuple(sorted({self.number(label, place) for label in labels}))

    def lacks_label(self, row: Row) -> bool:  # noqa: ARG002
        return False

    def _is_marked(self, name: str, row: Row, place: str) -> bool:
        cell = (label_of(row.get(name)) or "0").lower()
        if cell not in _MARKS:
            what = f"{place}: column {name} does not say whether the label is given"
            advice = "--column label=NAME with one column, for one label per row"
            raise LitebertError("LB-860", what, received=cell, expected="0 or 1", next=advice)
        return _MARKS[cell]


class OneScore(TextRows):
    """Each text has a score to estimate."""

    problem: ClassVar[str] = "regression"
    problem_type: ClassVar[str] = "regression"

    @classmethod
    def labels_in(cls, found: LabelColumn, file: str) -> tuple[tuple[str, ...], str]:  # noqa: ARG003
        return (found.name,), f"numbers in column {found.name}"

    def label(self, row: Row, place: str) -> float:
        cell = row.get(self.label_column)
        score = number_of(cell)
        if score is None:
            what = f"{place}: column {self.label_column} is not a finite number"
            advice = "correct the row, or data.missing_labels=skip; for classes: --problem classification"
            raise LitebertError("LB-859", what, received=repr(cell), next=advice)
        return score

    def lacks_label(self, row: Row) -> bool:
        return is_missing(row.get(self.label_column), is_number=True)

    def stratum(self, example: TextExample) -> str:  # noqa: ARG002
        return ""


# Sentences with a tag for each word


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

    def example(self, id: str, row: Row, place: str, *, is_labelled: bool) -> TagExample:
        words = tuple(text_of(word) or "" for word in _members(row, self.columns.one("tokens")))
        if not is_labelled:
            return TagExample(id, words)
        tags = [label_of(tag) for tag in _members(row, self.label_column)]
        if len(tags) != len(words):
            received = f"{len(words)} words, {len(tags)} tags in column {self.label_column}"
            what = f"{place}: there is not one tag for each word"
            raise LitebertError("LB-863", what, received=received, next="correct this row")
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


# Questions with choices


class ChoiceRows(RowReading[ChoiceExample, Scores]):
    """Questions with choices: in a list, in a column each, or in an object with their names.

    `labels` are the names of the choices in the label column, in order. A row may also name its choices itself, or its
    label may repeat the text of a choice.
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

    def example(self, id: str, row: Row, place: str, *, is_labelled: bool) -> ChoiceExample:
        texts, names = _choices(row, self.columns)
        if len(texts) < 2:
            received = f"{len(texts)} choices in {', '.join(self.columns.all('choices'))}"
            advice = "correct this row, or --column choices=NAME,NAME,…"
            raise LitebertError("LB-864", f"{place}: there is nothing to choose from", received=received, next=advice)
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
        wanted = f"one of {', '.join(names or self.labels[: len(texts)])}, or a choice's text"
        what = f"{place}: column {self.label_column} names none of the choices"
        raise LitebertError("LB-865", what, received=label or "nothing", expected=wanted, next="correct this row")


def _spelling(number: int, found: set[str], *, counts_from_one: bool) -> tuple[str, ...]:
    """Return the names of the choices in the spelling that the labels `found` use."""
    from_one = tuple(map(str, range(1, number + 1)))
    letters = tuple(ascii_uppercase[:number])
    spellings = (tuple(map(str, range(number))), from_one, letters, tuple(map(str.lower, letters)))
    fitting = [spelling for spelling in spellings if found and found <= {*spelling}]
    if counts_from_one and from_one in fitting:
        return from_one
    return fitting[0] if fitting else tuple(f"choice {place}" for place in from_one)


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


# Questions that are answered by a span of a context or, as in SQuAD 2.0, not at all

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
    def family(self) -> SpanAnswering:
        return ConditionalSpanAnswering() if self.labels else SpanAnswering()

    def example(self, id: str, row: Row, place: str, *, is_labelled: bool) -> SpanExample:
        """Turn a row into an example; an empty list of answers means that there is none."""
        question, context = self.texts(row, "question", "context")
        require_bounded_context(context, place)
        if not is_labelled:
            return SpanExample(id, question, context)
        found = _answers(row, self.columns)
        return SpanExample(id, question, context, tuple(_placed(*each, context, place) for each in found))

    def lacks_label(self, row: Row) -> bool:  # noqa: ARG002
        """Return False: a question without an answer is labelled as unanswerable."""
        return False

    def stratum(self, example: SpanExample) -> str:
        return str(example.is_impossible)

    def key(self, example: SpanExample) -> str:
        return example.context


def _answers(row: Row, columns: Columns) -> list[tuple[str, float | None]]:
    """Return texts and starts of the answers, from objects, an object of lists, or two columns."""
    cell, start = row.get(columns.all("answers")[0]), row.get(columns.one("start") or "")
    if isinstance(cell, str) and cell.lstrip().startswith("{"):
        with suppress(ValueError, RecursionError):  # a text may begin with a brace, too
            cell = json.loads(cell)
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


def _placed(text: str, start: float | None, context: str, place: str) -> GoldAnswer:
    """Return an answer at its given start; without one, where the text first occurs."""
    begin = context.find(text) if start is None else int(start)
    stands = context[begin : begin + len(text)] if begin >= 0 else ""
    if not text.strip() or stands != text:
        what = f"{place}: the answer is not in the context where it should be"
        received = repr(text) if start is None else f"{text!r}; {stands!r} is at {begin:,}"
        advice = "correct this row; count characters from 0, not bytes"
        raise LitebertError("LB-866", what, received=received, next=advice)
    return GoldAnswer(text, begin)


TEXTS: dict[str, type[TextRows]] = {each.problem: each for each in (OneLabel, SeveralLabels, OneScore)}
READINGS: dict[RowShape, type[RowReading[Any, Any]]] = {
    each.shape: each for each in (TextRows, WordRows, ChoiceRows, SpanRows)
}
"""The reading of each shape; a new shape is added here and to `columns`."""
EVERY_PROBLEM = TEXTS | {each.problem: each for each in (WordRows, ChoiceRows, SpanRows)}
"""The readings by the name of their problem, as in --problem."""
