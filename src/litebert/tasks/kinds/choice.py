"""Multiple choice: which of several choices answers a question on a text (race_utils.py)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from litebert.config import HeadConfig
from litebert.errors import LitebertError
from litebert.metrics import require_some
from litebert.nn import AlbertForTask, Batch
from litebert.nn.batch import moved
from litebert.tasks.kinds.classification import Scores, mean_scores
from litebert.tasks.kinds.family import NEVER, AnswerRow, CheckItem, Feature, Output, frame_ids
from litebert.tasks.kinds.problems import softened, softmax
from litebert.tokenizer import Tokenizer

HEAD = HeadConfig(kind="multiple-choice")
"""One logit for each choice."""

_BLANK = re.compile("[_\uff3f]")
"""The blank; official preprocessing turns a full-width underscore into _, too."""


@dataclass(frozen=True)
class ChoiceExample:
    """A question on a context with its choices; each `group` is also measured separately."""

    id: str
    context: str
    question: str
    choices: tuple[str, ...]
    label: int | None = None
    group: str | None = None


@dataclass(frozen=True)
class MultipleChoice:
    """The family of tasks that choose among texts; see tasks.kinds.family.Family.

    Each question has `num_choices` sequences. A question with fewer choices is filled up with
    sequences of [CLS] alone, which no real choice has and which are never chosen.
    """

    head: HeadConfig = HEAD
    max_qa_length: int = 128
    num_choices: int = 4

    def features(
        self, examples: Sequence[ChoiceExample], tokenizer: Tokenizer, *, max_length: int, training: bool
    ) -> list[Feature]:
        """Frame [CLS] context [SEP] question and choice [SEP] for each choice.

        Question and choice keep their last `max_qa_length` pieces; the context loses its end.

        Raises:
            LitebertError: LB-828, a question has more choices than `num_choices`.
        """
        contexts = _encoded_once(tokenizer, [example.context for example in examples], max_length)
        questions = iter(tokenizer.encode_ids([text for example in examples for text in question_texts(example)]))
        features = []
        for number, example in enumerate(examples):
            self._require_room(example)
            framed = [
                self._framed(tokenizer, contexts[example.context], next(questions), max_length) for _ in example.choices
            ]
            framed += [([tokenizer.cls_id], [0])] * (self.num_choices - len(framed))
            ids, segments = zip(*framed, strict=True)
            target = np.array([example.label], dtype=np.int64) if training else None
            features.append(Feature(ids, segments, target, number))
        return features

    def losses(self, network: AlbertForTask, batch: Batch, targets: Tensor) -> Tensor:
        """Return the cross entropy over the choices of each question."""
        return self.losses_of(self.logits(network, batch), targets)

    def losses_of(self, logits: Tensor, targets: Tensor) -> Tensor:
        """Return the cross entropy of each row of logits."""
        return F.cross_entropy(logits, targets, reduction="none")

    def imitation(self, logits: Tensor, wanted: Tensor, temperature: float) -> Tensor:
        """Return the divergence from a teacher's distribution over the choices."""
        return softened(logits, wanted, temperature)

    def outputs(self, network: AlbertForTask, batch: Batch) -> list[Output]:
        """Return the logits of each question's choices, shape (num_choices,)."""
        return list(self.logits(network, batch).float().cpu().numpy())

    def answers(
        self, examples: Sequence[ChoiceExample], _: Sequence[Feature], outputs: Sequence[Output], /
    ) -> list[Scores]:
        """Turn logits into a probability for each choice of the question."""
        return [
            Scores(tuple(map(float, softmax(logits[: len(example.choices)]))))
            for example, logits in zip(examples, outputs, strict=True)
        ]

    def measures(self, examples: Sequence[ChoiceExample], answers: Sequence[Scores], /) -> dict[str, float]:
        """Return the share of right answers, overall and, if there are several groups, by group.

        Raises:
            LitebertError: LB-430, there are no examples.
        """
        require_some(len(examples))
        is_right: dict[str | None, list[bool]] = {}
        for example, answer in zip(examples, answers, strict=True):
            is_right.setdefault(example.group, []).append(answer.best == example.label)
        groups = sorted(group for group in is_right if group is not None)
        total = sum(map(sum, is_right.values()))
        measured = {"accuracy": total / len(examples)}
        if len(is_right) > 1:
            measured |= {f"accuracy_{group}": float(np.mean(is_right[group])) for group in groups}
        return measured

    def constant(self, training: Sequence[ChoiceExample], examples: Sequence[ChoiceExample], /) -> list[Scores]:
        """Return how often the right choice is at each position in training."""
        places = [example.label for example in training if example.label is not None]
        shares = np.bincount(places, minlength=self.num_choices) / max(len(places), 1)
        return [Scores(tuple(shares[: len(example.choices)].tolist())) for example in examples]

    def item(self, example: ChoiceExample, /) -> CheckItem:
        """Return what a data check examines."""
        texts, label = (example.context, example.question), example.label
        if label is None:
            return CheckItem(texts, "".join(texts), example.choices)
        labels = (f"choice {label + 1}",)
        return CheckItem(texts, "".join(texts), example.choices, labels, example.choices[label])

    def rows(self, examples: Sequence[ChoiceExample], answers: Sequence[Scores], /) -> list[AnswerRow]:
        """Return each question with the chosen text and the right one."""
        return [_row(*pair) for pair in zip(examples, answers, strict=True)]

    def averaged(self, answers: Sequence[Sequence[Scores]], /) -> list[Scores]:
        """Return the mean probability of each choice."""
        return mean_scores(answers)

    def logits(self, network: AlbertForTask, batch: Batch) -> Tensor:
        """Return the logits (questions, num_choices); choices that a question lacks get NEVER."""
        logits = network(batch).view(-1, self.num_choices)  # (questions, choices)
        is_lacking = moved(torch.tensor([n == 1 for n in batch.lengths]), logits.device)
        masked: Tensor = logits.masked_fill(is_lacking.view_as(logits), NEVER)
        return masked

    def _framed(
        self, tokenizer: Tokenizer, context: list[int], question: list[int], max_length: int
    ) -> tuple[list[int], list[int]]:
        room = max_length - 3
        question = question[-min(self.max_qa_length, room) :]
        return frame_ids(tokenizer, context[: room - len(question)], question, max_length=max_length)

    def _require_room(self, example: ChoiceExample) -> None:
        if len(example.choices) > self.num_choices:
            raise LitebertError(
                "LB-828",
                f"question {example.id} has too many choices",
                received=str(len(example.choices)),
                expected=f"at most {self.num_choices}",
                next=f"MultipleChoice(num_choices={len(example.choices)})",
            )


def question_texts(example: ChoiceExample) -> list[str]:
    """Return the question with each choice: in its blanks, or after it if it has none.

    >>> question_texts(ChoiceExample("1", "", "It is _ . Yes, _ .", ("red", "blue")))
    ['It is red . Yes, red .', 'It is blue . Yes, blue .']
    >>> question_texts(ChoiceExample("2", "", "Which colour?", ("red",)))
    ['Which colour? red']
    """
    parts = _BLANK.split(example.question)
    choices = [" ".join(choice.split()) for choice in example.choices]
    if len(parts) == 1:
        return [f"{example.question} {choice}" for choice in choices]
    return [choice.join(parts) for choice in choices]


def _row(example: ChoiceExample, answer: Scores) -> AnswerRow:
    return AnswerRow(
        id=example.id,
        text=example.question,
        expected=None if example.label is None else example.choices[example.label],
        answer=example.choices[answer.best],
        confidence=max(answer.values),
        score=None if example.label is None else float(answer.best == example.label),
    )


def _encoded_once(tokenizer: Tokenizer, texts: Sequence[str], max_length: int) -> dict[str, list[int]]:
    """Encode the beginning of each distinct text; questions on one passage share it."""
    distinct = list(dict.fromkeys(texts))
    read = [tokenizer.beginning(text, max_length) for text in distinct]
    return dict(zip(distinct, tokenizer.encode_ids(read), strict=True))
