"""One or two texts to a label, to several labels, or to a score (official run_classifier.py)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from litebert.config import HeadConfig
from litebert.fast.exits import logits_by_step, mean_by_depth, patient_logits
from litebert.metrics import classification_measures, multi_label_measures, regression_measures
from litebert.nn import AlbertForTask, Batch
from litebert.tasks.kinds.family import AnswerRow, Feature, Output
from litebert.tasks.kinds.framing import frame_ids
from litebert.tokenizer import Tokenizer


@dataclass(frozen=True)
class TextExample:
    """A text, or a pair, with its label by number; several numbers, or a score, by the problem."""

    id: str
    first: str
    second: str | None = None
    label: int | float | tuple[int, ...] | None = None


@dataclass(frozen=True)
class Scores:
    """The answer to one example: a probability (or, for regression, a score) by output."""

    values: tuple[float, ...]

    @property
    def best(self) -> int:
        """Number of the likeliest label."""
        return int(np.argmax(self.values))


@dataclass(frozen=True)
class TextClassification:
    """The family of tasks with one answer a text or pair; see tasks.kinds.family.Family.

    With `patience` a text is answered as soon as so many classifiers agreed with the one before.
    """

    head: HeadConfig
    class_weights: tuple[float, ...] | None = None
    patience: int | None = None

    def features(
        self,
        examples: Sequence[TextExample],
        tokenizer: Tokenizer,
        *,
        max_length: int,
        training: bool,
    ) -> list[Feature]:
        """Frame [CLS] A [SEP] (B [SEP]); an empty second text is none (classifier_utils L556)."""
        firsts = tokenizer.encode_ids([example.first for example in examples])
        seconds = tokenizer.encode_ids([example.second or "" for example in examples])
        features = []
        for number, example in enumerate(examples):
            pair = seconds[number] or None
            ids, segments = frame_ids(tokenizer, firsts[number], pair, max_length=max_length)
            target = self._target(example) if training else None
            weight = self._weight(example) if training else 1.0
            features.append(Feature((ids,), (segments,), target, number, weight))
        return features

    def losses(self, network: AlbertForTask, batch: Batch, targets: Tensor) -> Tensor:
        """Return cross entropy, its binary form by label, or the squared error of the score.

        Where every step has a head, that is a mean of theirs.
        """
        by_step = [self._losses(logits, targets) for logits in logits_by_step(network, batch)]
        return mean_by_depth(by_step)

    def _losses(self, logits: Tensor, targets: Tensor) -> Tensor:
        if self.head.problem_type == "regression":
            return F.mse_loss(logits, targets.view_as(logits), reduction="none").mean(1)
        if self.head.problem_type == "multi_label_classification":
            wanted = targets.view_as(logits)
            return F.binary_cross_entropy_with_logits(logits, wanted, reduction="none").mean(1)
        losses = F.cross_entropy(logits, targets, reduction="none")
        if self.class_weights is None:
            return losses
        return losses * losses.new_tensor(self.class_weights)[targets]

    def outputs(self, network: AlbertForTask, batch: Batch) -> list[Output]:
        """Return the logits of each sequence."""
        if self.patience is None:
            return list(network(batch).float().cpu().numpy())
        return list(patient_logits(network, batch, self.patience).cpu().numpy())

    def answers(
        self, _: Sequence[TextExample], __: Sequence[Feature], outputs: Sequence[Output], /
    ) -> list[Scores]:
        """Turn logits into probabilities; a score stays as it is."""
        logits = np.stack(outputs) if outputs else np.zeros((0, self.head.num_outputs))
        if self.head.problem_type == "multi_label_classification":
            logits = 1 / (1 + np.exp(-logits.astype(np.float64)))
        elif self.head.problem_type == "single_label_classification":
            logits = softmax(logits)
        return [Scores(tuple(map(float, row))) for row in logits]

    def measures(
        self, examples: Sequence[TextExample], answers: Sequence[Scores], /
    ) -> dict[str, float]:
        """Compare answers with labels: accuracy, F1, Matthews; or correlations; or micro F1."""
        values = np.array([answer.values for answer in answers])
        if self.head.problem_type == "regression":
            wanted = np.array([example.label for example in examples], dtype=np.float64)
            return regression_measures(wanted.reshape(values.shape), values)
        if self.head.problem_type == "multi_label_classification":
            marked = np.stack([self._marked(example) for example in examples])
            return multi_label_measures(marked, values)
        labels = np.array([example.label for example in examples], dtype=np.int64)
        return classification_measures(labels, values)

    def rows(
        self, examples: Sequence[TextExample], answers: Sequence[Scores], /
    ) -> list[AnswerRow]:
        """Return answers in the words of the labels; several are joined by commas."""
        return [self._row(*pair) for pair in zip(examples, answers, strict=True)]

    def averaged(self, answers: Sequence[Sequence[Scores]], /) -> list[Scores]:
        """Return the mean probability of each label, or the mean score."""
        return [
            Scores(tuple(np.mean([scores.values for scores in of_one], axis=0).tolist()))
            for of_one in zip(*answers, strict=True)
        ]

    def named(self, answer: Scores) -> tuple[str, ...]:
        """Return the names of the labels that an answer gives: one, or several, or none."""
        if self.head.problem_type == "multi_label_classification":
            chosen = zip(self.head.labels, answer.values, strict=True)
            return tuple(name for name, value in chosen if value >= 0.5)
        return (self.head.labels[answer.best],)

    def _row(self, example: TextExample, answer: Scores) -> AnswerRow:
        text = example.first if example.second is None else f"{example.first} ¦ {example.second}"
        if self.head.problem_type == "regression":
            wanted = None if example.label is None else float(np.ravel(example.label)[0])
            found = answer.values[0]
            score = None if wanted is None else 1 / (1 + abs(wanted - found))
            expected = None if wanted is None else f"{wanted:g}"
            return AnswerRow(example.id, text, expected, f"{found:.4g}", None, score)
        answered = ", ".join(self.named(answer))
        if example.label is None:
            return AnswerRow(example.id, text, None, answered, max(answer.values), None)
        expected = ", ".join(self.head.labels[int(label)] for label in np.ravel(example.label))
        is_right = float(expected == answered)
        return AnswerRow(example.id, text, expected, answered, max(answer.values), is_right)

    def _target(self, example: TextExample) -> NDArray[np.generic]:
        if self.head.problem_type == "regression":
            return np.atleast_1d(np.array(example.label, dtype=np.float32))
        if self.head.problem_type == "multi_label_classification":
            return self._marked(example).astype(np.float32)
        return np.array([example.label], dtype=np.int64)

    def _weight(self, example: TextExample) -> float:
        if self.class_weights is None or not isinstance(example.label, int):
            return 1.0
        return self.class_weights[example.label]

    def _marked(self, example: TextExample) -> NDArray[np.int64]:
        marked = np.zeros(self.head.num_outputs, dtype=np.int64)
        marked[list(example.label) if isinstance(example.label, tuple) else []] = 1
        return marked


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
