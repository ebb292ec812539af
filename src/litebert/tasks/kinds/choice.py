"""Multiple choice: which of several choices answers a question on a text (official race_utils.py)."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from litebert.config import HeadConfig
from litebert.metrics import require_some
from litebert.nn import AlbertForTask, Batch
from litebert.nn.batch import moved
from litebert.runs import AnswerRow
from litebert.tasks.kinds.family import NEVER, Family, Feature, Output, frame_ids, softmax
from litebert.tasks.kinds.text import Scores, mean_scores
from litebert.tokenizer import Tokenizer

HEAD = HeadConfig(kind="multiple-choice")
"""One logit for each choice."""

_BLANK = re.compile("[_\uff3f]")  # official preprocessing turns a full-width underscore into _, too


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
class MultipleChoice(Family[ChoiceExample, Scores]):
    """Choose among texts.

    Each question has `num_choices` sequences. A question with fewer choices is filled up with sequences of [CLS] alone,
    which no real choice has and which are never chosen.
    """

    head: HeadConfig = HEAD
    max_qa_length: int = 128
    num_choices: int = 4
    baseline: ClassVar[str] = "the commonest place"

    def features(
        self, examples: Sequence[ChoiceExample], tokenizer: Tokenizer, *, max_length: int, training: bool
    ) -> list[Feature]:
        """Frame [CLS] context [SEP] question and choice [SEP] for each choice.

        Question and choice keep their last `max_qa_length` pieces; the context loses its end.
        """
        distinct = list(dict.fromkeys(example.context for example in examples))  # questions on one passage share it
        read = [tokenizer.beginning(text, max_length) for text in distinct]
        contexts = dict(zip(distinct, tokenizer.encode_ids(read), strict=True))
        questions = iter(tokenizer.encode_ids([text for example in examples for text in question_texts(example)]))
        room = max_length - 3
        features = []
        for number, example in enumerate(examples):
            if len(example.choices) > self.num_choices:
                raise ValueError(f"{len(example.choices)} choices, more than num_choices={self.num_choices}")
            framed = []
            for _ in example.choices:
                question = next(questions)[-min(self.max_qa_length, room) :]
                context = contexts[example.context][: room - len(question)]
                framed.append(frame_ids(tokenizer, context, question, max_length=max_length))
            framed += [([tokenizer.cls_id], [0])] * (self.num_choices - len(framed))
            ids, segments = zip(*framed, strict=True)
            target = np.array([example.label], dtype=np.int64) if training else None
            features.append(Feature(ids, segments, target, number))
        return features

    def logits(self, network: AlbertForTask, batch: Batch) -> Tensor:
        """Return the logits (questions, num_choices); choices that a question lacks get NEVER."""
        logits = network(batch).view(-1, self.num_choices)
        is_lacking = moved(torch.tensor([length == 1 for length in batch.lengths]), logits.device)
        masked: Tensor = logits.masked_fill(is_lacking.view_as(logits), NEVER)
        return masked

    def losses_of(self, logits: Tensor, targets: Tensor) -> Tensor:
        return F.cross_entropy(logits, targets, reduction="none")

    def answers(
        self, examples: Sequence[ChoiceExample], _: Sequence[Feature], outputs: Sequence[Output], /
    ) -> list[Scores]:
        pairs = zip(examples, outputs, strict=True)
        return [Scores(tuple(map(float, softmax(logits[: len(example.choices)])))) for example, logits in pairs]

    def measures(self, examples: Sequence[ChoiceExample], answers: Sequence[Scores], /) -> dict[str, float]:
        """Return the share of right answers, overall and, if there are several groups, by group."""
        require_some(len(examples))
        is_right: dict[str | None, list[bool]] = {}
        for example, answer in zip(examples, answers, strict=True):
            is_right.setdefault(example.group, []).append(answer.best == example.label)
        measured = {"accuracy": sum(map(sum, is_right.values())) / len(examples)}
        if len(is_right) > 1:
            groups = sorted(group for group in is_right if group is not None)
            measured |= {f"accuracy_{group}": float(np.mean(is_right[group])) for group in groups}
        return measured

    def averaged(self, answers: Sequence[Sequence[Scores]], /) -> list[Scores]:
        return mean_scores(answers)

    def constant(self, training: Sequence[ChoiceExample], examples: Sequence[ChoiceExample], /) -> list[Scores]:
        """Return how often the right choice is at each position in training."""
        places = [example.label for example in training if example.label is not None]
        shares = np.bincount(places, minlength=self.num_choices) / max(len(places), 1)
        return [Scores(tuple(shares[: len(example.choices)].tolist())) for example in examples]

    def texts(self, example: ChoiceExample, /) -> tuple[str, ...]:
        return (f"{example.context} {example.question}", *example.choices)

    def expected(self, example: ChoiceExample, /) -> str | None:
        return None if example.label is None else example.choices[example.label]

    def rows(self, examples: Sequence[ChoiceExample], answers: Sequence[Scores], /) -> list[AnswerRow]:
        """Return each question with the chosen text and the right one; equal texts may be different choices."""
        rows = []
        for example, answer in zip(examples, answers, strict=True):
            expected, chosen = self.expected(example), example.choices[answer.best]
            score = None if example.label is None else float(answer.best == example.label)
            rows.append(AnswerRow(example.id, example.question, expected, chosen, max(answer.values), score))
        return rows

    def labels(self, example: ChoiceExample, /) -> tuple[str, ...]:
        return () if example.label is None else (f"choice {example.label + 1}",)

    def numbers(self, _: AnswerRow, answer: Scores, /) -> Mapping[str, float | None]:
        return {f"choice {place}": value for place, value in enumerate(answer.values, 1)}


def question_texts(example: ChoiceExample) -> list[str]:
    """Return the question with each choice: in its blanks, or after it if it has none."""
    parts = _BLANK.split(example.question)
    choices = [" ".join(choice.split()) for choice in example.choices]
    if len(parts) == 1:
        return [f"{example.question} {choice}" for choice in choices]
    return [choice.join(parts) for choice in choices]
