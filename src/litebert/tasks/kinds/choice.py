"""Questions with choices, one of which is right (official race_utils.py)."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from statistics import fmean
from string import ascii_lowercase, ascii_uppercase
from typing import ClassVar, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from litebert import metrics
from litebert.config import HeadConfig
from litebert.device import device_at
from litebert.errors import LitebertError
from litebert.nn import AlbertForTask, Batch, LinearHead, TaskHead
from litebert.plugins import TASK_HEADS, TASK_KINDS
from litebert.reading.tables import Row
from litebert.runs import AnswerRow
from litebert.tasks.kinds.family import (
    NEVER,
    Feature,
    Framed,
    Output,
    Scoring,
    frame_ids,
)
from litebert.tasks.kinds.text import Scores
from litebert.tasks.kinds.text_heads import CLASSIFIER
from litebert.tasks.tables.cells import label_of, list_of
from litebert.tasks.tables.columns import CHOSEN, Columns, Role
from litebert.tasks.tables.guess import ColumnGuess
from litebert.tasks.tables.rows import RowReading, TrainingRows, sort_labels
from litebert.tokenizer import Tokenizer

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

    head: HeadConfig = field(default_factory=lambda: HeadConfig(kind="multiple-choice"))
    max_qa_length: int = 128
    num_choices: int = 4
    heads: ClassVar[tuple[str, ...]] = ("multiple-choice",)
    verb: ClassVar[str] = "choose"
    refusal: ClassVar[str] = ""
    has_several_sequences: ClassVar[bool] = True
    baseline: ClassVar[str] = "the most common place"

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
        contexts = _encode_contexts(examples, tokenizer, max_length)
        asked = list[str]()  # each question with each of its choices
        for example in examples:
            asked += question_texts(example)
        questions = iter(tokenizer.encode_ids(asked))
        room = max_length - 3  # beside [CLS] and two [SEP]
        longest = min(self.max_qa_length, room)
        features = list[Feature]()
        for number, example in enumerate(examples):
            num_lacking = self.num_choices - len(example.choices)
            assert num_lacking >= 0, "num_choices is that of the longest question"
            framed = list[Framed]()
            for _ in example.choices:
                question = next(questions)[-longest:]
                context = contexts[example.context][: room - len(question)]
                framed.append(
                    frame_ids(tokenizer, context, question, max_length=max_length)
                )
            # in place of choices that the question lacks: [CLS] alone
            framed += [([tokenizer.cls_id], [0])] * num_lacking
            ids, segments = zip(*framed, strict=True)
            target = self.target(example) if training else None
            features.append(Feature(ids, segments, target, number))
        return features

    def logits(self, network: AlbertForTask, batch: Batch) -> Tensor:
        """Return the logits (questions, num_choices); choices that a question lacks get
        NEVER.
        """
        logits = network(batch).view(-1, self.num_choices)
        lengths = torch.tensor(batch.lengths)
        is_lacking = device_at(logits.device).copy(lengths == 1)
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
        are_right = list[bool]()
        right_by_group = dict[str, list[bool]]()
        for example, answer in zip(examples, answers, strict=True):
            is_right = answer.best == example.label
            are_right.append(is_right)
            right_by_group.setdefault(example.group or "", []).append(is_right)
        measured = {"accuracy": fmean(are_right)}
        if len(right_by_group) > 1:
            for group, right_of_group in sorted(right_by_group.items()):
                if group:
                    measured[f"accuracy_{group}"] = fmean(right_of_group)
        return measured

    def averaged(self, answers: Sequence[Scores], /) -> Scores:
        return Scores.mean(answers)

    def constant(
        self, training: Sequence[ChoiceExample], examples: Sequence[ChoiceExample], /
    ) -> list[Scores]:
        """Return how often the right choice is at each position in training."""
        places = [example.label for example in training if example.label is not None]
        counts = np.bincount(places, minlength=self.num_choices)
        shares = (counts / max(len(places), 1)).tolist()
        return [Scores(tuple(shares[: len(example.choices)])) for example in examples]

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
        numbered = enumerate(answer.values, 1)
        return {f"choice {place}": value for place, value in numbered}


def _encode_contexts(
    examples: Sequence[ChoiceExample], tokenizer: Tokenizer, max_length: int
) -> dict[str, list[int]]:
    """Return the ids of each context, which the questions on one passage share."""
    contexts = list(dict.fromkeys(example.context for example in examples))
    beginnings = [tokenizer.beginning(context, max_length) for context in contexts]
    return dict(zip(contexts, tokenizer.encode_ids(beginnings), strict=True))


def question_texts(example: ChoiceExample) -> list[str]:
    """Return the question with each choice: in its blanks, or after it if it has
    none.
    """
    parts = _BLANK.split(example.question)
    choices = [" ".join(choice.split()) for choice in example.choices]
    if len(parts) == 1:
        return [f"{example.question} {choice}" for choice in choices]
    return [choice.join(parts) for choice in choices]


# ---- a user's own questions ----------------------------------------------------------


class ChoiceRows(RowReading[ChoiceExample, Scores]):
    """Questions with choices: in a list, in a column each, or in an object with their
    names.

    `labels` are the names of the choices in the label column, in order. A row may also
    name its choices itself, or its label may repeat the text of a choice.
    """

    what: ClassVar[str] = "choices"
    roles: ClassVar[tuple[Role, ...]] = (
        "question",
        "context",
        "choices",
        "label",
        "id",
    )

    @classmethod
    def are_like(cls, guess: ColumnGuess) -> bool:
        return bool(guess.choices())

    @classmethod
    def guess(cls, guess: ColumnGuess) -> None:
        choices = guess.choices()
        if choices:
            guess.assigned["choices"] = choices
        else:
            guess.require_one("choices", [])
        guess.find_usual(("question", "context"))
        guess.assigned["label"] = guess.usual("label", CHOSEN)
        guess.find_usual(("id",))
        if not guess.assigned["question"] and not guess.assigned["context"]:
            guess.require_one("question", guess.texts())

    @classmethod
    def settle(cls, training: TrainingRows) -> tuple[Self, str]:
        counted = _count_labels(training)
        most = counted.num_choices
        # the usual spellings of labels, the likeliest first
        from_zero = tuple(str(place) for place in range(most))
        from_one = tuple(str(place) for place in range(1, most + 1))
        capitals = tuple(ascii_uppercase[:most])
        letters = tuple(ascii_lowercase[:most])
        spellings = [from_zero, from_one, capitals, letters]
        if counted.counts_from_one:
            spellings = [from_one, from_zero, capitals, letters]

        # the spellings that most labels have; none if as many labels repeat the text of
        # a choice
        covered = [counted.number_of(spelling) for spelling in spellings]
        best = list[tuple[str, ...]]()
        for spelling, number in zip(spellings, covered, strict=True):
            if number == max(covered) > counted.num_texts:
                best.append(spelling)
        if len(best) > 1 and not counted.counts_from_one:
            raise LitebertError(
                "LB-893",
                f"{training.file}: the labels of the {most} choices may count from 0"
                " or from 1",
                received=", ".join(sort_labels(counted.labels)),
                expected=f"0 or {most} in some row, or letters, or texts",
                next="write letters: A, B, …",
            )
        labels = tuple(f"choice {place}" for place in from_one)
        if best:
            labels = best[0]
        note = f"up to {most} choices, called {', '.join(labels)}"
        return cls(training.columns, "multiple-choice", labels), note

    @cached_property
    def family(self) -> MultipleChoice:
        return MultipleChoice(num_choices=len(self.labels))

    def example(
        self, id: str, row: Row, place: str, *, is_labeled: bool
    ) -> ChoiceExample:
        texts, names = _choices(row, self.columns)
        if not 2 <= len(texts) <= len(self.labels):
            raise LitebertError(
                "LB-864",
                f"{place}: these are not choices",
                received=f"{len(texts)} in {', '.join(self.columns.all('choices'))}",
                expected="2 or more, and no more than in the training data",
                next="correct this row, or --column choices=NAME,NAME,…",
            )
        question = self.text(row, "question", place)
        context = self.text(row, "context", place)
        if not is_labeled:
            return ChoiceExample(id, context, question, texts)
        label = label_of(self.columns.cell(row, "label")) or ""
        usual = self.labels[: len(texts)]
        for spelling in (names, usual, texts):
            if label in spelling:
                number = spelling.index(label)
                return ChoiceExample(id, context, question, texts, number)
        raise LitebertError(
            "LB-865",
            f"{place}: column {self.columns.all('label')[0]} matches none of the"
            " choices",
            received=label or "nothing",
            expected=f"one of {', '.join(names or usual)}, or a choice's text",
            next="correct this row",
        )

    def group(self, example: ChoiceExample) -> tuple[str, str]:
        """Return the context, which several questions may share; without one, the
        question.
        """
        return example.context or example.question, ""


@dataclass(frozen=True)
class _Labels:
    """The labels of a training file, but for rows that name their choices."""

    num_choices: int  # in the row with the most
    labels: Counter[str]
    num_texts: int  # labels that repeat the text of a choice
    counts_from_one: bool  # whether a label is the number of the last choice

    def number_of(self, spelling: Sequence[str]) -> int:
        """Return how many labels are spelt so."""
        return sum(self.labels[label] for label in spelling)


def _count_labels(training: TrainingRows) -> _Labels:
    num_choices = 0
    labels = Counter[str]()
    num_texts = 0
    counts_from_one = False
    for row in training.rows():
        texts, names = _choices(row, training.columns)
        num_choices = max(num_choices, len(texts))
        label = label_of(training.columns.cell(row, "label"))
        if label is None or names:
            continue
        labels[label] += 1
        if label in texts:
            num_texts += 1
        if label == str(len(texts)):
            counts_from_one = True
    return _Labels(num_choices, labels, num_texts, counts_from_one)


def _choices(row: Row, columns: Columns) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the texts of the choices in a row, and their names if the row has them."""
    cell = columns.cell(row, "choices")
    names = list[object]()
    members = list_of(cell) or []
    if len(columns.all("choices")) > 1:
        members = [row.get(name) for name in columns.all("choices")]
    elif isinstance(cell, Mapping):
        members = list_of(cell.get("text")) or []
        names = list_of(cell.get("label")) or []
    # A label may repeat the text of a choice, so both are normalized in the same way.
    texts = [label_of(text) or "" for text in members]
    while texts and not texts[-1] and not names:
        texts.pop()
    return tuple(texts), tuple(label_of(name) or "" for name in names)


# ---- the record ----------------------------------------------------------------------

MultipleChoice.reading = ChoiceRows
TASK_HEADS.add(
    "multiple-choice",
    TaskHead(
        make=LinearHead,
        reads="pooled",
        num_outputs=1,
        purpose="chooses between answers",
        pipeline="multiple-choice",
        class_name="MultipleChoice",
        is_in_transformers=True,
        layers={"dense": "classifier"},
        variable=CLASSIFIER,
    ),
)
TASK_KINDS.add("multiple-choice", MultipleChoice)
