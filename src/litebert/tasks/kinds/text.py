"""Texts and pairs of texts with one label, several labels, or a score (official run_classifier.py).

A kind of label is a class here: targets, loss, probabilities, measures and words. `litebert.config.PROBLEMS` names
them; a new kind of label is a subclass of `TextClassification` and a line there.
"""

from __future__ import annotations

from abc import abstractmethod
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pkgutil import resolve_name
from typing import ClassVar, Self, TypeAlias

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from litebert.config import PROBLEMS, AlbertConfig, HeadConfig
from litebert.fast.exits import logits_by_step, mean_by_depth, patient_logits
from litebert.metrics import MARKED_FROM, classification_measures, multi_label_measures, regression_measures
from litebert.nn import AlbertForTask, Batch
from litebert.nn.batch import moved
from litebert.runs import AnswerRow
from litebert.tasks.kinds.family import Family, Feature, Output, softmax

Label: TypeAlias = int | float | tuple[int, ...]
"""The index of a label, several indices, or a score."""


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

    values: tuple[float, ...]

    @property
    def best(self) -> int:
        """The index of the likeliest label."""
        return int(np.argmax(self.values))


@dataclass(frozen=True)
class TextClassification(Family[TextExample, Scores]):
    """One answer per text or pair; a subclass for each kind of label.

    `class_weights` weigh the loss by label. With `patience`, a text is answered as soon as that many classifiers in a
    row, one after each step of depth, have agreed with the one before.
    """

    class_weights: tuple[float, ...] | None = None
    patience: int | None = None
    is_number: ClassVar[bool] = False
    """Whether answers are scores and not labels."""

    @classmethod
    def of(cls, head: HeadConfig) -> TextClassification:
        """Return the family of a head, by its problem."""
        family: TextClassification = resolve_name(PROBLEMS[head.problem_type])(head)
        return family

    def on_vectors(self) -> Self:
        """Return the family whose head reads vectors of texts instead of [CLS]."""
        return replace(self, head=self.head.model_copy(update={"kind": "vector-classification"}))

    # What a kind of label says, besides `target`, `losses_of` and perhaps `imitation`

    @abstractmethod
    def values(self, logits: NDArray[np.floating]) -> NDArray[np.floating]:
        """Turn rows of logits into probabilities, or into scores."""

    @abstractmethod
    def log_values(self, logits: Tensor) -> Tensor:
        """Return the logarithms of the probabilities, or the scores: what an explanation adds up to."""

    @abstractmethod
    def measured(self, labels: Sequence[Label], values: NDArray[np.floating]) -> dict[str, float]:
        """Compare rows of values with the labels."""

    @abstractmethod
    def commonest(self, labels: Sequence[Label]) -> tuple[float, ...]:
        """Return the values of always giving the commonest label, or the mean score."""

    @abstractmethod
    def named(self, answer: Scores) -> tuple[str, ...]:
        """Return the names of the labels that an answer gives: one, or several, or none."""

    # What all have in common

    def texts(self, example: TextExample, /) -> tuple[str, ...]:
        return (example.first,) if example.second is None else (example.first, example.second)

    def losses(self, network: AlbertForTask, batch: Batch, targets: Tensor) -> Tensor:
        """Return the loss of each sequence; with a head after every step, their weighted mean."""
        return mean_by_depth([self.losses_of(logits, targets) for logits in logits_by_step(network, batch)])

    def outputs(self, network: AlbertForTask, batch: Batch) -> list[Output]:
        if self.patience is None:
            return super().outputs(network, batch)
        return list(patient_logits(network, batch, self.patience).cpu().numpy())

    def answers(self, _: Sequence[TextExample], __: Sequence[Feature], outputs: Sequence[Output], /) -> list[Scores]:
        logits = np.stack(outputs) if outputs else np.zeros((0, self.head.num_outputs))
        return [Scores(tuple(map(float, row))) for row in self.values(logits)]

    def measures(self, examples: Sequence[TextExample], answers: Sequence[Scores], /) -> dict[str, float]:
        return self.measured([label_of(each) for each in examples], np.array([each.values for each in answers]))

    def averaged(self, answers: Sequence[Sequence[Scores]], /) -> list[Scores]:
        return mean_scores(answers)

    def constant(self, training: Sequence[TextExample], examples: Sequence[TextExample], /) -> list[Scores]:
        return [Scores(self.commonest([label_of(each) for each in training]))] * len(examples)

    def expected(self, example: TextExample, /) -> str | None:
        return None if example.label is None else ", ".join(self.labels(example))

    def in_words(self, example: TextExample, answer: Scores, /) -> tuple[str, float | None, float | None]:
        words = ", ".join(self.named(answer))
        return words, max(answer.values), float(words == self.expected(example))

    def labels(self, example: TextExample, /) -> tuple[str, ...]:
        numbers = () if example.label is None or self.is_number else np.ravel(example.label).astype(int)
        return tuple(self.head.labels[number] for number in numbers)

    def numbers(self, _: AnswerRow, answer: Scores, /) -> Mapping[str, float | None]:
        return dict(zip(self.head.labels, answer.values, strict=True))


class SingleLabel(TextClassification):
    """Exactly one label is right: cross entropy, and probabilities that add up to 1."""

    def target(self, example: TextExample, /) -> NDArray[np.int64]:
        return np.array([label_of(example)], dtype=np.int64)

    def weight(self, example: TextExample, /) -> float:
        has_weight = self.class_weights is not None and isinstance(example.label, int)
        return self.class_weights[example.label] if has_weight else 1.0  # type: ignore[index]

    def losses_of(self, logits: Tensor, targets: Tensor) -> Tensor:
        losses = F.cross_entropy(logits, targets, reduction="none")
        if self.class_weights is None:
            return losses
        return losses * moved(torch.tensor(self.class_weights, dtype=losses.dtype), losses.device)[targets]

    def values(self, logits: NDArray[np.floating]) -> NDArray[np.floating]:
        return softmax(logits)

    def log_values(self, logits: Tensor) -> Tensor:
        return logits.log_softmax(-1)

    def measured(self, labels: Sequence[Label], values: NDArray[np.floating]) -> dict[str, float]:
        return classification_measures(np.array(labels, dtype=np.int64), values)

    def commonest(self, labels: Sequence[Label]) -> tuple[float, ...]:
        counts = np.bincount(np.array(labels, dtype=np.int64), minlength=len(self.head.labels))
        return tuple(map(float, counts / counts.sum()))

    def named(self, answer: Scores) -> tuple[str, ...]:
        return (self.head.labels[answer.best],)


class MultiLabel(TextClassification):
    """Any number of labels may be right, or none: a binary cross entropy and a probability for each."""

    key_measure: ClassVar[str] = "micro_f1"

    def target(self, example: TextExample, /) -> NDArray[np.float32]:
        marked: NDArray[np.float32] = self._marked([label_of(example)])[0].astype(np.float32)
        return marked

    def losses_of(self, logits: Tensor, targets: Tensor) -> Tensor:
        return F.binary_cross_entropy_with_logits(logits, targets.view_as(logits), reduction="none").mean(1)

    def imitation(self, logits: Tensor, wanted: Tensor, temperature: float) -> Tensor:
        wanted = (wanted / temperature).sigmoid()
        losses = F.binary_cross_entropy_with_logits(logits / temperature, wanted, reduction="none")
        return temperature**2 * losses.mean(1)

    def values(self, logits: NDArray[np.floating]) -> NDArray[np.floating]:
        probabilities: NDArray[np.float64] = 1 / (1 + np.exp(-logits.astype(np.float64)))
        return probabilities

    def log_values(self, logits: Tensor) -> Tensor:
        return F.logsigmoid(logits)

    def measured(self, labels: Sequence[Label], values: NDArray[np.floating]) -> dict[str, float]:
        return multi_label_measures(self._marked(labels), values)

    def commonest(self, labels: Sequence[Label]) -> tuple[float, ...]:
        """Return the commonest combination of labels."""
        common = Counter(tuple(np.ravel(label).astype(int)) for label in labels).most_common(1)[0][0]
        return tuple(map(float, self._marked([common])[0]))

    def named(self, answer: Scores) -> tuple[str, ...]:
        return tuple(name for name, p in zip(self.head.labels, answer.values, strict=True) if p >= MARKED_FROM)

    def _marked(self, labels: Sequence[Label]) -> NDArray[np.int64]:
        """Return 0 or 1 for each label, (examples, labels)."""
        marked = np.zeros((len(labels), len(self.head.labels)), dtype=np.int64)
        for row, label in zip(marked, labels, strict=True):
            row[list(label) if isinstance(label, tuple) else []] = 1
        return marked


class Regression(TextClassification):
    """The answer is a score: squared errors and correlations; a score has no probability."""

    is_number: ClassVar[bool] = True
    baseline: ClassVar[str] = "the mean score"
    key_measure: ClassVar[str] = "pearson"

    def target(self, example: TextExample, /) -> NDArray[np.float32]:
        return np.atleast_1d(np.array(label_of(example), dtype=np.float32))

    def losses_of(self, logits: Tensor, targets: Tensor) -> Tensor:
        return F.mse_loss(logits, targets.view_as(logits), reduction="none").mean(1)

    def imitation(self, logits: Tensor, wanted: Tensor, temperature: float) -> Tensor:  # noqa: ARG002
        """Return the squared distance to the teacher's score; there is nothing to soften."""
        return F.mse_loss(logits, wanted, reduction="none").mean(1)

    def values(self, logits: NDArray[np.floating]) -> NDArray[np.floating]:
        return logits

    def log_values(self, logits: Tensor) -> Tensor:
        return logits

    def measured(self, labels: Sequence[Label], values: NDArray[np.floating]) -> dict[str, float]:
        return regression_measures(np.array(labels, dtype=np.float64).reshape(values.shape), values)

    def commonest(self, labels: Sequence[Label]) -> tuple[float, ...]:
        return (float(np.mean(labels)),)

    def named(self, _: Scores) -> tuple[str, ...]:
        return self.head.labels[:1]

    def expected(self, example: TextExample, /) -> str | None:
        return None if example.label is None else f"{float(np.ravel(example.label)[0]):g}"

    def in_words(self, example: TextExample, answer: Scores, /) -> tuple[str, float | None, float | None]:
        (value,), label = answer.values, example.label
        return f"{value:.4g}", None, None if label is None else 1 / (1 + abs(float(np.ravel(label)[0]) - value))


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
        num_texts, sizes = len(batch.lengths), batch.offsets.diff()
        text = torch.arange(num_texts, device=hidden.device).repeat_interleave(sizes)
        place = 2 * text + batch.segments.clamp(max=1)  # of each token: which half of which sequence
        sums = hidden.new_zeros(2 * num_texts, hidden.shape[1]).index_add(0, place, hidden)
        first, second = sums.view(num_texts, 2, -1).unbind(1)
        has_token = batch.segments.new_zeros(2 * num_texts).index_fill(0, place, 1)
        rows = vector_rows(first, second, has_token[1::2, None])
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
