"""The problem types of a classifier: one label, several labels, or a score.

A problem is an object that a family chooses once, by `HeadConfig.problem_type`. It gives targets,
losses, values, measures and words.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, TypeAlias

import numpy as np
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from litebert.config import HeadConfig
from litebert.metrics import MARKED_FROM, classification_measures, multi_label_measures, regression_measures

Label: TypeAlias = int | float | tuple[int, ...]
"""The index of a label, several indices, or a score."""
Values: TypeAlias = tuple[float, ...]
"""One probability per output or, for regression, the score."""


@dataclass(frozen=True)
class LabelProblem(ABC):
    """What a classifier's outputs mean; `names` are those of the labels, or of the score."""

    names: tuple[str, ...]
    key_measure: ClassVar[str]
    """The measure by which evaluations are compared."""
    is_number: ClassVar[bool] = False
    """Whether answers are scores and not labels."""

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
    """Exactly one label is right."""

    key_measure: ClassVar[str] = "accuracy"

    def target(self, label: Label) -> NDArray[np.int64]:
        """Return the number of the label."""
        return np.array([label], dtype=np.int64)

    def losses(self, logits: Tensor, targets: Tensor) -> Tensor:
        """Return the cross entropy of each row."""
        return F.cross_entropy(logits, targets, reduction="none")

    def imitation(self, logits: Tensor, wanted: Tensor, temperature: float) -> Tensor:
        """Return the divergence from the teacher's distribution."""
        return softened(logits, wanted, temperature)

    def values(self, logits: NDArray[np.floating]) -> NDArray[np.float64]:
        """Return probabilities that add up to 1."""
        return softmax(logits)

    def log_values(self, logits: Tensor) -> Tensor:
        """Return log-probabilities of labels that exclude each other."""
        return logits.log_softmax(-1)

    def measures(self, labels: Sequence[Label], values: NDArray[np.floating]) -> dict[str, float]:
        """Return accuracy, F1 and Matthews correlation."""
        return classification_measures(np.array(labels, dtype=np.int64), values)

    def named(self, values: Values, /) -> tuple[str, ...]:
        """Return the name of the likeliest label."""
        return (self.names[int(np.argmax(values))],)

    def constant(self, labels: Sequence[Label]) -> Values:
        """Return the share of each label."""
        counts = np.bincount(np.array(labels, dtype=np.int64), minlength=len(self.names))
        return tuple(map(float, counts / counts.sum()))


@dataclass(frozen=True)
class MultiLabel(LabelProblem):
    """Any number of labels may be right, or none."""

    key_measure: ClassVar[str] = "micro_f1"

    def target(self, label: Label) -> NDArray[np.float32]:
        """Return 0 or 1 for each label."""
        marked: NDArray[np.int64] = self._marked([label])[0]
        return marked.astype(np.float32)

    def losses(self, logits: Tensor, targets: Tensor) -> Tensor:
        """Return the mean binary cross entropy of each row."""
        wanted = targets.view_as(logits)
        return F.binary_cross_entropy_with_logits(logits, wanted, reduction="none").mean(1)

    def imitation(self, logits: Tensor, wanted: Tensor, temperature: float) -> Tensor:
        """Return the mean binary cross entropy against the teacher's probabilities."""
        return temperature**2 * F.binary_cross_entropy_with_logits(
            logits / temperature, (wanted / temperature).sigmoid(), reduction="none"
        ).mean(1)

    def values(self, logits: NDArray[np.floating]) -> NDArray[np.float64]:
        """Return an independent probability for each label."""
        probabilities: NDArray[np.float64] = 1 / (1 + np.exp(-logits.astype(np.float64)))
        return probabilities

    def log_values(self, logits: Tensor) -> Tensor:
        """Return the log-probability of each label."""
        return F.logsigmoid(logits)

    def measures(self, labels: Sequence[Label], values: NDArray[np.floating]) -> dict[str, float]:
        """Return micro F1, macro F1 and the share of rows with all labels right."""
        return multi_label_measures(self._marked(labels), values)

    def named(self, values: Values, /) -> tuple[str, ...]:
        """Return the names of the labels with a probability of one half or more."""
        return tuple(name for name, value in zip(self.names, values, strict=True) if value >= MARKED_FROM)

    def constant(self, labels: Sequence[Label]) -> Values:
        """Return the commonest combination of labels."""
        common = Counter(tuple(np.ravel(label).astype(int)) for label in labels).most_common(1)[0][0]
        return tuple(map(float, self._marked([common])[0]))

    def _marked(self, labels: Sequence[Label]) -> NDArray[np.int64]:
        marked = np.zeros((len(labels), len(self.names)), dtype=np.int64)
        for row, label in zip(marked, labels, strict=True):
            row[list(label) if isinstance(label, tuple) else []] = 1
        return marked


@dataclass(frozen=True)
class Regression(LabelProblem):
    """The answer is a score."""

    key_measure: ClassVar[str] = "pearson"
    is_number: ClassVar[bool] = True

    def target(self, label: Label) -> NDArray[np.float32]:
        """Return the score."""
        return np.atleast_1d(np.array(label, dtype=np.float32))

    def losses(self, logits: Tensor, targets: Tensor) -> Tensor:
        """Return the squared error of each row."""
        return F.mse_loss(logits, targets.view_as(logits), reduction="none").mean(1)

    def imitation(self, logits: Tensor, wanted: Tensor, _: float, /) -> Tensor:
        """Return the squared distance to the teacher's score; there is nothing to soften."""
        return F.mse_loss(logits, wanted, reduction="none").mean(1)

    def values(self, logits: NDArray[np.floating]) -> NDArray[np.floating]:
        """Return the scores unchanged."""
        return logits

    def log_values(self, logits: Tensor) -> Tensor:
        """Return the scores."""
        return logits

    def measures(self, labels: Sequence[Label], values: NDArray[np.floating]) -> dict[str, float]:
        """Return both correlations and the mean squared error."""
        wanted = np.array(labels, dtype=np.float64)
        return regression_measures(wanted.reshape(values.shape), values)

    def named(self, _: Values, /) -> tuple[str, ...]:
        """Return the name of the score."""
        return self.names[:1]

    def words(self, label: Label) -> str:
        """Return the score."""
        return f"{float(np.ravel(label)[0]):g}"

    def answer(self, values: Values) -> str:
        """Return the score to four digits."""
        return f"{values[0]:.4g}"

    def score(self, label: Label, values: Values) -> float:
        """Return 1 / (1 + |difference|)."""
        return 1 / (1 + abs(float(np.ravel(label)[0]) - values[0]))

    def confidence(self, _: Values, /) -> float | None:
        """Return None: a score has no probability."""
        return None

    def constant(self, labels: Sequence[Label]) -> Values:
        """Return the mean score."""
        return (float(np.mean(labels)),)


PROBLEMS: Mapping[str, type[LabelProblem]] = {
    "single_label_classification": SingleLabel,
    "multi_label_classification": MultiLabel,
    "regression": Regression,
}
"""The problems by `HeadConfig.problem_type`."""


def problem_of(head: HeadConfig) -> LabelProblem:
    """Return the problem of a head."""
    return PROBLEMS[head.problem_type](head.labels)


def softened(logits: Tensor, wanted: Tensor, temperature: float) -> Tensor:
    """Return T^2 KL(teacher || student) of each row, both softened by T (Hinton et al. 2015)."""
    ours = (logits / temperature).log_softmax(-1)
    theirs = (wanted / temperature).log_softmax(-1)
    return temperature**2 * (theirs.exp() * (theirs - ours)).sum(-1)


def softmax(logits: NDArray[np.floating]) -> NDArray[np.float64]:
    """Return probabilities along the last axis.

    >>> softmax(np.array([[0.0, 0.0]])).tolist()
    [[0.5, 0.5]]
    """
    powers: NDArray[np.float64] = np.exp(
        logits.astype(np.float64) - logits.max(axis=-1, keepdims=True, initial=-np.inf)
    )
    shares: NDArray[np.float64] = powers / powers.sum(axis=-1, keepdims=True)
    return shares
