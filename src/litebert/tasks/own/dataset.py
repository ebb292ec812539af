"""A user's own files as a data set: texts with labels, words with tags, questions with
choices, questions on a context.

How rows become examples is settled once on the training file, and reported; then every
file is read the same way. What is not set is guessed from the columns and, for labels,
from all rows. A new kind of task is a `RowReading` here with a line in `READINGS`, and
a guess at its columns.
"""

import csv
import io
import json
import re
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property, partial
from hashlib import blake2b
from itertools import chain, zip_longest
from pathlib import Path
from string import ascii_uppercase
from typing import Any, ClassVar, Generic, Self

import numpy as np
from numpy.typing import NDArray

from litebert import rng
from litebert.config import HeadConfig
from litebert.errors import LitebertError, did_you_mean, format_count
from litebert.files import hash_file
from litebert.reading.source import TABLES, find_input
from litebert.reading.tables import Row
from litebert.tasks.kinds.family import Answer, Dataset, Example, Family
from litebert.tasks.kinds.spans import (
    ConditionalSpanAnswering,
    SpanAnswer,
    SpanAnswering,
    SpanExample,
    gold_answers,
)
from litebert.tasks.kinds.tagging import TagAnswer, TagExample, TokenClassification
from litebert.tasks.kinds.text import (
    ChoiceExample,
    Label,
    MultipleChoice,
    Scores,
    TextClassification,
    TextExample,
)
from litebert.tasks.own.table import (
    LEARNT,
    MISSING,
    Columns,
    Role,
    RowShape,
    TableFile,
    chosen_columns,
    guess_columns,
    have_words,
    label_of,
    list_of,
    mark_of,
    number_of,
    open_table,
    pair_flags,
    text_of,
)


@dataclass(frozen=True)
class RowReading(ABC, Generic[Example, Answer]):
    """Turns the rows of one problem into examples; `labels` are the names of labels,
    tags or choices in the file.
    """

    columns: Columns
    problem: str
    labels: tuple[str, ...] = ()
    problems: ClassVar[tuple[str, ...]]
    learnt: ClassVar[Role] = "label"  # the role of the column with the right answers

    @classmethod
    @abstractmethod
    def settle(
        cls, rows: Iterable[Row], file: str, columns: Columns, problem: str | None
    ) -> tuple[Self, str]:
        """Read all rows of a training file; return how they are read, and a note on
        their labels for the user.
        """

    @property
    @abstractmethod
    def family(self) -> Family[Example, Answer]:
        """The kind of task."""

    @abstractmethod
    def example(self, id: str, row: Row, place: str, *, is_labelled: bool) -> Example:
        """Turn a row into an example; errors name its place."""

    def group(self, example: Example) -> tuple[str, str]:
        """Return a text that is not both trained on and held out, and its label: the
        same share of each is held out.
        """
        return self.family.texts(example)[0], ""

    def lacks_label(self, row: Row) -> bool:
        """Return whether a row has no label to learn."""
        return not members_of(self.columns.cell(row, self.learnt))

    def open(self, path: Path, *, is_labelled: bool) -> TableFile:
        """Open a file with the same columns; columns of labels are required only with
        `is_labelled`.
        """
        table = open_table(path, has_header=self.columns.has_header is not False)
        optional = ("id",) if is_labelled else ("id", *LEARNT)
        self.columns.require_in(table.columns, without=optional, where=f" in {path}")
        return table

    def example_of(
        self, table: TableFile, number: int, row: Row, *, is_labelled: bool
    ) -> Example:
        """Turn a row of a table into an example; its id is in the id column or, without
        one, its number.
        """
        own = label_of(self.columns.cell(row, "id"))
        return self.example(
            own or str(number), row, table.source.place(number), is_labelled=is_labelled
        )

    def text(self, row: Row, role: Role, place: str) -> str:
        """Return the text of a role, "" if the row has none."""
        cell = self.columns.cell(row, role)
        if not isinstance(cell, str | int | float | None):
            name = self.columns.all(role)[0]
            advice = f"write text; or choose another column: --column {role}=NAME"
            raise LitebertError(
                "LB-824",
                f"{place}: column {name} is not text",
                received=repr(cell),
                next=advice,
            )
        return text_of(cell) or ""

    @cached_property
    def numbers(self) -> dict[str, int]:
        """The index of each label."""
        return {label: number for number, label in enumerate(self.labels)}

    def number(self, label: str | None, place: str) -> int:
        """Return the index of a label."""
        if label is None:
            what = (
                f"{place}: there is no label in column"
                f" {self.columns.all(self.learnt)[0]}"
            )
            advice = (
                "correct it; to train: data.missing_labels=skip, or --problem"
                " multi-label if a row may have none"
            )
            raise LitebertError("LB-857", what, next=advice)
        if label not in self.numbers:
            some = ", ".join(self.labels[:20]) + (
                ", …" if len(self.labels) > 20 else ""
            )
            what = f"{place}: the training data has no label {label}"
            advice = (
                "add examples of it for training, or correct it"
                f" ({did_you_mean(label, self.labels)})"
            )
            raise LitebertError(
                "LB-858", what, received=label, expected=f"one of {some}", next=advice
            )
        return self.numbers[label]


# Which problem follows from a column of labels

MANY = 20  # distinct whole numbers may be scores if there are more than this
# in a column of fractions, at most one cell in this many may not be a number
SLIPS = 20
# a column of many whole numbers with such a name has scores
AMOUNTS = ("score", "rating", "similarity", "relatedness")
SEPARATORS = "|;,"  # between the labels of one cell, the likeliest first
_SHOWN_LABELS = 10


def _are_scores(name: str, counts: Counter[str]) -> bool:
    numbers = {
        label: number for label in counts if (number := number_of(label)) is not None
    }
    if not all(map(float.is_integer, numbers.values())):
        # A typing error among fractions does not turn scores into classes; reading its
        # row raises an error.
        return (
            counts.total() - sum(counts[label] for label in numbers)
        ) * SLIPS <= counts.total()
    is_called_so = any(word in name.lower() for word in AMOUNTS)
    nearly_all_differ = len(numbers) * 2 > counts.total()
    return (
        _are_numbers(counts)
        and len(numbers) > MANY
        and (is_called_so or nearly_all_differ)
    )


def _are_numbers(labels: Iterable[str]) -> bool:
    filled = [label for label in labels if label.lower() not in MISSING]
    return bool(filled) and all(number_of(label) is not None for label in filled)


def sort_labels(labels: Iterable[str | None]) -> tuple[str, ...]:
    """Return labels sorted by number or by name, so that the order of rows does not
    matter.
    """
    names = {label for label in labels if label is not None}
    if all(number_of(label) is not None for label in names):
        return tuple(sorted(names, key=lambda label: (number_of(label) or 0.0, label)))
    return tuple(sorted(names))


def require_labels(
    labels: Sequence[str], place: str, column: str, *, fewest: int = 2
) -> None:
    """Check that there are enough labels, so that something can be learnt."""
    if len(labels) < fewest:
        what = f"{place}: column {column} leaves nothing to be learnt"
        received = f"{labels[0]} in every row" if labels else "no label in any row"
        raise LitebertError(
            "LB-856",
            what,
            received=received,
            next="--column label=NAME with another column",
        )


def members_of(cell: object, separator: str | None = None) -> Sequence[object]:
    """Return the members of a list, or the parts of a text between separators, by
    default its words.
    """
    members = list_of(cell)
    return (text_of(cell) or "").split(separator) if members is None else members


def labels_in(cell: object, text: str) -> list[str]:
    """Return the labels of a cell that may have several; they are separated by the
    likeliest mark in a text.
    """
    separator = next((mark for mark in SEPARATORS if mark in text), SEPARATORS[-1])
    return [
        label
        for member in members_of(cell, separator)
        if (label := label_of(member)) is not None
    ]


# A text, or a pair of texts, with a label, several labels, or a score

_PROBLEM_TYPES = {
    "classification": "single_label_classification",
    "multi-label": "multi_label_classification",
    "regression": "regression",
}


class TextRows(RowReading[TextExample, Scores]):
    """Texts with one label, any number of labels (in one column, or in a column for
    each), or a score, by `problem`.
    """

    problems = tuple(_PROBLEM_TYPES)

    @classmethod
    def settle(
        cls, rows: Iterable[Row], file: str, columns: Columns, problem: str | None
    ) -> tuple[Self, str]:
        name, *others = columns.all("label")
        if others:
            if problem not in (None, "multi-label"):
                what = f"{file}: a column for each label is for multi-label"
                received = f"--problem {problem}"
                raise LitebertError(
                    "LB-892",
                    what,
                    received=received,
                    next="omit --problem, or name one column",
                )
            return (
                cls(columns, "multi-label", (name, *others)),
                f"a column for each of {len(others) + 1} labels",
            )
        # cells with one label, and labels in lists; cells without one are skipped
        single = Counter[str]()
        listed = Counter[str]()
        for cell in (row.get(name) for row in rows):
            members = list_of(cell)
            counts, cells = (single, [cell]) if members is None else (listed, members)
            counts.update(
                label for each in cells if (label := label_of(each)) is not None
            )
        found = problem or ("multi-label" if listed else "classification")
        if problem is None and not listed and _are_scores(name, single):
            found = "regression"
        if found == "regression":
            about = f"numbers in column {name}"
            pointed = [label for label in single if "." in label]
            are_thousands = all(
                re.fullmatch(r"[+-]?[1-9]\d{0,2}\.\d{3}", label) for label in pointed
            )
            if are_thousands and 0 < len(pointed) < len(single):  # 994 and 1.018
                about += (
                    f"; warning: {pointed[0]} is read as a fraction; if it is in"
                    " thousands, remove the points"
                )
            return cls(columns, found, (name,)), about
        if found == "multi-label":
            written = "".join(single)
            labels = sort_labels(
                [
                    *(label for cell in single for label in labels_in(cell, written)),
                    *listed,
                ]
            )
            require_labels(labels, file, name, fewest=1)
            return (
                cls(columns, found, labels),
                f"{format_count(len(labels), 'label')}, any number per row",
            )
        if problem is None and len(single) > max(20, single.total() // 2):
            what = f"{file}: column {name} does not look like labels"
            received = (
                f"{len(single):,} different values in {single.total():,} rows, such as"
                f" {next(iter(single))}"
            )
            advice = (
                "--column label=NAME; write numbers like 1234.5; if these are labels:"
                " --problem classification"
            )
            raise LitebertError("LB-862", what, received=received, next=advice)
        missing = MISSING if _are_numbers(single) else ()
        labels = sort_labels(label for label in single if label.lower() not in missing)
        require_labels(labels, file, name)
        shown = ", ".join(
            f"{label} ({single[label]:,})" for label in labels[:_SHOWN_LABELS]
        )
        return cls(columns, found, labels), f"{len(labels)} labels: {shown}" + ", …" * (
            len(labels) > _SHOWN_LABELS
        )

    @cached_property
    def family(self) -> TextClassification:
        problem_type = _PROBLEM_TYPES[self.problem]
        kind = "sequence-classification"
        return TextClassification.of(
            HeadConfig(kind=kind, labels=self.labels, problem_type=problem_type)
        )

    def example(
        self, id: str, row: Row, place: str, *, is_labelled: bool
    ) -> TextExample:
        second = self.text(row, "second", place) if self.columns.all("second") else None
        label = self._label(row, place) if is_labelled else None
        return TextExample(id, self.text(row, "text", place), second, label)

    def group(self, example: TextExample) -> tuple[str, str]:
        stratum = "" if self.problem == "regression" else str(example.label)
        return f"{example.first}\n{example.second or ''}", stratum

    def lacks_label(self, row: Row) -> bool:
        label = label_of(self.columns.cell(row, "label"))
        return self.problem != "multi-label" and (
            label is None or label.lower() in self._missing
        )

    @cached_property
    def _missing(self) -> tuple[str, ...]:
        return (
            MISSING if self.problem == "regression" or _are_numbers(self.labels) else ()
        )

    def _label(self, row: Row, place: str) -> Label:
        names = self.columns.all("label")
        cell = self.columns.cell(row, "label")
        if self.problem == "classification":
            return self.number(None if self.lacks_label(row) else label_of(cell), place)
        if self.problem == "regression":
            if (score := number_of(cell)) is None:
                what = f"{place}: column {names[0]} is not a finite number"
                advice = (
                    "write it as 1234.5; to train: data.missing_labels=skip if empty,"
                    " or --problem classification"
                )
                raise LitebertError("LB-859", what, received=repr(cell), next=advice)
            return score
        if len(names) == 1:
            is_one = label_of(cell) in self.numbers  # a label may contain the separator
            labels = [label_of(cell)] if is_one else labels_in(cell, str(cell))
            return tuple(sorted({self.number(label, place) for label in labels}))
        given = []
        for number, name in enumerate(names):
            if (is_given := mark_of(row.get(name))) not in (0, 1):
                what = f"{place}: column {name} does not say whether the label is given"
                advice = "--column label=NAME with one column, for one label per row"
                raise LitebertError(
                    "LB-860",
                    what,
                    received=row.get(name),
                    expected="0 or 1",
                    next=advice,
                )
            if is_given:
                given.append(number)
        return tuple(given)


# Sentences with a tag for each word


class WordRows(RowReading[TagExample, TagAnswer]):
    """Sentences: lists, or texts with a space between words."""

    problems = ("token-classification",)
    learnt: ClassVar[Role] = "tags"

    @classmethod
    def settle(
        cls, rows: Iterable[Row], file: str, columns: Columns, _: str | None
    ) -> tuple[Self, str]:
        labels = sort_labels(
            label_of(tag)
            for row in rows
            for tag in members_of(columns.cell(row, "tags"))
        )
        require_labels(labels, file, columns.all("tags")[0])
        return (
            cls(columns, "token-classification", labels),
            f"{len(labels)} tags: {', '.join(labels)}",
        )

    @cached_property
    def family(self) -> TokenClassification:
        return TokenClassification(
            HeadConfig(kind="token-classification", labels=self.labels)
        )

    def example(
        self, id: str, row: Row, place: str, *, is_labelled: bool
    ) -> TagExample:
        words = tuple(
            text_of(word) or "" for word in members_of(self.columns.cell(row, "tokens"))
        )
        if not is_labelled:
            return TagExample(id, words)
        tags = [label_of(tag) for tag in members_of(self.columns.cell(row, "tags"))]
        if len(tags) != len(words):
            received = (
                f"{len(words)} words, {len(tags)} tags in column"
                f" {self.columns.all('tags')[0]}"
            )
            what = f"{place}: there is not one tag for each word"
            raise LitebertError(
                "LB-863", what, received=received, next="correct this row"
            )
        return TagExample(id, words, tuple(self.number(tag, place) for tag in tags))


# Questions with choices


class ChoiceRows(RowReading[ChoiceExample, Scores]):
    """Questions with choices: in a list, in a column each, or in an object with their
    names.

    `labels` are the names of the choices in the label column, in order. A row may also
    name its choices itself, or its label may repeat the text of a choice.
    """

    problems = ("multiple-choice",)

    @classmethod
    def settle(
        cls, rows: Iterable[Row], file: str, columns: Columns, _: str | None
    ) -> tuple[Self, str]:
        most = 0
        found = Counter[str]()
        num_texts = 0
        counts_from_one = False
        for row in rows:
            texts, names = _choices(row, columns)
            most = max(most, len(texts))
            label = label_of(columns.cell(row, "label"))
            if label is not None and not names:
                found[label] += 1
                num_texts += label in texts
                counts_from_one = counts_from_one or label == str(len(texts))
        # the usual spelling of most labels (from 0, from 1, in letters), unless as many
        # repeat the text of a choice
        from_zero = tuple(map(str, range(most)))
        from_one = tuple(map(str, range(1, most + 1)))
        numbers = (from_one, from_zero) if counts_from_one else (from_zero, from_one)
        letters = ascii_uppercase[:most]
        covered = {
            each: sum(found[label] for label in each)
            for each in (*numbers, (*letters,), (*letters.lower(),))
        }
        spellings = [
            each
            for each, number in covered.items()
            if number == max(covered.values()) > num_texts
        ]
        if len(spellings) > 1 and not counts_from_one:
            what = (
                f"{file}: the labels of the {most} choices may count from 0 or from 1"
            )
            received = ", ".join(sort_labels(found))
            expected = f"0 or {most} in some row, or letters, or texts"
            raise LitebertError(
                "LB-893",
                what,
                received=received,
                expected=expected,
                next="write letters: A, B, …",
            )
        labels = (
            spellings[0]
            if spellings
            else tuple(f"choice {place}" for place in from_one)
        )
        return (
            cls(columns, "multiple-choice", labels),
            f"up to {most} choices, called {', '.join(labels)}",
        )

    @cached_property
    def family(self) -> MultipleChoice:
        return MultipleChoice(num_choices=len(self.labels))

    def example(
        self, id: str, row: Row, place: str, *, is_labelled: bool
    ) -> ChoiceExample:
        texts, names = _choices(row, self.columns)
        if not 2 <= len(texts) <= len(self.labels):
            received = f"{len(texts)} in {', '.join(self.columns.all('choices'))}"
            what = f"{place}: these are not choices"
            wanted = "2 or more, and no more than in the training data"
            advice = "correct this row, or --column choices=NAME,NAME,…"
            raise LitebertError(
                "LB-864", what, received=received, expected=wanted, next=advice
            )
        question, context = (
            self.text(row, role, place) for role in ("question", "context")
        )
        if not is_labelled:
            return ChoiceExample(id, context, question, texts)
        label = label_of(self.columns.cell(row, "label")) or ""
        spelling = next(
            (
                each
                for each in (names, self.labels[: len(texts)], texts)
                if label in each
            ),
            None,
        )
        if spelling is None:
            wanted = (
                f"one of {', '.join(names or self.labels[: len(texts)])}, or a choice's"
                " text"
            )
            what = (
                f"{place}: column {self.columns.all('label')[0]} names none of the"
                " choices"
            )
            raise LitebertError(
                "LB-865",
                what,
                received=label or "nothing",
                expected=wanted,
                next="correct this row",
            )
        return ChoiceExample(id, context, question, texts, spelling.index(label))

    def group(self, example: ChoiceExample) -> tuple[str, str]:
        """Return the context, which several questions may share; without one, the
        question.
        """
        return example.context or example.question, ""


def _choices(row: Row, columns: Columns) -> tuple[tuple[str, ...], tuple[str, ...]]:
    cell = columns.cell(row, "choices")
    names = list[object]()
    if len(columns.all("choices")) > 1:
        members = [row.get(name) for name in columns.all("choices")]
    elif isinstance(cell, Mapping):
        members, names = (list_of(cell.get(key)) or [] for key in ("text", "label"))
    else:
        members = list_of(cell) or []
    # as labels, which may repeat a text
    texts = [label_of(text) or "" for text in members]
    while texts and not texts[-1] and not names:
        texts.pop()
    return tuple(texts), tuple(label_of(name) or "" for name in names)


# Questions that are answered by a span of a context or, as in SQuAD 2.0, not at all


class SpanRows(RowReading[SpanExample, SpanAnswer]):
    """Questions on a context; `labels` has a name for "no answer" if some have none."""

    problems = ("question-answering",)
    learnt: ClassVar[Role] = "answers"

    @classmethod
    def settle(
        cls, rows: Iterable[Row], _: str, columns: Columns, __: str | None
    ) -> tuple[Self, str]:
        number = sum(not _answers(row, columns) for row in rows)
        note = f"{number:,} without an answer" if number else "all are answered"
        return (
            cls(columns, "question-answering", ("unanswerable",) if number else ()),
            f"questions; {note}",
        )

    @cached_property
    def family(self) -> SpanAnswering:
        return ConditionalSpanAnswering() if self.labels else SpanAnswering()

    def example(
        self, id: str, row: Row, place: str, *, is_labelled: bool
    ) -> SpanExample:
        """Turn a row into an example; an empty list of answers means that there is
        none.
        """
        question, context = (
            self.text(row, role, place) for role in ("question", "context")
        )
        answers = gold_answers(
            context, _answers(row, self.columns) if is_labelled else (), place
        )
        return SpanExample(id, question, context, answers if is_labelled else None)

    def lacks_label(self, _: Row) -> bool:
        """Return False: a question without an answer is labelled as unanswerable."""
        return False

    def group(self, example: SpanExample) -> tuple[str, str]:
        return example.context, str(example.is_impossible)


def _answers(row: Row, columns: Columns) -> list[tuple[str, float | None]]:
    cell = columns.cell(row, "answers")
    start = columns.cell(row, "start")
    if isinstance(cell, str) and cell.lstrip().startswith("{"):
        with suppress(ValueError, RecursionError):  # a text may begin with a brace, too
            cell = json.loads(cell)
    if isinstance(cell, Mapping):
        start = cell.get("answer_start")
        cell = cell.get("text")
    members = list_of(cell)
    texts = [cell] if members is None else members
    pairs = [
        (one.get("text"), one.get("answer_start"))
        for one in texts
        if isinstance(one, Mapping)
    ]
    if not pairs:
        pairs = list(zip_longest(texts, (list_of(start) or [start])[: len(texts)]))
    return [
        (text, number_of(start))
        for cell, start in pairs
        if (text := text_of(cell)) is not None
    ]


READINGS: dict[RowShape, type[RowReading[Any, Any]]] = {
    "texts": TextRows,
    "words": WordRows,
    "choices": ChoiceRows,
    "spans": SpanRows,
}
"""The reading of each shape of rows; a new shape is added here and to `ROLES_OF`."""
SHAPES: dict[str, RowShape] = {
    problem: shape for shape, each in READINGS.items() for problem in each.problems
}
"""The shape of the rows by the name of their problem, as in --problem."""


# The data set


def settle(
    table: TableFile, columns: Sequence[str], problem: str | None
) -> tuple[RowReading[Any, Any], list[str]]:
    """Read a training table once to settle how its rows become examples; the notes list
    what was guessed.
    """
    chosen = chosen_columns(columns, table.columns)
    sample = table.sample()
    file = table.source.name
    shape, found = guess_columns(
        table.columns, sample, chosen, SHAPES[problem] if problem else None
    )
    kind = READINGS[shape]
    if not found.all(kind.learnt):
        what = f"{file} has no column of labels"
        received = f"columns {', '.join(table.columns)}"
        advice = (
            f"--column {kind.learnt}=NAME; numbers have no units and no commas: 1234.5"
        )
        raise LitebertError("LB-861", what, received=received, next=advice)
    if table.has_header is False:  # then other files have none either
        found = replace(found, has_header=False)
    reading, about = kind.settle((row for _, row in table.rows()), file, found, problem)
    unused = [
        name for name in table.columns if name not in chain(*found.names.values())
    ]
    notes = [
        f"{file}: {table.writing}",
        f"columns: {' '.join(found.words())}"
        + (f"; not used: {', '.join(unused)}" if unused else ""),
        f"problem: {reading.problem}; {about}",
    ]
    # A column that is not read although it looks like the other half of a pair
    text = found.all("text")
    worded = [name for name in unused if have_words([row.get(name) for row in sample])]
    if text and worded and not chosen.all("text") and not found.all("second"):
        pair = pair_flags(
            [name for name in table.columns if name in (*text, worded[0])]
        )
        notes.append(
            f"warning: not used, though it looks like text: {', '.join(worded)}; for"
            f" pairs: {pair}"
        )
    return reading, notes


def table_dataset(
    train: Path,
    dev: Path | None = None,
    *,
    held_out: float = 0.1,
    columns: Sequence[str] = (),
    problem: str | None = None,
    skips_unlabelled: bool = False,
    settled: Mapping[str, Any] | None = None,
) -> Dataset[Any, Any]:
    """Set up a data set from files, reading `train` once for its labels.

    `columns` are assignments such as text=review or header=no; everything else is
    guessed. With `settled`, as a run recorded it, nothing is, `columns` replace some of
    its columns, and `train` may be gone. Without `dev`, the share `held_out` of `train`
    is evaluated on, the same share of each label. These rows are chosen by a hash of
    their texts, so that equal ones stay together and the order of rows does not matter.
    With `skips_unlabelled`, rows without a label are omitted and counted in the notes.
    For any other file, `read` returns all rows: with labels as "train" or "dev",
    without as "test".
    """
    notes = list[str]()
    if settled:
        kind = READINGS[SHAPES[settled["problem"]]]
        chosen = chosen_columns((*settled["columns"], *columns))
        reading = kind(chosen, settled["problem"], tuple(settled["labels"]))
    else:
        reading, notes = settle(
            open_table(train, has_header=chosen_columns(columns).has_header),
            columns,
            problem,
        )
        notes.append(
            "evaluated on:"
            f" {dev or f'about {held_out * 100:g} % of the rows; equal texts stay together'}"
        )
        for path in filter(None, (train, dev) if skips_unlabelled else ()):
            number = sum(
                reading.lacks_label(row)
                for _, row in reading.open(path, is_labelled=True).rows()
            )
            notes.append(
                f"{path.name}: omitted {format_count(number, 'row')} without a label"
            )
        settled = {
            "columns": list(reading.columns.words()),
            "problem": reading.problem,
            "labels": list(reading.labels),
        }
        settled |= {"train_hash": _hash(train)}
    trained_on = settled.get("train_hash")
    words = list(reading.columns.words())
    has_other_columns = words != settled["columns"]

    def read(path: Path, split: str) -> list[Any]:
        """Return the examples of a split: a part of the training file, or all of
        another file.
        """
        if split not in ("train", "dev", "test"):
            advice = "--split dev for rows with labels, --split test for rows without"
            raise LitebertError(
                "LB-867", f"your own files have no split {split}", next=advice
            )
        is_labelled = split != "test"
        is_train = split != "test" and _is_train(path, train, trained_on)
        table = reading.open(
            dev if is_train and dev and split == "dev" else path,
            is_labelled=is_labelled,
        )
        numbered = {
            number: reading.example_of(table, number, row, is_labelled=is_labelled)
            for number, row in table.rows()
            if not (is_labelled and skips_unlabelled and reading.lacks_label(row))
        }
        examples = list(numbered.values())
        # repeated ids: use row numbers instead
        if len({example.id for example in examples}) < len(examples):
            examples = [
                replace(example, id=str(number)) for number, example in numbered.items()
            ]
        if not is_train or dev:
            return examples
        if has_other_columns or trained_on not in (None, _hash(path)):
            what = (
                f"{path} or its columns are not as when trained on: rows held out now"
                " may have been trained on"
            )
            raise LitebertError(
                "LB-890",
                what,
                next="restore them; or give a file of new rows another name",
            )
        if len(examples) < 2:
            what = (
                f"{path} has {format_count(len(examples), 'row')} to learn from: one to"
                " train on, one to hold out"
            )
            raise LitebertError(
                "LB-894",
                what,
                next="add rows, or give a file to evaluate on: --dev FILE",
            )
        is_out = draw_held_out(
            [reading.group(example) for example in examples], held_out
        )
        return [
            example
            for example, out in zip(examples, is_out, strict=True)
            if out == (split == "dev")
        ]

    family = reading.family
    said = tuple(notes)
    write = partial(answer_table, family)
    settled = {**settled, "columns": words}
    return Dataset(
        "table",
        family,
        read,
        family.key_measure,
        write,
        notes=said,
        train=train,
        settled=settled,
    )


def _is_train(path: Path, train: Path, trained_on: str | None) -> bool:
    return path.resolve() == train.resolve() or _hash(path) == trained_on


def _hash(path: Path) -> str:
    return hash_file(Path(find_input(str(path), TABLES).location))


def draw_held_out(groups: Sequence[tuple[str, str]], share: float) -> NDArray[np.bool_]:
    """Draw a share of the rows, given (key, stratum) of each: the same share of each
    stratum, and at least one key.

    Equal keys are drawn together unless all keys are equal; if their strata differ, the
    first by name counts. A key with so many rows that the share would be missed by more
    with it than without it is not drawn.
    """
    keys, strata = zip(*groups, strict=True)
    if len(set(keys)) == 1:  # then rows are drawn by their numbers
        keys = tuple(map(str, range(len(keys))))
    stratum_of = dict(sorted(zip(keys, strata, strict=True), reverse=True))
    # a random number for each key that depends only on its text
    digests = [
        blake2b(key.encode("utf-8", "surrogatepass"), digest_size=8).digest()
        for key in stratum_of
    ]
    hashes = np.array(
        [int.from_bytes(digest, "little", signed=True) for digest in digests],
        dtype=np.int64,
    )
    draws = dict(
        zip(stratum_of, rng.random_bits(0, "held-out rows", hashes), strict=True)
    )
    # Of the keys sorted by stratum, evenly spaced ones come first, so that each stratum
    # gives its share; the others follow, and are drawn if some of the first have too
    # many rows.
    order = sorted(stratum_of, key=lambda key: (stratum_of[key], draws[key]))
    number = max(1, round(share * len(order)))
    spaced = {order[int((n + 0.5) * len(order) / number)] for n in range(number)}
    order.sort(key=lambda key: (key not in spaced, draws[key]))
    # A key is drawn if its rows bring the sum nearer to the share.
    sizes = Counter(keys)
    left = share * len(keys)
    chosen = set[str]()
    for key in order:
        if (half := sizes[key] / 2) < left or (half == left and key in spaced):
            chosen.add(key)
            left -= sizes[key]
    chosen = chosen or {min(order, key=sizes.__getitem__)}
    if len(chosen) == len(order):  # something must be left to learn from
        chosen.remove(max(order, key=sizes.__getitem__))
    return np.array([key in chosen for key in keys], dtype=np.bool_)


def answer_table(
    family: Family[Example, Answer],
    split: str,
    examples: Sequence[Example],
    answers: Sequence[Answer],
) -> dict[str, str]:
    """Return one CSV file, named after the split, with a line for each example.

    After `id` and `prediction` come the probability of each label or choice, the score,
    or the confidence of the answer, depending on the kind of task.
    """
    rows = family.rows(examples, answers)
    numbers = [family.numbers(*pair) for pair in zip(rows, answers, strict=True)]
    columns = list(dict.fromkeys(chain.from_iterable(numbers)))
    written = io.StringIO()
    writer = csv.writer(written, lineterminator="\n")
    writer.writerow(["id", "prediction", *columns])
    for row, values in zip(rows, numbers, strict=True):
        cells = [None if row.is_blank else values.get(name) for name in columns]
        writer.writerow(
            [
                row.id,
                row.answer,
                *("" if cell is None else f"{cell:.6g}" for cell in cells),
            ]
        )
    return {f"{split}.csv": written.getvalue()}


def require_same_data(datasets: Mapping[str, Dataset[Any, Any]], data: Path) -> None:
    """Check that runs may be averaged: none may have trained on rows that others hold
    out.
    """
    own = {name: each for name, each in datasets.items() if each.settled}
    columns = {name: " ".join(each.settled["columns"]) for name, each in own.items()}
    trained = [
        (each.train, each.settled.get("train_hash"))
        for each in own.values()
        if each.train
    ]
    num_held_out = sum(_is_train(data, *each) for each in trained)
    if len({*columns.values()}) > 1 or 0 < num_held_out < len(datasets):
        what = (
            "these runs cannot be averaged: they read different columns, or do not hold"
            " out the same rows"
        )
        received = "; ".join(
            f"{name}: {columns[name]}, trained on {each.train}"
            for name, each in own.items()
        )
        advice = (
            "evaluate them one by one; or add --column ROLE=NAME for all, or --data"
            " FILE that none was trained on"
        )
        raise LitebertError("LB-880", what, received=received, next=advice)
