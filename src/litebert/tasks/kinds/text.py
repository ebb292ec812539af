"""Texts and pairs with labels or a score (official run_classifier.py).

Each kind of label is a kind of task: classification, multi-label, regression. A class
has its targets, loss, probabilities, measures and words, and how labels are read from
a column; a new kind of label is a subclass of `TextClassification`, added to
`TASK_KINDS`.
"""

import json
import re
import shlex
from abc import abstractmethod
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Self, TypeAlias

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from litebert import metrics
from litebert.config import AlbertConfig, HeadConfig
from litebert.errors import LitebertError, format_count
from litebert.nn import (
    AlbertForTask,
    Batch,
    LinearHead,
    TaskHead,
    pool_rows,
    sequence_of,
)
from litebert.plugins import TASK_HEADS, TASK_KINDS
from litebert.reading.tables import Row
from litebert.runs import AnswerRow
from litebert.tasks.kinds.family import (
    Activation,
    Feature,
    Framed,
    Output,
    Scoring,
    frame_apart,
    frame_ids,
    frame_together,
    windows,
)
from litebert.tasks.kinds.linear import (
    LinearLayer,
    Rows,
    fit_scores,
    fit_sigmoids,
    fit_softmax,
)
from litebert.tasks.own.cells import (
    FEWEST_WORDS,
    MISSING,
    NO_LABEL,
    are_joined_labels,
    list_of,
    mark_of,
    mean_words,
    number_of,
)
from litebert.tasks.own.cells import label_of as label_in
from litebert.tasks.own.columns import PAIRS, Role
from litebert.tasks.own.guess import ColumnGuess
from litebert.tasks.own.rows import (
    RowReading,
    TrainingRows,
    first_number,
    in_order,
    label_warnings,
    labels_in,
    require_labels,
    sort_labels,
)
from litebert.tokenizer import Tokenizer

Label: TypeAlias = int | float | tuple[int, ...]
"""The index of a label, several indices, or a score."""


_LEARNED = ("target", "losses_of", "losses", "by_example", "log_values", "reads_apart")
"""The methods that say what the outputs of a head mean."""


@dataclass(frozen=True)
class Scores:
    """The answer to one example: a probability for each output or, for regression, the
    score.
    """

    values: tuple[float, ...]

    @property
    def best(self) -> int:
        """The index of the likeliest label."""
        return int(np.argmax(self.values))

    @classmethod
    def mean(cls, answers: "Sequence[Scores]") -> "Scores":
        """Return the mean of the answers of several models."""
        values = [answer.values for answer in answers]
        return cls(tuple(np.mean(values, axis=0).tolist()))


# Texts and pairs


@dataclass(frozen=True)
class TextExample:
    """A text or a pair; its label is an index, several indices or a score, depending on
    the problem.
    """

    id: str
    first: str
    second: str | None = None
    label: Label | None = None


@dataclass(frozen=True)
class TextClassification(Scoring[TextExample, Scores]):
    """One answer per text or pair; a subclass for each kind of label.

    With `reads_windows`, an answer to what is longer than a sequence is the mean of the
    answers to overlapping parts of it; otherwise its end is cut off, as in the
    published results. Training always reads the beginning.
    """

    reads_windows: bool = False
    heads: ClassVar[tuple[str, ...]] = (
        "sequence-classification",
        "vector-classification",
        "pair-classification",
    )
    verb: ClassVar[str] = "classify"
    is_number: ClassVar[bool] = False
    """Whether answers are scores and not labels."""
    may_lack_label: ClassVar[bool] = False
    """Whether a row without a label says that none is right."""
    is_ordered: ClassVar[bool] = False
    """Whether the labels are a scale, of which only the user knows the order."""

    # How labels are read from users' own files

    @classmethod
    def settle_labels(
        cls, labels: "LabelColumn", order: tuple[str, ...]
    ) -> tuple[tuple[str, ...], str]:
        """Return the names of the labels of a training file, in the user's order if
        there is one, and a note on them.
        """
        missing = MISSING if are_numbers(labels.single) else ()
        names = [label for label in labels.single if label.lower() not in missing]
        if cls.is_ordered and not order:
            _require_scale(cls, names, labels.file)
        settled = in_order(sort_labels(names), order, labels.file)
        require_labels(settled, labels.file, labels.column)
        counts = [f"{label} ({labels.single[label]:,})" for label in settled]
        more = ", …" if len(counts) > SHOWN_LABELS else ""
        shown = ", ".join(counts[:SHOWN_LABELS])
        return settled, f"{len(settled)} labels: {shown}{more}"

    @classmethod
    def read_label(cls, reading: "TextRows", row: Row, place: str) -> Label:
        """Return the label of a row; errors name its place."""
        cell = reading.columns.cell(row, "label")
        label = None if reading.lacks_label(row) else label_in(_only(cell))
        return reading.number(label, place)

    # What a kind of label defines, besides `target`, `losses_of` and perhaps
    # `imitation`

    @abstractmethod
    def log_values(self, logits: Tensor) -> Tensor:
        """Return the logarithms of the probabilities, or the scores: what an
        explanation adds up to.
        """

    @abstractmethod
    def measured(
        self, labels: Sequence[Label], values: NDArray[np.floating]
    ) -> dict[str, float]:
        """Compare rows of values with the labels."""

    @abstractmethod
    def commonest(self, labels: Sequence[Label]) -> tuple[float, ...]:
        """Return the values of the baseline, which always gives the commonest label or
        the mean score.
        """

    @abstractmethod
    def named(self, answer: Scores) -> tuple[str, ...]:
        """Return the names of the labels that an answer gives: one, or several, or
        none.
        """

    def linear(
        self, rows: Rows, targets: Output, weights: Rows, strength: float
    ) -> LinearLayer:
        """Fit the layer of a head on vectors in closed form, if the kind can;
        `targets` has one row for each of `rows`.
        """
        raise NotImplementedError

    @classmethod
    def has_linear_fit(cls) -> bool:
        for part in cls.__mro__:
            if part is TextClassification:
                break
            if "linear" in vars(part):
                return True
            if any(name in vars(part) for name in _LEARNED):
                break  # it learns something else than the class that has `linear`
        return False

    # What all kinds have in common

    def texts(self, example: TextExample, /) -> tuple[str, ...]:
        if example.second is None:
            return (example.first,)
        return (example.first, example.second)

    @property
    def reads_apart(self) -> bool:
        """Whether the two texts of a pair are read alone."""
        return bool(self.head.record.reads == "pairs")

    def framed(
        self, pairs: Sequence[tuple[str, ...]], tokenizer: Tokenizer, max_length: int
    ) -> list[tuple[Framed, ...]]:
        frame = frame_apart if self.reads_apart else frame_together
        return frame(pairs, tokenizer, max_length)

    def features(
        self,
        examples: Sequence[TextExample],
        tokenizer: Tokenizer,
        *,
        max_length: int,
        training: bool,
    ) -> list[Feature]:
        if training or self.reads_apart or not self.reads_windows:
            return super().features(
                examples, tokenizer, max_length=max_length, training=training
            )
        firsts = tokenizer.encode_ids([example.first for example in examples])
        seconds = tokenizer.encode_ids([example.second or "" for example in examples])
        features = list[Feature]()
        for number, pieces in enumerate(zip(firsts, seconds, strict=True)):
            for first, second in windows(*pieces, max_length=max_length):
                ids, segments = frame_ids(
                    tokenizer, first, second or None, max_length=max_length
                )
                features.append(Feature((ids,), (segments,), None, number))
        return features

    def by_example(self, logits: Tensor) -> Tensor:
        """Return one row of logits per example, given one per sequence: the same,
        unless an example has several sequences.
        """
        return logits

    def logits(self, network: AlbertForTask, batch: Batch) -> Tensor:
        return self.by_example(network(batch))

    def values(self, logits: Tensor) -> Tensor:
        values = self.log_values(logits)
        return values if self.is_number else values.exp()

    @property
    def names(self) -> tuple[str, ...]:
        """What the values of an answer are called: the labels, unless a kind of label
        has other values.
        """
        return self.head.labels

    def answer(
        self, _: TextExample, __: Sequence[Feature], outputs: Sequence[Output], /
    ) -> Scores:
        return Scores(tuple(np.mean(outputs, axis=0).tolist()))

    def measures(
        self, examples: Sequence[TextExample], answers: Sequence[Scores], /
    ) -> dict[str, float]:
        metrics.require_examples(sum(example.label is not None for example in examples))
        labels = [label_of(example) for example in examples]
        values = np.array([answer.values for answer in answers])
        return self.measured(labels, values)

    def averaged(self, answers: Sequence[Scores], /) -> Scores:
        return Scores.mean(answers)

    def constant(
        self, training: Sequence[TextExample], examples: Sequence[TextExample], /
    ) -> list[Scores]:
        labels = [label_of(example) for example in training]
        return [Scores(self.commonest(labels))] * len(examples)

    def expected(self, example: TextExample, /) -> str | None:
        return None if example.label is None else ", ".join(self.labels(example))

    def in_words(
        self, example: TextExample, answer: Scores, /
    ) -> tuple[str, float | None, float | None]:
        words = ", ".join(self.named(answer))
        return words, max(answer.values), float(words == self.expected(example))

    def labels(self, example: TextExample, /) -> tuple[str, ...]:
        label = example.label
        if label is None or self.is_number:
            return ()
        numbers = label if isinstance(label, tuple) else (int(label),)
        return tuple(self.head.labels[number] for number in numbers)

    def numbers(self, _: AnswerRow, answer: Scores, /) -> Mapping[str, float | None]:
        return dict(zip(self.names, answer.values, strict=True))


@dataclass(frozen=True)
class SingleLabel(TextClassification):
    """Exactly one label is right: cross entropy, weighted by label, and probabilities
    that add up to 1.
    """

    class_weights: tuple[float, ...] | None = None
    problem_type: ClassVar[str] = "single_label_classification"
    refusal: ClassVar[str] = ""

    def target(self, example: TextExample, /) -> NDArray[np.int64]:
        return np.array([label_of(example)], dtype=np.int64)

    def weight(self, example: TextExample, /) -> float:
        assert isinstance(example.label, int)
        return 1.0 if self.class_weights is None else self.class_weights[example.label]

    def losses_of(self, logits: Tensor, targets: Tensor) -> Tensor:
        weights = None
        if self.class_weights is not None:
            weights = logits.new_tensor(self.class_weights)
        return F.cross_entropy(logits, targets, weights, reduction="none")

    def log_values(self, logits: Tensor) -> Tensor:
        return logits.log_softmax(-1)

    def linear(
        self, rows: Rows, targets: Output, weights: Rows, strength: float
    ) -> LinearLayer:
        labels = targets[:, 0].astype(np.int64)
        num_labels = len(self.head.labels)
        return fit_softmax(rows, labels, weights, strength, num_labels=num_labels)

    def measured(
        self, labels: Sequence[Label], values: NDArray[np.floating]
    ) -> dict[str, float]:
        return metrics.classification_measures(np.array(labels, dtype=np.int64), values)

    def commonest(self, labels: Sequence[Label]) -> tuple[float, ...]:
        counts = np.bincount(
            np.array(labels, dtype=np.int64), minlength=len(self.head.labels)
        )
        return tuple((counts / counts.sum()).tolist())

    def named(self, answer: Scores) -> tuple[str, ...]:
        return (self.head.labels[answer.best],)


class MultiLabel(TextClassification):
    """Any number of labels may be right, or none: a binary cross entropy and a
    probability for each.
    """

    key_measure: ClassVar[str] = "micro_f1"
    problem_type: ClassVar[str] = "multi_label_classification"
    activation: ClassVar[Activation] = "sigmoid"
    refusal: ClassVar[str] = ""
    may_lack_label: ClassVar[bool] = True

    @classmethod
    def settle_labels(
        cls, labels: "LabelColumn", order: tuple[str, ...]
    ) -> tuple[tuple[str, ...], str]:
        written = "".join(labels.single)
        names = set(labels.listed)
        for cell in labels.single:
            names.update(labels_in(cell, written))
        settled = in_order(sort_labels(names), order, labels.file)
        require_labels(settled, labels.file, labels.column, fewest=1)
        return settled, f"{format_count(len(settled), 'label')}, any number per row"

    @classmethod
    def read_label(cls, reading: "TextRows", row: Row, place: str) -> Label:
        columns = reading.columns.all("label")
        if len(columns) > 1:
            marks = [_is_marked(row, name, place) for name in columns]
            return tuple(number for number, mark in enumerate(marks) if mark)
        cell = reading.columns.cell(row, "label")
        whole = label_in(cell)
        labels: Sequence[str | None] = [whole]
        if whole not in reading.numbers:  # a label may contain the separator
            labels = labels_in(cell, str(cell))
        numbers = {reading.number(label, place) for label in labels}
        return tuple(sorted(numbers))

    def target(self, example: TextExample, /) -> NDArray[np.float32]:
        return np.array(self._multi_hot([label_of(example)])[0], dtype=np.float32)

    def losses_of(self, logits: Tensor, targets: Tensor) -> Tensor:
        return F.binary_cross_entropy_with_logits(
            logits, targets.view_as(logits), reduction="none"
        ).mean(1)

    def imitation(self, logits: Tensor, wanted: Tensor, temperature: float) -> Tensor:
        # a probability for each label: no softmax over them
        chances = (wanted / temperature).sigmoid()
        losses = F.binary_cross_entropy_with_logits(
            logits / temperature, chances, reduction="none"
        )
        return temperature**2 * losses.mean(1)

    def log_values(self, logits: Tensor) -> Tensor:
        return F.logsigmoid(logits)

    def linear(
        self, rows: Rows, targets: Output, weights: Rows, strength: float
    ) -> LinearLayer:
        return fit_sigmoids(rows, targets.astype(np.int64), weights, strength)

    def measured(
        self, labels: Sequence[Label], values: NDArray[np.floating]
    ) -> dict[str, float]:
        return metrics.multi_label_measures(self._multi_hot(labels), values)

    def commonest(self, labels: Sequence[Label]) -> tuple[float, ...]:
        """Return the commonest combination of labels."""
        return tuple(
            map(float, self._multi_hot([Counter(labels).most_common(1)[0][0]])[0])
        )

    def named(self, answer: Scores) -> tuple[str, ...]:
        chances = zip(self.head.labels, answer.values, strict=True)
        return tuple(name for name, chance in chances if chance >= metrics.MARKED_FROM)

    def _multi_hot(self, labels: Sequence[Label]) -> NDArray[np.int64]:
        """Return 0 or 1 for each label, (examples, labels)."""
        marked = np.zeros((len(labels), len(self.head.labels)), dtype=np.int64)
        for row, label in zip(marked, labels, strict=True):
            assert isinstance(label, tuple), "several labels may be right"
            row[list(label)] = 1
        return marked


class Regression(TextClassification):
    """The answer is a score: squared errors and correlations; a score has no
    probability.
    """

    is_number: ClassVar[bool] = True
    baseline: ClassVar[str] = "the mean score"
    key_measure: ClassVar[str] = "pearson"
    problem_type: ClassVar[str] = "regression"
    activation: ClassVar[Activation] = "none"
    refusal: ClassVar[str] = ""

    @classmethod
    def settle_labels(
        cls,
        labels: "LabelColumn",
        order: tuple[str, ...],  # noqa: ARG003
    ) -> tuple[tuple[str, ...], str]:
        """Return the name of the score, which is that of its column."""
        note = f"numbers in column {labels.column}"
        pointed = [label for label in labels.single if "." in label]
        are_thousands = all(map(_THOUSANDS, pointed))
        if are_thousands and 0 < len(pointed) < len(labels.single):  # 994 and 1.018
            note += (
                f"; warning: {pointed[0]} is read as a fraction; if it is in"
                " thousands, remove the points"
            )
        return (labels.column,), note

    @classmethod
    def read_label(cls, reading: "TextRows", row: Row, place: str) -> Label:
        cell = reading.columns.cell(row, "label")
        score = number_of(cell)
        if score is None:
            column = reading.columns.all("label")[0]
            raise LitebertError(
                "LB-859",
                f"{place}: column {column} is not a finite number",
                received=repr(cell),
                next=(
                    "write it as 1234.5; to train: data.missing_labels=skip if empty,"
                    " or --problem classification"
                ),
            )
        return score

    def target(self, example: TextExample, /) -> NDArray[np.float32]:
        return np.array([label_of(example)], dtype=np.float32)

    def losses_of(self, logits: Tensor, targets: Tensor) -> Tensor:
        return F.mse_loss(logits, targets.view_as(logits), reduction="none").mean(1)

    def imitation(self, logits: Tensor, wanted: Tensor, temperature: float) -> Tensor:  # noqa: ARG002
        """Return the squared distance to the teacher's score; there is nothing to
        soften.
        """
        return F.mse_loss(logits, wanted, reduction="none").mean(1)

    def linear(
        self, rows: Rows, targets: Output, weights: Rows, strength: float
    ) -> LinearLayer:
        return fit_scores(rows, targets[:, 0].astype(np.float64), weights, strength)

    def log_values(self, logits: Tensor) -> Tensor:
        return logits

    def measured(
        self, labels: Sequence[Label], values: NDArray[np.floating]
    ) -> dict[str, float]:
        return metrics.regression_measures(
            np.array(labels, dtype=np.float64).reshape(values.shape), values
        )

    def commonest(self, labels: Sequence[Label]) -> tuple[float, ...]:
        return (float(np.mean(labels)),)

    def named(self, _: Scores) -> tuple[str, ...]:
        return self.head.labels[:1]

    def expected(self, example: TextExample, /) -> str | None:
        return None if example.label is None else f"{example.label:g}"

    def in_words(
        self, example: TextExample, answer: Scores, /
    ) -> tuple[str, float | None, float | None]:
        (value,) = answer.values
        label = example.label
        assert not isinstance(label, tuple), "a score is one number"
        closeness = None
        if label is not None:
            closeness = 1 / (1 + abs(label - value))
        return f"{value:.4g}", None, closeness


def _require_scale(
    kind: type[TextClassification], names: Sequence[str], file: str
) -> None:
    """Raise unless labels that nobody has put in order are numbers."""
    if are_numbers(names):
        return
    sorted_names = json.dumps(sort_labels(names), ensure_ascii=False)
    raise LitebertError(
        "LB-883",
        f"{TASK_KINDS.name_of(kind)} needs the order of the labels of {file}",
        received=", ".join(sort_labels(names)[:SHOWN_LABELS]),
        expected="all labels in their order, the lowest first",
        next=f"data.labels={shlex.quote(sorted_names)}",
    )


def label_of(example: TextExample) -> Label:
    """Return the label of an example that must have one."""
    assert example.label is not None, "examples for training and evaluation have labels"
    return example.label


# A user's own texts, with one label, any number of labels (in one column, or in a column
# for each), or a score

MANY = 20  # distinct whole numbers may be scores if there are more than this
# in a column of fractions, at most one cell in this many may not be a number
SLIPS = 20
# a column of many whole numbers with such a name has scores
AMOUNTS = ("score", "rating", "similarity", "relatedness")
SHOWN_LABELS = 10
_THOUSANDS = re.compile(r"[+-]?[1-9]\d{0,2}\.\d{3}").fullmatch


@dataclass(frozen=True)
class LabelColumn:
    """The labels of a training file: how often each is alone in a cell, or a member of a
    list; cells without a label are left out.
    """

    file: str
    column: str
    single: Counter[str]
    listed: Counter[str]

    def kind_of(self, names: Sequence[str]) -> str:
        """Return the kind of task that follows from the labels; what has names is no
        score.
        """
        if self.listed:
            return "multi-label"
        if not names and _are_scores(self.column, self.single):
            return "regression"
        if self._are_few():
            return "classification"
        if are_joined_labels([*self.single.elements()]):
            return "multi-label"
        raise LitebertError(
            "LB-862",
            f"{self.file}: column {self.column} does not look like labels",
            received=f"{len(self.single):,} different values in"
            f" {self.single.total():,} rows, such as {next(iter(self.single))}",
            next="--column label=NAME; write numbers like 1234.5; if these are labels:"
            " --problem classification",
        )

    def _are_few(self) -> bool:
        return len(self.single) <= max(MANY, self.single.total() // 2)


def _are_scores(name: str, counts: Counter[str]) -> bool:
    numbers = dict[str, float]()
    for label in counts:
        number = number_of(label)
        if number is not None:
            numbers[label] = number
    if not all(map(float.is_integer, numbers.values())):
        # A typing error among fractions does not turn scores into classes; reading its
        # row raises an error.
        num_slips = counts.total() - sum(counts[label] for label in numbers)
        return num_slips * SLIPS <= counts.total()
    is_called_so = any(word in name.lower() for word in AMOUNTS)
    nearly_all_differ = len(numbers) * 2 > counts.total()
    are_many = are_numbers(counts) and len(numbers) > MANY
    return are_many and (is_called_so or nearly_all_differ)


def are_numbers(labels: Iterable[str]) -> bool:
    """Return whether all labels that are not words for a missing value are numbers."""
    filled = [label for label in labels if label.lower() not in MISSING]
    return bool(filled) and all(number_of(label) is not None for label in filled)


class TextRows(RowReading[TextExample, Scores]):
    """Texts or pairs; the kind of label is that of `problem`."""

    what: ClassVar[str] = "texts"
    roles: ClassVar[tuple[Role, ...]] = ("text", "second", "label", "id")

    @classmethod
    def guess(cls, guess: ColumnGuess) -> None:
        # a text column that was chosen is not made half of a guessed pair
        if not {"text", "second"} & {*guess.assigned}:
            pair = _usual_pair(guess)
            if pair:
                guess.assigned["text"] = (pair[0],)
                guess.assigned["second"] = (pair[1],)
        guess.find_usual(("text", "label", "id"))
        if not guess.assigned["text"]:
            texts = guess.texts()
            if _are_pair(guess, texts) and not guess.assigned.get("second"):
                guess.assigned["text"] = (texts[0],)
                guess.assigned["second"] = (texts[1],)
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
        single = Counter[str]()
        listed = Counter[str]()
        are_single = True  # annotators write a list of one label for each row
        for row in training.rows():
            members = list_of(row.get(name))
            counts = single if members is None else listed
            cells = [row.get(name)] if members is None else members
            are_single = are_single and len(cells) == 1
            labels = (label_in(cell) for cell in cells)
            counts.update(label for label in labels if label is not None)
        if are_single and training.problem != "multi-label":
            single += listed
            listed.clear()
        doubtful = [label for label in single if label.lower() in NO_LABEL]
        doubtful = [label for label in doubtful if label not in training.labels]
        if training.skips_unlabelled:
            for label in doubtful:
                del single[label]
        column = LabelColumn(training.file, name, single, listed)
        problem = training.problem or column.kind_of(training.labels)
        kind: type[TextClassification] = TASK_KINDS[problem]
        names, note = kind.settle_labels(column, training.labels)
        for label in sorted({*doubtful} & {*names}):
            note += (
                f"; warning: {label} may mean that there is no label:"
                " data.missing_labels=skip leaves such rows out"
            )
        if {*names} == {*single}:  # each row has one label
            for warning in label_warnings(single):
                note += f"; warning: {warning}"
        first = first_number({*single, *listed}, names)
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
        self, id: str, row: Row, place: str, *, is_labelled: bool
    ) -> TextExample:
        first = self.text(row, "text", place)
        second = None
        if self.columns.all("second"):
            second = self.text(row, "second", place)
        label = None
        if is_labelled:
            label = self.kind.read_label(self, row, place)
        return TextExample(id, first, second, label)

    def group(self, example: TextExample) -> tuple[str, str]:
        stratum = "" if self.kind.is_number else str(example.label)
        return f"{example.first}\n{example.second or ''}", stratum

    def lacks_label(self, row: Row) -> bool:
        if self.kind.may_lack_label:
            return False
        label = label_in(_only(self.columns.cell(row, "label")))
        return label is None or label.lower() in self._missing

    @cached_property
    def _missing(self) -> tuple[str, ...]:
        """The words that say that there is no label, none of which is one."""
        has_numbers = self.kind.is_number or are_numbers(self.labels)
        words = (*NO_LABEL, *MISSING) if has_numbers else NO_LABEL
        labels = {label.lower() for label in self.labels}
        return tuple(word for word in words if word not in labels)


def _only(cell: object) -> object:
    """Return the only member of a list; any other cell as it is."""
    members = list_of(cell)
    return members[0] if members is not None and len(members) == 1 else cell


def _usual_pair(guess: ColumnGuess) -> tuple[str, str] | None:
    """Return the first two free columns that are usually called like a pair."""
    free = guess.free_columns()
    for first, second in PAIRS:
        names = (guess.by_normal.get(first), guess.by_normal.get(second))
        if names[0] in free and names[1] in free:
            return str(names[0]), str(names[1])
    return None


def _are_pair(guess: ColumnGuess, names: Sequence[str]) -> bool:
    """Return whether two columns, and no more, have sentences of similar lengths."""
    if len(names) != 2:
        return False
    lengths = [mean_words(guess.cells(name)) for name in names]
    return min(lengths) >= FEWEST_WORDS and max(lengths) <= 3 * min(lengths)


def _is_marked(row: Row, name: str, place: str) -> bool:
    mark = mark_of(row.get(name))
    if mark not in (0, 1):
        raise LitebertError(
            "LB-860",
            f"{place}: column {name} does not say whether the label is given",
            received=row.get(name),
            expected="0 or 1",
            next="--column label=NAME with one column, for one label per row",
        )
    return bool(mark)


# The head on vectors of texts


class VectorHead(nn.Module):
    """One linear layer on the vector of a text or, for a pair, also on how its two
    vectors differ.

    A model of text vectors learns the mean of the tokens; its [CLS] means little, and
    it has no pooler. For a pair, the layer also reads |a - b| and a * b (Reimers &
    Gurevych 2019), where a and b are the means over each text, scaled to unit variance.
    For a single text both features are zero.
    """

    num_parts: ClassVar[int] = 3  # of what the layer reads, each as wide as a vector

    def __init__(self, config: AlbertConfig, head: HeadConfig) -> None:
        super().__init__()
        self.dense = nn.Linear(self.num_parts * config.hidden_size, head.num_outputs)
        self.dropout_prob = config.classifier_dropout_prob

    def forward(
        self, hidden: Float[Tensor, "tokens hidden"], batch: Batch
    ) -> Float[Tensor, "rows outputs"]:
        """Return the logits of each text or pair."""
        rows = self.rows(hidden, batch)
        logits: Tensor = self.dense(F.dropout(rows, self.dropout_prob, self.training))
        return logits

    def rows(
        self, hidden: Float[Tensor, "tokens hidden"], batch: Batch
    ) -> Float[Tensor, "rows width"]:
        """Return what the layer reads of each text or pair."""
        num_texts = len(batch.lengths)
        # of each token: which half of which sequence
        place = 2 * sequence_of(batch) + batch.segments.clamp(max=1)
        sums = hidden.new_zeros(2 * num_texts, hidden.shape[1]).index_add(
            0, place, hidden
        )
        # (sequences, hidden) each
        first, second = sums.view(num_texts, 2, -1).unbind(1)
        has_token = batch.segments.new_zeros(2 * num_texts).index_fill(0, place, 1)
        return vector_rows(first, second, has_token[1::2, None])


def vector_rows(
    first: Float[Tensor, "sequences hidden"],
    second: Float[Tensor, "sequences hidden"],
    is_pair: Int[Tensor, "sequences 1"],
) -> Float[Tensor, "sequences three_hidden"]:
    """Return the input of a VectorHead's layer, from the sums over both texts' tokens:
    a sum's norm is the mean's.
    """
    width = first.shape[-1:]
    a = F.layer_norm(first, width)
    b = F.layer_norm(second, width)
    both = F.layer_norm(first + second, width)
    return torch.cat([both, (a - b).abs() * is_pair, a * b * is_pair], -1)


class PairHead(VectorHead):
    """One linear layer on the vectors u, v of two texts that are read alone, and on
    |u - v| and u * v (Reimers & Gurevych 2019).

    A model of text vectors was trained on single texts: of those it knows more than of
    two texts in one sequence. Sequences 2i and 2i + 1 are pair i.
    """

    num_parts: ClassVar[int] = 4

    def rows(
        self, hidden: Float[Tensor, "tokens hidden"], batch: Batch
    ) -> Float[Tensor, "rows width"]:
        means = pool_rows(hidden, batch, "mean")
        # (sequences, hidden), to unit variance
        vectors = F.layer_norm(means, means.shape[-1:])
        u = vectors[0::2]
        v = vectors[1::2]
        return torch.cat([u, v, (u - v).abs(), u * v], dim=-1)


# ---- the records ---------------------------------------------------------------------

CLASSIFIER = "output_weights"  # of official checkpoints
TASK_HEADS.add(
    "sequence-classification",
    TaskHead(
        make=LinearHead,
        reads="pooled",
        has_labels=True,
        purpose="classifies texts or pairs of texts",
        pipeline="text-classification",
        class_name="SequenceClassification",
        is_in_transformers=True,
        layers={"dense": "classifier"},
        variable=CLASSIFIER,
    ),
)
TASK_HEADS.add(
    "vector-classification",
    TaskHead(
        make=VectorHead,
        reads="texts",
        has_labels=True,
        purpose="classifies texts or pairs of texts by their vectors",
        pipeline="text-classification",
        class_name="VectorClassification",
        layers={"dense": "classifier"},
    ),
)
TASK_HEADS.add(
    "pair-classification",
    TaskHead(
        make=PairHead,
        reads="pairs",
        has_labels=True,
        purpose="classifies pairs of texts by the vectors of both",
        pipeline="text-classification",
        class_name="PairClassification",
        layers={"dense": "classifier"},
        refusal="it reads the two texts of a pair apart, which other programs do not",
    ),
)
TextClassification.reading = TextRows
TASK_KINDS.add("classification", SingleLabel)
TASK_KINDS.add("multi-label", MultiLabel)
TASK_KINDS.add("regression", Regression)
