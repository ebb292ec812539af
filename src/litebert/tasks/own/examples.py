"""From rows to examples: texts with labels, words with tags, questions with choices, questions on a context.

What a column of labels holds is found out once, from the whole training file; then every file is read the same way. A
new kind of task is a `RowReading` here with its line in `READINGS`, and a guess at its columns.
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
from pathlib import Path
from string import ascii_uppercase
from typing import Any, ClassVar, Generic, TypeAlias, TypeVar

from litebert.config import HeadConfig
from litebert.errors import LitebertError, did_you_mean
from litebert.reading.tables import Row
from litebert.tasks.kinds.choice import ChoiceExample, MultipleChoice
from litebert.tasks.kinds.family import Answer, Family
from litebert.tasks.kinds.spans import ConditionalSpanAnswering, SpanAnswer, SpanAnswering, SpanExample, gold_answers
from litebert.tasks.kinds.tagging import TagAnswer, TagExample, TokenClassification
from litebert.tasks.kinds.text import Label, Scores, TextClassification, TextExample
from litebert.tasks.own.columns import LEARNT, Columns, Role, RowShape, label_of, list_of, number_of, text_of
from litebert.tasks.own.table import TableFile, open_table

Read = TypeVar("Read")
Found: TypeAlias = tuple[str, tuple[str, ...], str]
"""What all rows say about their labels: the problem, the names of its labels, and a note for the user."""


@dataclass(frozen=True)
class RowReading(ABC, Generic[Read, Answer]):
    """Turns the rows of one problem into examples; `labels` are the names of labels, tags or choices in the file.

    `names` are those of all columns of the training file.
    """

    columns: Columns
    problem: str
    labels: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    problems: ClassVar[tuple[str, ...]]
    learnt: ClassVar[Role] = "label"  # the role of the column with the right answers

    @staticmethod
    @abstractmethod
    def settle(rows: Iterable[Row], file: str, columns: Columns, problem: str | None) -> Found:
        """Read all rows of a training file."""

    def open(self, path: Path, *, is_labelled: bool) -> TableFile:
        """Open a file with the same columns; only with `is_labelled` does it need the labels."""
        table = open_table(path, has_header=self.columns.has_header, known=self.names)
        optional = ("id",) if is_labelled else ("id", *LEARNT)
        self.columns.require_in(table.columns, without=optional, where=f" in {path}")
        return table

    @property
    @abstractmethod
    def family(self) -> Family[Read, Answer]:
        """The kind of task."""

    @abstractmethod
    def example(self, id: str, row: Row, place: str, *, is_labelled: bool) -> Read:
        """Turn a row into an example; errors name its place."""

    def example_of(self, table: TableFile, number: int, row: Row, *, is_labelled: bool) -> Read:
        """Turn a row of a table into an example; its id is in the id column or, without one, its number."""
        id_column = self.columns.one("id")
        own = label_of(row.get(id_column)) if id_column else None
        return self.example(own or str(number), row, table.place(number), is_labelled=is_labelled)

    @abstractmethod
    def group(self, example: Read) -> tuple[str, str]:
        """Return the text that may not be in both training and held-out rows, and the label, if there is one.

        The same share of each label is held out.
        """

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

    @cached_property
    def numbers(self) -> dict[str, int]:
        """The index of each label."""
        return {label: number for number, label in enumerate(self.labels)}

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


# A column of labels: which problem follows from it

MANY = 20  # distinct whole numbers may be scores if there are more than this
SLIPS = 20  # in a column of fractions, at most one cell in this many may not be a number
AMOUNTS = ("score", "rating", "similarity", "relatedness")  # a column of many whole numbers so called has scores
MISSING = ("nan", "na", "n/a", "null", "none")  # no value, in a column of numbers
SEPARATORS = "|;,"  # between the labels of one cell, the likelier first
_SHOWN_LABELS = 10


def count_labels(name: str, rows: Iterable[Row]) -> tuple[Counter[str], Counter[str]]:
    """Count the labels of a column: those of single cells, and those in lists; cells without one are skipped."""
    single, listed = Counter[str](), Counter[str]()
    for row in rows:
        cell = row.get(name)
        if (members := list_of(cell)) is not None:
            listed.update(label for member in members if (label := label_of(member)) is not None)
        elif (label := label_of(cell)) is not None:
            single[label] += 1
    return single, listed


def problem_of(name: str, single: Counter[str], listed: Counter[str]) -> str:
    """Return the problem that follows from the counted labels of a column of texts.

    >>> problem_of("stars", Counter({"1": 5, "2": 7}), Counter())
    'classification'
    >>> problem_of("score", Counter({"1.5": 2, "4.25": 1}), Counter())
    'regression'
    """
    if listed:
        return "multi-label"
    numbers = {label: number for label in single if (number := number_of(label)) is not None}
    total = single.total()
    if not all(number.is_integer() for number in numbers.values()):
        # A typing error among fractions does not turn scores into classes; reading its row is an error.
        not_numbers = total - sum(single[label] for label in numbers)
        is_amounts = not_numbers * SLIPS <= total
    else:
        is_called_so = any(word in name.lower() for word in AMOUNTS)
        nearly_all_differ = len(numbers) * 2 > total
        is_amounts = are_numbers(single) and len(numbers) > MANY and (is_called_so or nearly_all_differ)
    return "regression" if is_amounts else "classification"


def are_numbers(labels: Iterable[str]) -> bool:
    """Whether all labels are numbers, apart from words for a missing value."""
    filled = [label for label in labels if number_of(label) is not None or label.lower() not in MISSING]
    return bool(filled) and all(number_of(label) is not None for label in filled)


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

_PROBLEM_TYPES = {
    "classification": "single_label_classification",
    "multi-label": "multi_label_classification",
    "regression": "regression",
}
_MARKS = {"0": False, "1": True, "false": False, "true": True, "no": False, "yes": True}  # in a column for one label


class TextRows(RowReading[TextExample, Scores]):
    """Texts with one label, any number of labels (in one column, or in a column for each), or a score, by `problem`."""

    problems = tuple(_PROBLEM_TYPES)

    @staticmethod
    def settle(rows: Iterable[Row], file: str, columns: Columns, problem: str | None) -> Found:
        name, *others = columns.all("label")
        if others:
            labels = (name, *others)
            return "multi-label", labels, f"a column for each of {len(labels)} labels"
        single, listed = count_labels(name, rows)
        found = problem or problem_of(name, single, listed)
        if found == "regression":
            return found, (name,), f"numbers in column {name}"
        if found == "multi-label":
            separator = _separator("".join(single))
            labels = in_order([*(label for cell in single for label in split_labels(cell, separator)), *listed])
            return found, labels, f"{len(labels)} labels, of which a row has any number"
        if problem is None and len(single) > max(20, single.total() // 2):
            what = f"{file}: column {name} does not look like labels"
            received = f"{len(single):,} different values in {single.total():,} rows"
            advice = "--column label=NAME; or, if these are labels, --problem classification"
            raise LitebertError("LB-862", what, received=received, next=advice)
        is_number = are_numbers(single)
        labels = in_order(label for label in single if not _is_missing(label, is_number=is_number))
        require_choice(labels, file, name)
        shown = ", ".join(f"{label} ({single[label]:,})" for label in labels[:_SHOWN_LABELS])
        return found, labels, f"{len(labels)} labels: {shown}" + ", …" * (len(labels) > _SHOWN_LABELS)

    @cached_property
    def family(self) -> TextClassification:
        problem_type, kind = _PROBLEM_TYPES[self.problem], "sequence-classification"
        return TextClassification.of(HeadConfig(kind=kind, labels=self.labels, problem_type=problem_type))

    def example(self, id: str, row: Row, place: str, *, is_labelled: bool) -> TextExample:
        first, *second = self.texts(row, "text", "second")
        return TextExample(id, first, second[0] if second else None, self._label(row, place) if is_labelled else None)

    def group(self, example: TextExample) -> tuple[str, str]:
        stratum = "" if self.problem == "regression" else str(example.label)
        return f"{example.first}\n{example.second or ''}", stratum

    def lacks_label(self, row: Row) -> bool:
        return self.problem != "multi-label" and _is_missing(row.get(self.label_column), is_number=self._has_numbers)

    @cached_property
    def _has_numbers(self) -> bool:
        return self.problem == "regression" or all(number_of(label) is not None for label in self.labels)

    def _label(self, row: Row, place: str) -> Label:
        """Read the label of a row: an index, several indices, or a score."""
        names = self.columns.all("label")
        cell = row.get(names[0])
        if self.problem == "classification":
            return self.number(None if self.lacks_label(row) else label_of(cell), place)
        if self.problem == "regression":
            if (score := number_of(cell)) is None:
                what = f"{place}: column {names[0]} is not a finite number"
                advice = "correct the row, or data.missing_labels=skip; for classes: --problem classification"
                raise LitebertError("LB-859", what, received=repr(cell), next=advice)
            return score
        if len(names) == 1:
            is_one = label_of(cell) in self.numbers  # a label may contain the separator
            labels = [label_of(cell)] if is_one else split_labels(cell, _separator(str(cell)))
            return tuple(sorted({self.number(label, place) for label in labels}))
        marks = [(label_of(row.get(name)) or "0").lower() for name in names]
        for name, mark in zip(names, marks, strict=True):
            if mark not in _MARKS:
                what = f"{place}: column {name} does not say whether the label is given"
                advice = "--column label=NAME with one column, for one label per row"
                raise LitebertError("LB-860", what, received=mark, expected="0 or 1", next=advice)
        return tuple(number for number, mark in enumerate(marks) if _MARKS[mark])


def _is_missing(cell: object, *, is_number: bool) -> bool:
    label = label_of(cell)
    return label is None or (is_number and label.lower() in MISSING)


def _separator(text: str) -> str:
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


# Sentences with a tag for each word


class WordRows(RowReading[TagExample, TagAnswer]):
    """Sentences: lists, or texts with a space between words."""

    problems = ("token-classification",)
    learnt: ClassVar[Role] = "tags"

    @staticmethod
    def settle(rows: Iterable[Row], file: str, columns: Columns, problem: str | None) -> Found:  # noqa: ARG004
        (name,) = columns.all("tags")
        tags = (label_of(tag) for row in rows for tag in _members(row, name))
        labels = in_order(tag for tag in tags if tag is not None)
        require_choice(labels, file, name)
        return "token-classification", labels, f"{len(labels)} tags: {', '.join(labels)}"

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

    def group(self, example: TagExample) -> tuple[str, str]:
        return " ".join(example.words), ""


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

    problems = ("multiple-choice",)

    @staticmethod
    def settle(rows: Iterable[Row], file: str, columns: Columns, problem: str | None) -> Found:  # noqa: ARG004
        name = columns.all("label")[0]
        most, found, are_texts, counts_from_one = 0, set[str](), True, False
        for row in rows:
            texts, names = _choices(row, columns)
            most = max(most, len(texts))
            label = label_of(row.get(name)) or ""
            are_texts = are_texts and label in texts
            if not names:
                found.add(label)
                counts_from_one = counts_from_one or label == str(len(texts))
        labels = _spelling(most, set() if are_texts else found, counts_from_one=counts_from_one)
        return "multiple-choice", labels, f"up to {most} choices, called {', '.join(labels)}"

    @cached_property
    def family(self) -> MultipleChoice:
        return MultipleChoice(num_choices=len(self.labels))

    def example(self, id: str, row: Row, place: str, *, is_labelled: bool) -> ChoiceExample:
        texts, names = _choices(row, self.columns)
        if not 2 <= len(texts) <= len(self.labels):
            what, received = (
                f"{place}: these are not choices",
                f"{len(texts)} in {', '.join(self.columns.all('choices'))}",
            )
            wanted = "2 or more, and no more than in the training data"
            advice = "correct this row, or --column choices=NAME,NAME,…"
            raise LitebertError("LB-864", what, received=received, expected=wanted, next=advice)
        question, context = ("".join(self.texts(row, role)) for role in ("question", "context"))
        label = self._label(row, texts, names, place) if is_labelled else None
        return ChoiceExample(id, context, question, texts, label)

    def group(self, example: ChoiceExample) -> tuple[str, str]:
        """Return the context, which several questions may share; without one, the question."""
        return example.context or example.question, ""

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

    problems = ("question-answering",)
    learnt: ClassVar[Role] = "answers"

    @staticmethod
    def settle(rows: Iterable[Row], file: str, columns: Columns, problem: str | None) -> Found:  # noqa: ARG004
        number = sum(not _answers(row, columns) for row in rows)
        note = f"{number:,} without an answer" if number else "all are answered"
        return "question-answering", (UNANSWERABLE,) if number else (), f"questions; {note}"

    @cached_property
    def family(self) -> SpanAnswering:
        return ConditionalSpanAnswering() if self.labels else SpanAnswering()

    def example(self, id: str, row: Row, place: str, *, is_labelled: bool) -> SpanExample:
        """Turn a row into an example; an empty list of answers means that there is none."""
        question, context = self.texts(row, "question", "context")
        answers = gold_answers(context, _answers(row, self.columns) if is_labelled else (), place)
        return SpanExample(id, question, context, answers if is_labelled else None)

    def lacks_label(self, row: Row) -> bool:  # noqa: ARG002
        """Return False: a question without an answer is labelled as unanswerable."""
        return False

    def group(self, example: SpanExample) -> tuple[str, str]:
        return example.context, str(example.is_impossible)


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


READINGS: dict[RowShape, type[RowReading[Any, Any]]] = {
    "texts": TextRows,
    "words": WordRows,
    "choices": ChoiceRows,
    "spans": SpanRows,
}
"""The reading of each shape of rows; a new shape is added here and to `columns`."""
SHAPES: dict[str, RowShape] = {problem: shape for shape, each in READINGS.items() for problem in each.problems}
"""The shape of the rows by the name of their problem, as in --problem."""
