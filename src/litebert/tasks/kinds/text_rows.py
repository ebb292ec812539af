"""A user's own texts or pairs, with one label, any number of labels (in one column, or in
a column for each), or a score.
"""

from collections import Counter
from collections.abc import Sequence
from functools import cached_property
from typing import ClassVar, Self

from litebert.config import HeadConfig
from litebert.errors import LitebertError
from litebert.plugins import TASK_HEADS, TASK_KINDS
from litebert.reading.tables import Row
from litebert.tasks.kinds.labels import LabelColumn, are_numbers, only_member
from litebert.tasks.kinds.text import Scores, TextClassification, TextExample
from litebert.tasks.tables.cells import (
    FEWEST_WORDS,
    MISSING,
    NO_LABEL,
    label_of,
    list_of,
    mean_words,
)
from litebert.tasks.tables.columns import PAIRS, Role
from litebert.tasks.tables.guess import ColumnGuess
from litebert.tasks.tables.rows import (
    RowReading,
    TrainingRows,
    first_number,
    label_warnings,
)


class TextRows(RowReading[TextExample, Scores]):
    """Texts or pairs; `problem` says which kind of label they have."""

    what: ClassVar[str] = "texts"
    roles: ClassVar[tuple[Role, ...]] = ("text", "second", "label", "id")

    @classmethod
    def guess(cls, guess: ColumnGuess) -> None:
        # a text column that was chosen is not made half of a guessed pair
        if not {"text", "second"} & {*guess.assigned}:
            pair = guess.usual_pair(PAIRS)
            if pair:
                guess.assign_pair(pair)
        guess.find_usual(("text", "label", "id"))
        if not guess.assigned["text"]:
            texts = guess.texts()
            if _are_pair(guess, texts) and not guess.assigned.get("second"):
                guess.assign_pair(texts)
            else:
                guess.require_one("text", texts)
        if not guess.assigned["label"]:
            guess.assigned["label"] = guess.label_marks()
        if not guess.assigned["label"]:
            likely = guess.likely_labels()
            if likely:
                guess.require_one("label", likely)

    @classmethod
    def settle(cls, training: TrainingRows) -> tuple[Self, str]:
        name, *others = training.columns.all("label")
        if others:
            return cls._settle_columns(training, (name, *others))
        column = _read_labels(training, name)
        # values such as "none", which may be a label or say that there is none
        doubtful = set[str]()
        for label in column.single:
            if label.lower() in NO_LABEL and label not in training.labels:
                doubtful.add(label)
        if training.skips_unlabeled:
            for label in doubtful:
                del column.single[label]

        problem = training.problem or column.kind_of(training.labels)
        kind: type[TextClassification] = TASK_KINDS[problem]
        names, note = kind.settle_labels(column, training.labels)
        for label in sorted(doubtful & {*names}):
            note += (
                f"; warning: {label} may mean that there is no label:"
                " data.missing_labels=skip leaves such rows out"
            )
        if {*names} == {*column.single}:  # each row has one label
            for warning in label_warnings(column.single):
                note += f"; warning: {warning}"
        first = first_number({*column.single, *column.listed}, names)
        return cls(training.columns, problem, names, first_number=first), note

    @classmethod
    def _settle_columns(
        cls, training: TrainingRows, names: tuple[str, ...]
    ) -> tuple[Self, str]:
        """Settle a table with a column for each label."""
        if training.problem not in (None, "multi-label"):
            raise LitebertError(
                "LB-892",
                f"{training.file}: a column for each label is for multi-label",
                received=f"--problem {training.problem}",
                next="omit --problem, or name one column",
            )
        note = f"a column for each of {len(names)} labels"
        return cls(training.columns, "multi-label", names), note

    @property
    def kind(self) -> type[TextClassification]:
        """The kind of label."""
        kind: type[TextClassification] = TASK_KINDS[self.problem]
        return kind

    @cached_property
    def family(self) -> TextClassification:
        kind = self.kind.heads[0]
        if not TASK_HEADS[kind].has_labels:
            # vectors
            return self.kind(HeadConfig(kind=kind))
        head = HeadConfig(
            kind=kind,
            labels=self.labels,
            problem_type=self.kind.problem_type,
            compares_texts=bool(self.columns.all("second")),
        )
        return self.kind(head, reads_windows=True)

    def example(
        self, id: str, row: Row, place: str, *, is_labeled: bool
    ) -> TextExample:
        first = self.text(row, "text", place)
        second = None
        if self.columns.all("second"):
            second = self.text(row, "second", place)
        label = None
        if is_labeled:
            label = self.kind.read_label(self, row, place)
        return TextExample(id, first, second, label)

    def group(self, example: TextExample) -> tuple[str, str]:
        stratum = "" if self.kind.is_number else str(example.label)
        return f"{example.first}\n{example.second or ''}", stratum

    def lacks_label(self, row: Row) -> bool:
        if self.kind.may_lack_label:
            return False
        label = label_of(only_member(self.columns.cell(row, "label")))
        return label is None or label.lower() in self._missing

    @cached_property
    def _missing(self) -> tuple[str, ...]:
        """The words that say that there is no label, none of which is one."""
        has_numbers = self.kind.is_number or are_numbers(self.labels)
        words = (*NO_LABEL, *MISSING) if has_numbers else NO_LABEL
        labels = {label.lower() for label in self.labels}
        return tuple(word for word in words if word not in labels)


def _read_labels(training: TrainingRows, name: str) -> LabelColumn:
    """Count the labels of a training file, alone in a cell or in lists."""
    single = Counter[str]()
    listed = Counter[str]()
    has_one_each = True
    for row in training.rows():
        members = list_of(row.get(name))
        counts = listed
        if members is None:
            members = [row.get(name)]
            counts = single
        has_one_each = has_one_each and len(members) == 1
        for member in members:
            label = label_of(member)
            if label is not None:
                counts[label] += 1
    # Annotators also write a list of one label for each row.
    if has_one_each and training.problem != "multi-label":
        single += listed
        listed.clear()
    return LabelColumn(training.file, name, single, listed)


def _are_pair(guess: ColumnGuess, names: Sequence[str]) -> bool:
    """Return whether two columns, and no more, have sentences of similar lengths."""
    if len(names) != 2:
        return False
    lengths = [mean_words(guess.cells(name)) for name in names]
    return min(lengths) >= FEWEST_WORDS and max(lengths) <= 3 * min(lengths)


TextClassification.reading = TextRows
