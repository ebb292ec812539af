"""Texts and pairs of texts with one label, several labels, or a score (official run_classifier.py).

What the outputs mean is a `LabelProblem`: targets, losses, probabilities, measures and words. A new kind of label is
one class here and one line in `PROBLEMS`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar, TypeAlias

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from litebert.config import AlbertConfig, HeadConfig
from litebert.fast.exits import logits_by_step, mean_by_depth, patient_logits
from litebert.metrics import MARKED_FROM, classification_measures, multi_label_measures, regression_measures
from litebert.nn import AlbertForTask, Batch
from litebert.nn.batch import moved
from litebert.tasks.kinds.family import AnswerRow, CheckItem, Family, Feature, Output, softened, softmax

Label: TypeAlias = int | float | tuple[int, ...]
"""The index of a label, several indices, or a score."""
Values: TypeAlias = tuple[float, ...]
"""One probability per output or, for regression, the score."""


@dataclass(frozen=True)
class TextExample:
    """A text or a pair; its label is an index, several indices or a score, by the problem."""

    id: str
    first: str
    second: str | None = None
    label: Label | None = None


@dataclass(frozen=True)
class Scores:
    """The answer to one example: a probability for each output or, for regression, the score."""

    values: Values

    @property
    def best(self) -> int:
        """The index of the likeliest label."""
        return int(np.argmax(self.values))


# What the outputs of a classifier mean


@dataclass(frozen=True)
class LabelProblem(ABC):
    """What a classifier's outputs mean; `names` are those of the labels, or of the score."""

    names: tuple[str, ...]
    key_measure: ClassVar[str]
    """The measure by which evaluations are compared."""
    is_number: ClassVar[bool] = False
    """Whether answers are scores and not labels."""
    baseline: ClassVar[str] = "the commonest label"
    """What `constant` always gives."""

    @abstractmethod
    def target(self, label: Label) -> NDArray[np.generic]:
        """Return a label as a flat array to train on."""

    @abstractmethod
    def losses(self, logits: Tensor, targets: Tensor) -> Tensor:
        """Return the loss of each row of logits; `targets` lie end to end."""

    @abstractmethod
    def imitation(self, logits: Tensor, wanted: Tensor, temperature: float, /) -> Tensor:
        """Return the loss of each row against a teacher's logits."""

    @abstractmethod
    def values(self, logits: NDArray[np.floating]) -> NDArray[np.floating]:
        """Turn rows of logits into probabilities, or into scores."""

    @abstractmethod
    def log_values(self, logits: Tensor) -> Tensor:
        """Return the logarithms of the probabilities, or the scores: what an explanation adds up to."""

    @abstractmethod
    def measures(self, labels: Sequence[Label], values: NDArray[np.floating]) -> dict[str, float]:
        """Compare rows of values with the labels."""

    @abstractmethod
    def named(self, values: Values, /) -> tuple[str, ...]:
        """Return the names of the labels that are answered."""

    @abstractmethod
    def constant(self, labels: Sequence[Label]) -> Values:
        """Return the values of always giving the commonest label, or the mean score."""

    def words(self, label: Label) -> str:
        """Return a label as text: names, with commas between them."""
        return ", ".join(self.names[number] for number in np.ravel(label).astype(int))

    def answer(self, values: Values) -> str:
        """Return an answer as text, as `words` writes labels."""
        return ", ".join(self.named(values))

    def score(self, label: Label, values: Values) -> float:
        """Return 1 for a right answer, 0 for a wrong one, or a number between."""
        return float(self.words(label) == self.answer(values))

    def confidence(self, values: Values, /) -> float | None:
        """Return the probability of the answer; None if it has none."""
        return max(values)


@dataclass(frozen=True)
class SingleLabel(LabelProblem):
    """Exactly one label is right: cross entropy, and probabilities that add up to 1."""

    key_measure: ClassVar[str] = "accuracy"

    def target(self, label: Label) -> NDArray[np.int64]:
        return np.array([label], dtype=np.int64)

    def losses(self, logits: Tensor, targets: Tensor) -> Tensor:
        return F.cross_entropy(logits, targets, reduction="none")

    def imitation(self, logits: Tensor, wanted: Tensor, temperature: float) -> Tensor:
        return softened(logits, wanted, temperature)

    def values(self, logits: NDArray[np.floating]) -> NDArray[np.float64]:
        return softmax(logits)

    def log_values(self, logits: Tensor) -> Tensor:
        return logits.log_softmax(-1)

    def measures(self, labels: Sequence[Label], values: NDArray[np.floating]) -> dict[str, float]:
        return classification_measures(np.array(labels, dtype=np.int64), values)

    def named(self, values: Values, /) -> tuple[str, ...]:
        return (self.names[int(np.argmax(values))],)

    def constant(self, labels: Sequence[Label]) -> Values:
        counts = np.bincount(np.array(labels, dtype=np.int64), minlength=len(self.names))
        return tuple(map(float, counts / counts.sum()))


@dataclass(frozen=True)
class MultiLabel(LabelProblem):
    """Any number of labels may be right, or none: a binary cross entropy and a probability for each."""

    key_measure: ClassVar[str] = "micro_f1"

    def target(self, label: Label) -> NDArray[np.float32]:
        marked: NDArray[np.int64] = self._marked([label])[0]
        return marked.astype(np.float32)

    def losses(self, logits: Tensor, targets: Tensor) -> Tensor:
        return F.binary_cross_entropy_with_logits(logits, targets.view_as(logits), reduction="none").mean(1)

    def imitation(self, logits: Tensor, wanted: Tensor, temperature: float) -> Tensor:
        wanted = (wanted / temperature).sigmoid()
        losses = F.binary_cross_entropy_with_logits(logits / temperature, wanted, reduction="none")
        return temperature**2 * losses.mean(1)

    def values(self, logits: NDArray[np.floating]) -> NDArray[np.float64]:
        probabilities: NDArray[np.float64] = 1 / (1 + np.exp(-logits.astype(np.float64)))
        return probabilities

    def log_values(self, logits: Tensor) -> Tensor:
        return F.logsigmoid(logits)

    def measures(self, labels: Sequence[Label], values: NDArray[np.floating]) -> dict[str, float]:
        return multi_label_measures(self._marked(labels), values)

    def named(self, values: Values, /) -> tuple[str, ...]:
        return tuple(name for name, value in zip(self.names, values, strict=True) if value >= MARKED_FROM)

    def constant(self, labels: Sequence[Label]) -> Values:
        """Return the commonest combination of labels."""
        common = Counter(tuple(np.ravel(label).astype(int)) for label in labels).most_common(1)[0][0]
        return tuple(map(float, self._marked([common])[0]))

    def _marked(self, labels: Sequence[Label]) -> NDArray[np.int64]:
        """Return 0 or 1 for each label (labels, names)."""
        marked = np.zeros((len(labels), len(self.names)), dtype=np.int64)
        for row, label in zip(marked, labels, strict=True):
            row[list(label) if isinstance(label, tuple) else []] = 1
        return marked


@dataclass(frozen=True)
class Regression(LabelProblem):
    """The answer is a score: squared errors and correlations; a score has no probability."""

    key_measure: ClassVar[str] = "pearson"
    is_number: ClassVar[bool] = True
    baseline: ClassVar[str] = "the mean score"

    def target(self, label: Label) -> NDArray[np.float32]:
        return np.atleast_1d(np.array(label, dtype=np.float32))

    def losses(self, logits: Tensor, targets: Tensor) -> Tensor:
        return F.mse_loss(logits, targets.view_as(logits), reduction="none").mean(1)

    def imitation(self, logits: Tensor, wanted: Tensor, _: float, /) -> Tensor:
        """Return the squared distance to the teacher's score; there is nothing to soften."""
        return F.mse_loss(logits, wanted, reduction="none").mean(1)

    def values(self, logits: NDArray[np.floating]) -> NDArray[np.floating]:
        return logits

    def log_values(self, logits: Tensor) -> Tensor:
        return logits

    def measures(self, labels: Sequence[Label], values: NDArray[np.floating]) -> dict[str, float]:
        return regression_measures(np.array(labels, dtype=np.float64).reshape(values.shape), values)

    def named(self, _: Values, /) -> tuple[str, ...]:
        return self.names[:1]

    def constant(self, labels: Sequence[Label]) -> Values:
        return (float(np.mean(labels)),)

    def words(self, label: Label) -> str:
        return f"{float(np.ravel(label)[0]):g}"

    def answer(self, values: Values) -> str:
        return f"{values[0]:.4g}"

    def score(self, label: Label, values: Values) -> float:
        return 1 / (1 + abs(float(np.ravel(label)[0]) - values[0]))

    def confidence(self, _: Values, /) -> float | None:
        return None


PROBLEMS: Mapping[str, type[LabelProblem]] = {
    "single_label_classification": SingleLabel,
    "multi_label_classification": MultiLabel,
    "regression": Regression,
}
"""The problems by `HeadConfig.problem_type`."""


def problem_of(head: HeadConfig) -> LabelProblem:
    """Return the problem of a head."""
    return PROBLEMS[head.problem_type](head.labels)


# The kind of task


@dataclass(frozen=True)
class TextClassification(Family[TextExample, Scores]):
    """One answer per text or pair.

    `class_weights` weigh the loss by label. With `patience`, a text is answered as soon as that many classifiers in a
    row, one after each step of depth, have agreed with the one before.
    """

    class_weights: tuple[float, ...] | None = None
    patience: int | None = None

    def on_vectors(self) -> TextClassification:
        """Return the family whose head reads vectors of texts instead of [CLS]."""
        return replace(self, head=self.head.model_copy(update={"kind": "vector-classification"}))

    @cached_property
    def problem(self) -> LabelProblem:
        """What the outputs mean."""
        return problem_of(self.head)

    def texts(self, example: TextExample, /) -> tuple[str, ...]:
        return (example.first,) if example.second is None else (example.first, example.second)

    def target(self, example: TextExample, /) -> NDArray[np.generic]:
        return self.problem.target(label_of(example))

    def weight(self, example: TextExample, /) -> float:
        has_weight = self.class_weights is not None and isinstance(example.label, int)
        return self.class_weights[example.label] if has_weight else 1.0  # type: ignore[index]

    def losses(self, network: AlbertForTask, batch: Batch, targets: Tensor) -> Tensor:
        """Return the loss of each sequence; with a head after every step, their weighted mean."""
        return mean_by_depth([self.losses_of(logits, targets) for logits in logits_by_step(network, batch)])

    def losses_of(self, logits: Tensor, targets: Tensor) -> Tensor:
        losses = self.problem.losses(logits, targets)
        if self.class_weights is None or not isinstance(self.problem, SingleLabel):
            return losses
        weights = moved(torch.tensor(self.class_weights, dtype=losses.dtype), losses.device)
        return losses * weights[targets]

    def imitation(self, logits: Tensor, wanted: Tensor, temperature: float) -> Tensor:
        return self.problem.imitation(logits, wanted, temperature)

    def outputs(self, network: AlbertForTask, batch: Batch) -> list[Output]:
        if self.patience is None:
            return super().outputs(network, batch)
        return list(patient_logits(network, batch, self.patience).cpu().numpy())

    def answers(self, _: Sequence[TextExample], __: Sequence[Feature], outputs: Sequence[Output], /) -> list[Scores]:
        """Turn logits into probabilities; a score stays as it is."""
        logits = np.stack(outputs) if outputs else np.zeros((0, self.head.num_outputs))
        return [Scores(tuple(map(float, row))) for row in self.problem.values(logits)]

    def measures(self, examples: Sequence[TextExample], answers: Sequence[Scores], /) -> dict[str, float]:
        """Compare answers with labels: accuracy, F1, Matthews; or correlations; or micro F1."""
        return self.problem.measures([label_of(each) for each in examples], np.array([each.values for each in answers]))

    def averaged(self, answers: Sequence[Sequence[Scores]], /) -> list[Scores]:
        return mean_scores(answers)

    def constant(self, training: Sequence[TextExample], examples: Sequence[TextExample], /) -> list[Scores]:
        return [Scores(self.problem.constant([label_of(each) for each in training]))] * len(examples)

    @property
    def baseline(self) -> str:
        return self.problem.baseline

    def expected(self, example: TextExample, /) -> str | None:
        return None if example.label is None else self.problem.words(example.label)

    def named(self, answer: Scores) -> tuple[str, ...]:
        """Return the names of the labels that an answer gives: one, or several, or none."""
        return self.problem.named(answer.values)

    def words(self, answer: Scores, /) -> str:
        return self.problem.answer(answer.values)

    def confidence(self, answer: Scores, /) -> float | None:
        return self.problem.confidence(answer.values)

    def score(self, example: TextExample, answer: Scores, /) -> float:
        return self.problem.score(label_of(example), answer.values)

    def item(self, example: TextExample, /) -> CheckItem:
        has_labels = example.label is not None and not self.problem.is_number
        numbers = np.ravel(label_of(example)).astype(int) if has_labels else ()
        labels = tuple(self.head.labels[number] for number in numbers)
        return CheckItem(self.texts(example), example.first, labels=labels, answer=self.expected(example))

    def columns(self, _: int) -> tuple[str, ...]:
        return self.head.labels

    def numbers(self, _: AnswerRow, answer: Scores, /) -> Sequence[float | None]:
        return answer.values


def mean_scores(answers: Sequence[Sequence[Scores]]) -> list[Scores]:
    """Return the mean of the answers of several models, example by example."""
    each_example = zip(*answers, strict=True)
    return [Scores(tuple(np.mean([one.values for one in of_one], axis=0).tolist())) for of_one in each_example]


def label_of(example: TextExample) -> Label:
    """Return the label of an example that must have one."""
    assert example.label is not None, "examples for training and evaluation have labels"
    return example.label


# The head on vectors of texts


class VectorHead(nn.Module):
    """One linear layer on the vector of a text or, for a pair, also on how its vectors differ.

    A model of text vectors learns the mean of the tokens; its [CLS] says little, and it has no pooler. For a pair, the
    layer also reads |a - b| and a * b (Reimers & Gurevych 2019), where a and b are the means over each text, scaled to
    unit variance. For a single text both are zero.
    """

    def __init__(self, config: AlbertConfig, head: HeadConfig) -> None:
        super().__init__()
        self.dense = nn.Linear(3 * config.hidden_size, head.num_outputs)
        self.dropout_prob = config.classifier_dropout_prob

    def forward(self, hidden: Float[Tensor, "tokens hidden"], batch: Batch) -> Float[Tensor, "sequences outputs"]:
        """Return the logits of each sequence."""
        return self.logits(self.rows(hidden, batch))

    def rows(self, hidden: Float[Tensor, "tokens hidden"], batch: Batch) -> Float[Tensor, "sequences three_hidden"]:
        """Return the input of the linear layer for each sequence."""
        num_texts, sizes = len(batch.lengths), batch.offsets.diff()
        text = torch.arange(num_texts, device=hidden.device).repeat_interleave(sizes)
        place = 2 * text + batch.segments.clamp(max=1)  # of each token: which half of which sequence
        sums = hidden.new_zeros(2 * num_texts, hidden.shape[1]).index_add(0, place, hidden)
        first, second = sums.view(num_texts, 2, -1).unbind(1)
        has_token = batch.segments.new_zeros(2 * num_texts).index_fill(0, place, 1)
        return vector_rows(first, second, has_token[1::2, None])

    def logits(self, rows: Float[Tensor, "sequences three_hidden"]) -> Tensor:
        """Return the logits of what `rows` returned."""
        logits: Tensor = self.dense(F.dropout(rows, self.dropout_prob, self.training))
        return logits


def vector_rows(
    first: Float[Tensor, "sequences hidden"],
    second: Float[Tensor, "sequences hidden"],
    is_pair: Int[Tensor, "sequences 1"],
) -> Float[Tensor, "sequences three_hidden"]:
    """Return the input of a VectorHead's layer, given the sums over the tokens of both texts.

    The layer norm of a sum is that of the mean.
    """
    a, b, both = (F.layer_norm(x, x.shape[-1:]) for x in (first, second, first + second))
    return torch.cat([both, (a - b).abs() * is_pair, a * b * is_pair], -1)
