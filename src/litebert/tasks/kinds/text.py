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
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from litebert import metrics
from litebert.errors import LitebertError, format_count
from litebert.nn import AlbertForTask, Batch
from litebert.plugins import TASK_KINDS
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
from litebert.tasks.kinds.labels import LabelColumn, are_numbers, is_marked, only_member
from litebert.tasks.kinds.linear import (
    LinearLayer,
    Rows,
    fit_scores,
    fit_sigmoids,
    fit_softmax,
)
from litebert.tasks.tables.cells import MISSING, number_of, rating_of, scale_of
from litebert.tasks.tables.cells import label_of as label_in
from litebert.tasks.tables.rows import (
    in_order,
    is_joined,
    labels_in,
    require_labels,
    sort_labels,
)
from litebert.tokenizer import Tokenizer

if TYPE_CHECKING:
    from litebert.tasks.kinds.text_rows import TextRows

SHOWN_LABELS = 10  # in a note
# a number with its thousands marked by a point, as in 1.018
_THOUSANDS = re.compile(r"[+-]?[1-9]\d{0,2}\.\d{3}").fullmatch
# a number that is written in another way: 4,9 or 98%
_OTHER_NOTATION = re.compile(r"[+-]?\d+(,\d+|([.,]\d+)? ?%)").fullmatch

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


# ---- texts and pairs -----------------------------------------------------------------


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

    # ---- how labels are read from users' own files -------------------------------

    @classmethod
    def settle_labels(
        cls, labels: LabelColumn, order: tuple[str, ...]
    ) -> tuple[tuple[str, ...], str]:
        """Return the names of the labels of a training file, in the user's order if
        there is one, and a note on them.
        """
        names = list(labels.single)
        if are_numbers(names):  # but for words such as "NA"
            names = [label for label in names if label.lower() not in MISSING]
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
        label = None
        if not reading.lacks_label(row):
            label = label_in(only_member(reading.columns.cell(row, "label")))
        return reading.label_index(label, place)

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

    def mean_loss(
        self, logits: NDArray[np.floating], targets: NDArray[np.generic]
    ) -> float:
        """Return the mean loss of rows of logits, given a row of targets for each."""
        flat = torch.from_numpy(targets.reshape(-1))
        return float(self.losses_of(torch.from_numpy(logits).float(), flat).mean())

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

    # ---- what all kinds have in common -------------------------------------------

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

    @classmethod
    def settle_labels(
        cls, labels: LabelColumn, order: tuple[str, ...]
    ) -> tuple[tuple[str, ...], str]:
        names, note = super().settle_labels(labels, order)
        if not order and len(names) > 2 and labels.are_ratings():
            note += "; their order is not used: --problem regression learns a score"
        return names, note + _warn_of_notations(labels)

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
        cls, labels: LabelColumn, order: tuple[str, ...]
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
            marks = [is_marked(row, name, place) for name in columns]
            return tuple(number for number, mark in enumerate(marks) if mark)
        cell = reading.columns.cell(row, "label")
        whole = label_in(cell)
        labels: Sequence[str | None] = [whole]
        if whole not in reading.label_indices:  # a label may contain the separator
            labels = labels_in(cell, str(cell))
        indices = {reading.label_index(label, place) for label in labels}
        return tuple(sorted(indices))

    def target(self, example: TextExample, /) -> NDArray[np.float32]:
        marks = self._multi_hot([label_of(example)])  # (1, labels)
        target: NDArray[np.float32] = marks[0].astype(np.float32)
        return target

    def losses_of(self, logits: Tensor, targets: Tensor) -> Tensor:
        # (examples, labels)
        losses = F.binary_cross_entropy_with_logits(
            logits, targets.view_as(logits), reduction="none"
        )
        return losses.mean(1)

    def imitation(
        self, logits: Tensor, teacher_logits: Tensor, temperature: float
    ) -> Tensor:
        # a probability for each label: no softmax over them
        chances = (teacher_logits / temperature).sigmoid()
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
        [(combination, _)] = Counter(labels).most_common(1)
        marks = self._multi_hot([combination])  # (1, labels)
        return tuple(marks[0].astype(float).tolist())

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
        labels: LabelColumn,
        order: tuple[str, ...],  # noqa: ARG003
    ) -> tuple[tuple[str, ...], str]:
        """Return the name of the score, which is that of its column."""
        scores_of_labels = _scores_in(labels)
        scores = sorted({*scores_of_labels.values()})
        # a cell without a number is refused where its row is read, which names it
        are_all_scores = len(scores_of_labels) == len(labels.single)
        if len(scores) == 1 and are_all_scores and labels.single.total() > 1:
            only_score = [f"{scores[0]:g}"]
            require_labels(only_score, labels.file, labels.column, noun="score")
        note = f"numbers in column {labels.column}"
        if scores:  # the range, so that a total among scores is seen
            note += f", from {scores[0]:g} to {scores[-1]:g}"
        note += _warn_of_thousands(labels) + _warn_of_scales(labels)
        return (labels.column,), note

    @classmethod
    def read_label(cls, reading: "TextRows", row: Row, place: str) -> Label:
        cell = reading.columns.cell(row, "label")
        score = number_of(cell)
        if score is None:
            score = rating_of(cell)
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

    def imitation(
        self,
        logits: Tensor,
        teacher_logits: Tensor,
        temperature: float,  # noqa: ARG002
    ) -> Tensor:
        """Return the squared distance to the teacher's score; there is nothing to
        soften.
        """
        return F.mse_loss(logits, teacher_logits, reduction="none").mean(1)

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


def _scores_in(labels: LabelColumn) -> dict[str, float]:
    """Return the score of each label that is one."""
    scores = dict[str, float]()
    for label in labels.single:
        score = number_of(label)
        if score is None:
            score = rating_of(label)
        if score is not None:
            scores[label] = score
    return scores


def _warn_of_thousands(labels: LabelColumn) -> str:
    """Return a warning if some numbers have points as in thousands: 994 and 1.018."""
    pointed = [label for label in labels.single if "." in label]
    are_thousands = all(map(_THOUSANDS, pointed))
    if not are_thousands or not 0 < len(pointed) < len(labels.single):
        return ""
    return (
        f"; warning: {pointed[0]} is read as a fraction; if it is in thousands, remove"
        " the points"
    )


def _warn_of_notations(labels: LabelColumn) -> str:
    """Return a warning if all labels look like numbers, but some have a decimal comma
    or a percent sign, so that they are taken as classes: 0.7 and 4,9.
    """
    written = [label for label in labels.single if label.lower() not in MISSING]
    numbers = [label for label in written if number_of(label) is not None]
    others = [label for label in written if number_of(label) is None]
    if not numbers or not others or not all(map(_OTHER_NOTATION, others)):
        return ""
    if any(is_joined(label, labels.single) for label in others):
        return ""  # 1,2 beside 1 and 2
    return (
        f"; warning: they look like numbers in mixed notations, {numbers[0]} and"
        f" {others[0]}: correct them to one with a decimal point, then --problem"
        " regression learns a score"
    )


def _warn_of_scales(labels: LabelColumn) -> str:
    """Return a warning if ratings have different scales: 4/5 and 8/10."""
    by_scale = dict[int, str]()
    for label in labels.single:
        scale = scale_of(label)
        if scale is not None:
            by_scale.setdefault(scale, label)
    if len(by_scale) < 2:
        return ""
    first, second, *_ = by_scale.values()
    return (
        f"; warning: {first} and {second} are read as {rating_of(first):g} and"
        f" {rating_of(second):g}; write all ratings on one scale"
    )


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


# ---- the records ---------------------------------------------------------------------

TASK_KINDS.add("classification", SingleLabel)
TASK_KINDS.add("multi-label", MultiLabel)
TASK_KINDS.add("regression", Regression)
