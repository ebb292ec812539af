"""Classification of a text or a pair: one label, several labels, or a score (run_classifier.py)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from litebert.config import HeadConfig
from litebert.fast.exits import logits_by_step, mean_by_depth, patient_logits
from litebert.nn import AlbertForTask, Batch
from litebert.nn.batch import moved
from litebert.tasks.kinds.family import AnswerRow, CheckItem, Feature, Output, frame_ids
from litebert.tasks.kinds.problems import Label, LabelProblem, SingleLabel, problem_of
from litebert.tokenizer import Tokenizer


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
class TextClassification:
    """The family of tasks with one answer per text or pair; see tasks.kinds.family.Family.

    With `patience`, a text is answered as soon as that many classifiers in a row have agreed with
    the one before.
    """

    head: HeadConfig
    class_weights: tuple[float, ...] | None = None
    patience: int | None = None

    def on_vectors(self) -> TextClassification:
        """Return the family whose head reads vectors of texts instead of [CLS]."""
        kind = "vector-classification"
        return replace(self, head=self.head.model_copy(update={"kind": kind}))

    @cached_property
    def problem(self) -> LabelProblem:
        """What the outputs mean."""
        return problem_of(self.head)

    def features(
        self, examples: Sequence[TextExample], tokenizer: Tokenizer, *, max_length: int, training: bool
    ) -> list[Feature]:
        """Frame [CLS] A [SEP] (B [SEP]); an empty B counts as none (classifier_utils.py L556)."""
        firsts, seconds = (
            tokenizer.encode_ids([tokenizer.beginning(text, max_length) for text in texts])
            for texts in ([example.first for example in examples], [example.second or "" for example in examples])
        )
        features = []
        for number, example in enumerate(examples):
            pair = seconds[number] or None
            ids, segments = frame_ids(tokenizer, firsts[number], pair, max_length=max_length)
            target = self.problem.target(label_of(example)) if training else None
            weight = self._weight(example) if training else 1.0
            features.append(Feature((ids,), (segments,), target, number, weight))
        return features

    def losses(self, network: AlbertForTask, batch: Batch, targets: Tensor) -> Tensor:
        """Return the loss of each sequence; with a head after every step, their weighted mean."""
        by_step = [self.losses_of(logits, targets) for logits in logits_by_step(network, batch)]
        return mean_by_depth(by_step)

    def logits(self, network: AlbertForTask, batch: Batch) -> Tensor:
        """Return the logits of each sequence."""
        logits: Tensor = network(batch)
        return logits

    def imitation(self, logits: Tensor, wanted: Tensor, temperature: float) -> Tensor:
        """Return the problem's loss against a teacher's logits."""
        return self.problem.imitation(logits, wanted, temperature)

    def losses_of(self, logits: Tensor, targets: Tensor) -> Tensor:
        """Return the loss of each row of logits, weighted by its label's class."""
        losses = self.problem.losses(logits, targets)
        if self.class_weights is None or not isinstance(self.problem, SingleLabel):
            return losses
        weights = moved(torch.tensor(self.class_weights, dtype=losses.dtype), losses.device)
        return losses * weights[targets]

    def outputs(self, network: AlbertForTask, batch: Batch) -> list[Output]:
        """Return the logits of each sequence."""
        if self.patience is None:
            return list(network(batch).float().cpu().numpy())
        return list(patient_logits(network, batch, self.patience).cpu().numpy())

    def answers(self, _: Sequence[TextExample], __: Sequence[Feature], outputs: Sequence[Output], /) -> list[Scores]:
        """Turn logits into probabilities; a score stays as it is."""
        logits = np.stack(outputs) if outputs else np.zeros((0, self.head.num_outputs))
        return [Scores(tuple(map(float, row))) for row in self.problem.values(logits)]

    def measures(self, examples: Sequence[TextExample], answers: Sequence[Scores], /) -> dict[str, float]:
        """Compare answers with labels: accuracy, F1, Matthews; or correlations; or micro F1."""
        values = np.array([answer.values for answer in answers])
        return self.problem.measures([label_of(example) for example in examples], values)

    def constant(self, training: Sequence[TextExample], examples: Sequence[TextExample], /) -> list[Scores]:
        """Return the answers of always giving the commonest training label, or the mean score."""
        labels = [label_of(example) for example in training]
        return [Scores(self.problem.constant(labels))] * len(examples)

    def rows(self, examples: Sequence[TextExample], answers: Sequence[Scores], /) -> list[AnswerRow]:
        """Return answers in the words of the labels; several are joined by commas."""
        return [self._row(*pair) for pair in zip(examples, answers, strict=True)]

    def item(self, example: TextExample, /) -> CheckItem:
        """Return what a data check examines."""
        texts = (example.first,) if example.second is None else (example.first, example.second)
        if example.label is None:
            return CheckItem(texts, example.first)
        answer = self.problem.words(example.label)
        numbers = () if self.problem.is_number else np.ravel(example.label).astype(int)
        labels = tuple(self.head.labels[number] for number in numbers)
        return CheckItem(texts, example.first, labels=labels, answer=answer)

    def averaged(self, answers: Sequence[Sequence[Scores]], /) -> list[Scores]:
        """Return the mean probability of each label, or the mean score."""
        return mean_scores(answers)

    def named(self, answer: Scores) -> tuple[str, ...]:
        """Return the names of the labels that an answer gives: one, or several, or none."""
        return self.problem.named(answer.values)

    def _row(self, example: TextExample, answer: Scores) -> AnswerRow:
        label, values = example.label, answer.values
        return AnswerRow(
            id=example.id,
            text=example.first if example.second is None else f"{example.first} ¦ {example.second}",
            expected=None if label is None else self.problem.words(label),
            answer=self.problem.answer(values),
            confidence=self.problem.confidence(values),
            score=None if label is None else self.problem.score(label, values),
        )

    def _weight(self, example: TextExample) -> float:
        if self.class_weights is None or not isinstance(example.label, int):
            return 1.0
        return self.class_weights[example.label]


def mean_scores(answers: Sequence[Sequence[Scores]]) -> list[Scores]:
    """Return the mean of the answers of several models, example by example."""
    return [
        Scores(tuple(np.mean([scores.values for scores in of_one], axis=0).tolist()))
        for of_one in zip(*answers, strict=True)
    ]


def label_of(example: TextExample) -> Label:
    """Return the label of an example that must have one."""
    assert example.label is not None, "examples for training and evaluation have labels"
    return example.label
