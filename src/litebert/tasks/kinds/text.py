"""Texts and pairs with labels or a score (official run_classifier.py), and questions
with choices (race_utils.py).

Each kind of label is a class here: targets, loss, probabilities, measures and words.
`litebert.config.PROBLEMS` lists them; a new kind of label is a subclass of
`TextClassification` and a line there.
"""

import re
from abc import abstractmethod
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pkgutil import resolve_name
from typing import ClassVar, TypeAlias

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from litebert import metrics
from litebert.config import PROBLEMS, AlbertConfig, HeadConfig
from litebert.nn import AlbertForTask, Batch, move
from litebert.runs import AnswerRow
from litebert.tasks.kinds.family import NEVER, Feature, Output, Scoring, frame_ids
from litebert.tokenizer import Tokenizer

Label: TypeAlias = int | float | tuple[int, ...]
"""The index of a label, several indices, or a score."""


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
        return cls(tuple(np.mean([each.values for each in answers], axis=0).tolist()))


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
    """One answer per text or pair; a subclass for each kind of label."""

    is_number: ClassVar[bool] = False
    """Whether answers are scores and not labels."""

    @classmethod
    def of(cls, head: HeadConfig) -> "TextClassification":
        """Return the family of a head, by its problem."""
        family: TextClassification = resolve_name(PROBLEMS[head.problem_type])(head)
        return family

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

    # What all kinds have in common

    def texts(self, example: TextExample, /) -> tuple[str, ...]:
        return (
            (example.first,)
            if example.second is None
            else (example.first, example.second)
        )

    def losses(self, network: AlbertForTask, batch: Batch, targets: Tensor) -> Tensor:
        """Return the loss of each sequence: the mean over the heads of all steps,
        weighted by step (PABEE, 3.3).
        """
        by_step = [self.losses_of(logits, targets) for logits in network.by_step(batch)]
        # (steps, sequences)
        weighted = torch.stack(
            [step * losses for step, losses in enumerate(by_step, start=1)]
        )
        return weighted.sum(0) / sum(range(1, len(by_step) + 1))

    def values(self, logits: Tensor) -> Tensor:
        return (
            self.log_values(logits) if self.is_number else self.log_values(logits).exp()
        )

    def answer(
        self, _: TextExample, __: Sequence[Feature], outputs: Sequence[Output], /
    ) -> Scores:
        return Scores(tuple(outputs[0].tolist()))

    def measures(
        self, examples: Sequence[TextExample], answers: Sequence[Scores], /
    ) -> dict[str, float]:
        metrics.require_examples(sum(example.label is not None for example in examples))
        return self.measured(
            [label_of(each) for each in examples],
            np.array([each.values for each in answers]),
        )

    def averaged(self, answers: Sequence[Scores], /) -> Scores:
        return Scores.mean(answers)

    def constant(
        self, training: Sequence[TextExample], examples: Sequence[TextExample], /
    ) -> list[Scores]:
        return [Scores(self.commonest([label_of(each) for each in training]))] * len(
            examples
        )

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
        return tuple(
            self.head.labels[number]
            for number in (label if isinstance(label, tuple) else (int(label),))
        )

    def numbers(self, _: AnswerRow, answer: Scores, /) -> Mapping[str, float | None]:
        return dict(zip(self.head.labels, answer.values, strict=True))


@dataclass(frozen=True)
class SingleLabel(TextClassification):
    """Exactly one label is right: cross entropy, weighted by label, and probabilities
    that add up to 1.
    """

    class_weights: tuple[float, ...] | None = None

    def target(self, example: TextExample, /) -> NDArray[np.int64]:
        return np.array([label_of(example)], dtype=np.int64)

    def weight(self, example: TextExample, /) -> float:
        assert isinstance(example.label, int)
        return 1.0 if self.class_weights is None else self.class_weights[example.label]

    def losses_of(self, logits: Tensor, targets: Tensor) -> Tensor:
        weights = (
            None
            if self.class_weights is None
            else logits.new_tensor(self.class_weights)
        )
        return F.cross_entropy(logits, targets, weights, reduction="none")

    def log_values(self, logits: Tensor) -> Tensor:
        return logits.log_softmax(-1)

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

    def target(self, example: TextExample, /) -> NDArray[np.float32]:
        return np.array(self._multi_hot([label_of(example)])[0], dtype=np.float32)

    def losses_of(self, logits: Tensor, targets: Tensor) -> Tensor:
        return F.binary_cross_entropy_with_logits(
            logits, targets.view_as(logits), reduction="none"
        ).mean(1)

    def imitation(self, logits: Tensor, wanted: Tensor, temperature: float) -> Tensor:
        # a probability for each label: no softmax over them
        wanted = (wanted / temperature).sigmoid()
        losses = F.binary_cross_entropy_with_logits(
            logits / temperature, wanted, reduction="none"
        )
        return temperature**2 * losses.mean(1)

    def log_values(self, logits: Tensor) -> Tensor:
        return F.logsigmoid(logits)

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
            row[list(label) if isinstance(label, tuple) else []] = 1
        return marked


class Regression(TextClassification):
    """The answer is a score: squared errors and correlations; a score has no
    probability.
    """

    is_number: ClassVar[bool] = True
    baseline: ClassVar[str] = "the mean score"
    key_measure: ClassVar[str] = "pearson"

    def target(self, example: TextExample, /) -> NDArray[np.float32]:
        return np.array([label_of(example)], dtype=np.float32)

    def losses_of(self, logits: Tensor, targets: Tensor) -> Tensor:
        return F.mse_loss(logits, targets.view_as(logits), reduction="none").mean(1)

    def imitation(self, logits: Tensor, wanted: Tensor, temperature: float) -> Tensor:  # noqa: ARG002
        """Return the squared distance to the teacher's score; there is nothing to
        soften.
        """
        return F.mse_loss(logits, wanted, reduction="none").mean(1)

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
        (value,), label = answer.values, example.label
        assert not isinstance(label, tuple), "a score is one number"
        return (
            f"{value:.4g}",
            None,
            None if label is None else 1 / (1 + abs(label - value)),
        )


def label_of(example: TextExample) -> Label:
    """Return the label of an example that must have one."""
    assert example.label is not None, "examples for training and evaluation have labels"
    return example.label


# The head on vectors of texts


class VectorHead(nn.Module):
    """One linear layer on the vector of a text or, for a pair, also on how its two
    vectors differ.

    A model of text vectors learns the mean of the tokens; its [CLS] means little, and
    it has no pooler. For a pair, the layer also reads |a - b| and a * b (Reimers &
    Gurevych 2019), where a and b are the means over each text, scaled to unit variance.
    For a single text both features are zero.
    """

    def __init__(self, config: AlbertConfig, head: HeadConfig) -> None:
        super().__init__()
        self.dense = nn.Linear(3 * config.hidden_size, head.num_outputs)
        self.dropout_prob = config.classifier_dropout_prob

    def forward(
        self, hidden: Float[Tensor, "tokens hidden"], batch: Batch
    ) -> Float[Tensor, "sequences outputs"]:
        """Return the logits of each sequence."""
        num_texts = len(batch.lengths)
        sizes = batch.offsets.diff()
        text = torch.arange(num_texts, device=hidden.device).repeat_interleave(sizes)
        # of each token: which half of which sequence
        place = 2 * text + batch.segments.clamp(max=1)
        sums = hidden.new_zeros(2 * num_texts, hidden.shape[1]).index_add(
            0, place, hidden
        )
        # (sequences, hidden) each
        first, second = sums.view(num_texts, 2, -1).unbind(1)
        has_token = batch.segments.new_zeros(2 * num_texts).index_fill(0, place, 1)
        # (sequences, 3 hidden)
        rows = vector_rows(first, second, has_token[1::2, None])
        logits: Tensor = self.dense(F.dropout(rows, self.dropout_prob, self.training))
        return logits


def vector_rows(
    first: Float[Tensor, "sequences hidden"],
    second: Float[Tensor, "sequences hidden"],
    is_pair: Int[Tensor, "sequences 1"],
) -> Float[Tensor, "sequences three_hidden"]:
    """Return the input of a VectorHead's layer, from the sums over both texts' tokens:
    a sum's norm is the mean's.
    """
    a, b, both = (
        F.layer_norm(x, x.shape[-1:]) for x in (first, second, first + second)
    )
    return torch.cat([both, (a - b).abs() * is_pair, a * b * is_pair], -1)


# Multiple choice: which of several choices answers a question on a text

# official preprocessing turns a full-width underscore into _, too
_BLANK = re.compile("[_\uff3f]")


@dataclass(frozen=True)
class ChoiceExample:
    """A question on a context with its choices; each `group` is also measured
    separately.
    """

    id: str
    context: str
    question: str
    choices: tuple[str, ...]
    label: int | None = None
    group: str | None = None


@dataclass(frozen=True)
class MultipleChoice(Scoring[ChoiceExample, Scores]):
    """Choose among texts, by one logit for each.

    Each question has `num_choices` sequences. A question with fewer choices is padded
    with sequences of only [CLS], which are unlike any real choice and are never chosen.
    """

    head: HeadConfig = HeadConfig(kind="multiple-choice")  # noqa: RUF009
    max_qa_length: int = 128
    num_choices: int = 4
    baseline: ClassVar[str] = "the commonest place"

    def texts(self, example: ChoiceExample, /) -> tuple[str, ...]:
        return (f"{example.context} {example.question}", *example.choices)

    def target(self, example: ChoiceExample, /) -> NDArray[np.int64]:
        return np.array([example.label], dtype=np.int64)

    def features(
        self,
        examples: Sequence[ChoiceExample],
        tokenizer: Tokenizer,
        *,
        max_length: int,
        training: bool,
    ) -> list[Feature]:
        """Frame [CLS] context [SEP] question and choice [SEP] for each choice.

        Question and choice keep their last `max_qa_length` pieces; the context loses
        its end.
        """
        # questions on one passage share it
        distinct = list(dict.fromkeys(example.context for example in examples))
        read = [tokenizer.beginning(text, max_length) for text in distinct]
        contexts = dict(zip(distinct, tokenizer.encode_ids(read), strict=True))
        questions = iter(
            tokenizer.encode_ids(
                [text for example in examples for text in question_texts(example)]
            )
        )
        room = max_length - 3
        features = []
        for number, example in enumerate(examples):
            assert len(example.choices) <= self.num_choices, (
                "num_choices is that of the longest question"
            )
            framed = []
            for _ in example.choices:
                question = next(questions)[-min(self.max_qa_length, room) :]
                context = contexts[example.context][: room - len(question)]
                framed.append(
                    frame_ids(tokenizer, context, question, max_length=max_length)
                )
            framed += [([tokenizer.cls_id], [0])] * (self.num_choices - len(framed))
            ids, segments = zip(*framed, strict=True)
            features.append(
                Feature(
                    ids, segments, self.target(example) if training else None, number
                )
            )
        return features

    def logits(self, network: AlbertForTask, batch: Batch) -> Tensor:
        """Return the logits (questions, num_choices); choices that a question lacks get
        NEVER.
        """
        logits = network(batch).view(-1, self.num_choices)
        is_lacking = move(
            torch.tensor([length == 1 for length in batch.lengths]), logits.device
        )
        masked: Tensor = logits.masked_fill(is_lacking.view_as(logits), NEVER)
        return masked

    def losses_of(self, logits: Tensor, targets: Tensor) -> Tensor:
        return F.cross_entropy(logits, targets, reduction="none")

    def values(self, logits: Tensor) -> Tensor:
        return logits.softmax(-1)

    def answer(
        self, example: ChoiceExample, _: Sequence[Feature], outputs: Sequence[Output], /
    ) -> Scores:
        return Scores(tuple(outputs[0][: len(example.choices)].tolist()))

    def measures(
        self, examples: Sequence[ChoiceExample], answers: Sequence[Scores], /
    ) -> dict[str, float]:
        """Return the share of right answers, overall and, if there are several groups,
        by group.
        """
        metrics.require_examples(sum(example.label is not None for example in examples))
        is_right: dict[str, list[bool]] = {}
        for example, answer in zip(examples, answers, strict=True):
            is_right.setdefault(example.group or "", []).append(
                answer.best == example.label
            )
        measured = {"accuracy": sum(map(sum, is_right.values())) / len(examples)}
        if len(is_right) > 1:
            measured |= {
                f"accuracy_{group}": float(np.mean(is_right[group]))
                for group in sorted(is_right)
                if group
            }
        return measured

    def averaged(self, answers: Sequence[Scores], /) -> Scores:
        return Scores.mean(answers)

    def constant(
        self, training: Sequence[ChoiceExample], examples: Sequence[ChoiceExample], /
    ) -> list[Scores]:
        """Return how often the right choice is at each position in training."""
        places = [example.label for example in training if example.label is not None]
        shares = np.bincount(places, minlength=self.num_choices) / max(len(places), 1)
        return [
            Scores(tuple(shares[: len(example.choices)].tolist()))
            for example in examples
        ]

    def shown(self, example: ChoiceExample, /) -> str:
        return example.question

    def expected(self, example: ChoiceExample, /) -> str | None:
        return None if example.label is None else example.choices[example.label]

    def in_words(
        self, example: ChoiceExample, answer: Scores, /
    ) -> tuple[str, float | None, float | None]:
        """Return the chosen text; it is right if its place is, since two choices may
        have the same text.
        """
        return (
            example.choices[answer.best],
            max(answer.values),
            float(answer.best == example.label),
        )

    def labels(self, example: ChoiceExample, /) -> tuple[str, ...]:
        return () if example.label is None else (f"choice {example.label + 1}",)

    def numbers(self, _: AnswerRow, answer: Scores, /) -> Mapping[str, float | None]:
        return {
            f"choice {place}": value for place, value in enumerate(answer.values, 1)
        }


def question_texts(example: ChoiceExample) -> list[str]:
    """Return the question with each choice: in its blanks, or after it if it has
    none.
    """
    parts = _BLANK.split(example.question)
    choices = [" ".join(choice.split()) for choice in example.choices]
    if len(parts) == 1:
        return [f"{example.question} {choice}" for choice in choices]
    return [choice.join(parts) for choice in choices]
