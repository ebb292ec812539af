"""The base of every kind of task: examples become features, the network computes
outputs, outputs become answers.

A kind of task is a subclass of `Family` or, if the network returns one row of logits
per example, of `Scoring`; the registry `TASK_KINDS` has them by the name that users
give (`--problem`). Everything that is known of a kind is in its class: its heads, how
users' own rows become examples, its loss, answers, measures and baseline, and how other
programs turn its logits into answers. Framing texts, listing answers and the vote of an
ensemble are shared here; a new kind implements only what differs.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, ClassVar, Generic, Literal, TypeAlias, TypeVar, get_type_hints

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from litebert.config import HeadConfig, TaskConfig
from litebert.nn import AlbertForTask, Batch
from litebert.plugins import TASK_KINDS, checked_settings
from litebert.runs import AnswerRow
from litebert.tokenizer import Tokenizer

Example = TypeVar("Example")
Answer = TypeVar("Answer")
Output: TypeAlias = NDArray[np.floating]
Activation: TypeAlias = Literal["softmax", "sigmoid", "none"]
Framed: TypeAlias = tuple[list[int], list[int]]
"""The ids and the segments of a sequence, with [CLS] and [SEP]."""
NEVER = -1e30
"""The logit of what must not be chosen (official squad_utils.py L1246)."""


@dataclass(frozen=True)
class Feature:
    """One unit of training: a framed sequence, or the sequences of one question's
    choices.

    `target` is a flat array whose meaning the family defines, or None without a label;
    `example` is the index of the example that it comes from. A step's loss is the
    weighted mean over its features. `teacher` has a teacher's logits.
    """

    ids: tuple[list[int], ...]
    segments: tuple[list[int], ...]
    target: NDArray[np.generic] | None
    example: int
    weight: float = 1.0
    teacher: Output | None = None

    @property
    def num_tokens(self) -> int:
        """Count the tokens of all its sequences."""
        return sum(map(len, self.ids))


@dataclass(frozen=True)
class Family(ABC, Generic[Example, Answer]):
    """A kind of task, independent of where its examples come from; its fields are the
    settings of the kind, which `task.*` and `task.settings` set by name.
    """

    head: HeadConfig
    heads: ClassVar[tuple[str, ...]] = ()
    """The heads that it can be trained with, by name; the first is the usual one."""
    problem_type: ClassVar[str] = ""
    """Its name in config.json, if kinds of task share a head; "" if none do."""
    verb: ClassVar[str] = "embed"
    """The verb that answers with a model that was trained for it."""
    reading: ClassVar[Any] = None
    """The `RowReading` of users' own files; None if it reads no such files."""
    activation: ClassVar[Activation] = "softmax"
    """What other programs apply to the logits: ONNX files and web pages name it."""
    refusal: ClassVar[str] = "only litebert can turn its logits into answers"
    """Why exports are refused; "" if other programs can turn the logits into answers,
    by the `activation` and the `logits` of the head.
    """
    has_several_sequences: ClassVar[bool] = False
    """Whether the logits of several sequences, such as choices, make one answer."""
    baseline: ClassVar[str] = "the most common label"
    """What `constant` always answers, in words."""
    key_measure: ClassVar[str] = "accuracy"
    """The measure by which evaluations are compared."""
    starts_trained: ClassVar[bool] = False
    """Whether the start model answers before any training: its vectors do."""

    @classmethod
    def checked_settings(
        cls, values: Mapping[str, Any], *, next: str | None = None
    ) -> dict[str, Any]:
        """Return the settings of the kind, given `task.settings`; those that every kind
        may have are in `task`. `next` is the advice if they do not fit.
        """
        hints = get_type_hints(cls, include_extras=True)
        types = dict[str, Any]()
        for setting in fields(cls):
            if setting.name not in ("head", *TaskConfig.model_fields):
                types[setting.name] = hints[setting.name]
        return checked_settings(
            values,
            types,
            table="task.settings",
            owner=f"the kind of task {TASK_KINDS.name_of(cls)}",
            next=next,
        )

    @classmethod
    def find_problem(cls) -> str:
        """Say why the class cannot be added to the kinds of task; "" if it can: heads
        and models name their kind by its `problem_type`.
        """
        for name, other in TASK_KINDS.items():
            is_same = other.__module__ == cls.__module__
            has_same_type = other.problem_type == cls.problem_type
            if not is_same and has_same_type and {*other.heads} & {*cls.heads}:
                return f"it needs a problem_type of its own, not that of {name}"
        return ""

    @classmethod
    def has_linear_fit(cls) -> bool:
        """Whether a new head on vectors starts from a regression."""
        return False

    @abstractmethod
    def texts(self, example: Example, /) -> tuple[str, ...]:
        """Return the texts that are read; an example whose first text is empty teaches
        nothing.
        """

    # ---- learning ----------------------------------------------------------------

    @abstractmethod
    def features(
        self,
        examples: Sequence[Example],
        tokenizer: Tokenizer,
        *,
        max_length: int,
        training: bool,
    ) -> list[Feature]:
        """Frame the examples, in order; with `training`, features have targets."""

    @abstractmethod
    def losses(self, network: AlbertForTask, batch: Batch, targets: Tensor) -> Tensor:
        """Return the loss of each feature times its weight; `targets` lie end to
        end.
        """

    # ---- answering ---------------------------------------------------------------

    @abstractmethod
    def outputs(self, network: AlbertForTask, batch: Batch) -> list[Output]:
        """Return for each feature what `answer` needs."""

    @abstractmethod
    def answer(
        self,
        example: Example,
        features: Sequence[Feature],
        outputs: Sequence[Output],
        /,
    ) -> Answer:
        """Return the answer to an example, from its features and their outputs."""

    def answers(
        self,
        examples: Sequence[Example],
        features: Sequence[Feature],
        outputs: Sequence[Output],
    ) -> list[Answer]:
        """Return one answer per example."""
        features_of = [list[Feature]() for _ in examples]
        outputs_of = [list[Output]() for _ in examples]
        for feature, output in zip(features, outputs, strict=True):
            features_of[feature.example].append(feature)
            outputs_of[feature.example].append(output)
        answers = list[Answer]()
        for number, example in enumerate(examples):
            parts = (features_of[number], outputs_of[number])
            answers.append(self.answer(example, *parts))
        return answers

    @abstractmethod
    def measures(
        self, examples: Sequence[Example], answers: Sequence[Answer], /
    ) -> dict[str, float]:
        """Compare answers with the labels in the examples, by the field's measures."""

    def averaged(self, answers: Sequence[Answer], /) -> Answer:
        """Return the answer of an ensemble, given those of its members: by default, the
        most frequent one.
        """
        return max(answers, key=answers.count)

    @abstractmethod
    def constant(
        self, training: Sequence[Example], examples: Sequence[Example], /
    ) -> list[Answer]:
        """Return the baseline's answers to `examples`: the most common answer in
        training, for each of them.
        """

    # ---- in words ----------------------------------------------------------------

    def shown(self, example: Example, /) -> str:
        """Return the text that is shown next to an answer."""
        return " ¦ ".join(self.texts(example))

    def expected(self, _: Example, /) -> str | None:
        """Return the label of an example as text; None without one."""
        return None

    def labels(self, _: Example, /) -> tuple[str, ...]:
        """Return the labels of an example, which a data check counts."""
        return ()

    def in_words(
        self, example: Example, answer: Answer, /
    ) -> tuple[str, float | None, float | None]:
        """Return an answer as text, in the form of `expected`; its probability, if it
        has one; and its score.

        The score is 1 for a right answer, 0 for a wrong one, or a number between; it is
        used if there is a label.
        """
        return str(answer), None, float(str(answer) == self.expected(example))

    def rows(
        self, examples: Sequence[Example], answers: Sequence[Answer], /
    ) -> list[AnswerRow]:
        """Return answers and labels as text, one row per example, which has an `id`; a
        blank text has no answer.
        """
        rows = []
        for example, answer in zip(examples, answers, strict=True):
            expected = self.expected(example)
            words, confidence, score = self.in_words(example, answer)
            if not "".join(self.texts(example)).strip():
                words = ""
                confidence = None
            if expected is None:
                score = None
            key = str(getattr(example, "id", ""))
            shown = self.shown(example)
            rows.append(AnswerRow(key, shown, expected, words, confidence, score))
        return rows

    def numbers(self, row: AnswerRow, _: Answer, /) -> Mapping[str, float | None]:
        """Return the numbers that follow an answer in a file of answers, by column;
        `row` is the answer as text.
        """
        return {"confidence": row.confidence}


class Scoring(Family[Example, Answer]):
    """A kind of task with one row of logits per example: a label, a score, a choice. It
    can learn from a teacher.
    """

    @abstractmethod
    def target(self, example: Example, /) -> NDArray[np.generic]:
        """Return the target of a labeled example, as a flat array."""

    def weight(self, _: Example, /) -> float:
        """Return how much an example counts in the loss of its step."""
        return 1.0

    def features(
        self,
        examples: Sequence[Example],
        tokenizer: Tokenizer,
        *,
        max_length: int,
        training: bool,
    ) -> list[Feature]:
        texts = [(*self.texts(example), "")[:2] for example in examples]
        framed = self.framed(texts, tokenizer, max_length)
        features = []
        for number, example in enumerate(examples):
            ids, segments = zip(*framed[number], strict=True)
            feature = Feature(ids, segments, None, number)
            if training:
                target = self.target(example)
                feature = replace(feature, target=target, weight=self.weight(example))
            features.append(feature)
        return features

    def framed(
        self, pairs: Sequence[tuple[str, ...]], tokenizer: Tokenizer, max_length: int
    ) -> list[tuple[Framed, ...]]:
        """Return the sequences that read each pair of texts: by default one."""
        return frame_together(pairs, tokenizer, max_length)

    def logits(self, network: AlbertForTask, batch: Batch) -> Tensor:
        """Return the row of logits of each feature."""
        logits: Tensor = network(batch)
        return logits

    @abstractmethod
    def losses_of(self, logits: Tensor, targets: Tensor) -> Tensor:
        """Return the loss of each row of logits times its weight."""

    def losses(self, network: AlbertForTask, batch: Batch, targets: Tensor) -> Tensor:
        return self.losses_of(self.logits(network, batch), targets)

    def imitation(
        self, logits: Tensor, teacher_logits: Tensor, temperature: float
    ) -> Tensor:
        """Return each row's T^2 KL(teacher || student), both softened by T (Hinton et
        al. 2015, arXiv 1503.02531).
        """
        student = (logits / temperature).log_softmax(-1)
        teacher = (teacher_logits / temperature).log_softmax(-1)
        return temperature**2 * (teacher.exp() * (teacher - student)).sum(-1)

    def values(self, logits: Tensor) -> Tensor:
        """Convert rows of logits to what `answer` takes: probabilities, scores, or the
        logits themselves.
        """
        return logits

    def outputs(self, network: AlbertForTask, batch: Batch) -> list[Output]:
        # Apple's GPUs have no float64
        logits = self.logits(network, batch).float().cpu()
        return list(self.values(logits.double()).numpy())


@dataclass(frozen=True)
class PublishedScore:
    """A score that others report, in percent, and its source.

    `model` is the preset of this row, or a description if there is none; `row` is the
    row's own name in the table.
    """

    task: str
    measure: str
    percent: float
    model: str
    table: str
    row: str
    split: str = "dev"


@dataclass(frozen=True)
class Dataset(Generic[Example, Answer]):
    """A data set: the family that it belongs to, how its files are read, what is
    reported.

    `read` takes the data folder and a split: "train", one to evaluate on (MNLI has two)
    or one to answer without labels. `submission` turns answers into the files that a
    leaderboard or the official script expects, by file name; `notes` list what was
    guessed. `recipe` is a TOML file with the settings that suit it, if it has no
    packaged recipe; `published` are scores of others. For a user's own files, `train`
    is the training file, and `settled`, which run.json records, is what is needed to
    read new files without it.
    """

    name: str
    family: Family[Example, Answer]
    read: Callable[[Path, str], list[Example]]
    key_measure: str
    submission: Callable[[str, Sequence[Example], Sequence[Answer]], Mapping[str, str]]
    dev_splits: tuple[str, ...] = ("dev",)
    test_splits: tuple[str, ...] = ("test",)
    notes: tuple[str, ...] = ()
    recipe: Path | None = None
    published: tuple["PublishedScore", ...] = ()
    train: Path | None = None
    settled: dict[str, Any] = field(default_factory=dict)


def frame_together(
    pairs: Sequence[tuple[str, ...]], tokenizer: Tokenizer, max_length: int
) -> list[tuple[Framed, ...]]:
    """Frame [CLS] A [SEP] (B [SEP]) for each pair; an empty B counts as none
    (classifier_utils.py L556).
    """
    framed = list[tuple[Framed, ...]]()
    for first, second in _encode_pairs(pairs, tokenizer, max_length):
        sequence = frame_ids(tokenizer, first, second or None, max_length=max_length)
        framed.append((sequence,))
    return framed


def frame_apart(
    pairs: Sequence[tuple[str, ...]], tokenizer: Tokenizer, max_length: int
) -> list[tuple[Framed, ...]]:
    """Frame both texts of each pair alone: [CLS] A [SEP], [CLS] B [SEP]."""
    framed = list[tuple[Framed, ...]]()
    for pair in _encode_pairs(pairs, tokenizer, max_length):
        alone = [frame_ids(tokenizer, ids, None, max_length=max_length) for ids in pair]
        framed.append(tuple(alone))
    return framed


def _encode_pairs(
    pairs: Sequence[tuple[str, ...]], tokenizer: Tokenizer, max_length: int
) -> Iterator[tuple[list[int], list[int]]]:
    """Return the ids of the beginnings of both texts of each pair, pair by pair."""
    firsts = encode_beginnings([pair[0] for pair in pairs], tokenizer, max_length)
    seconds = encode_beginnings([pair[1] for pair in pairs], tokenizer, max_length)
    return zip(firsts, seconds, strict=True)


def windows(
    first: Sequence[int], second: Sequence[int], *, max_length: int
) -> Iterator[tuple[Sequence[int], Sequence[int]]]:
    """Yield the parts of a text, or of a pair of texts, that are read one by one.

    What fits is one part. Otherwise the longer text is read in windows of the same
    length that overlap by a quarter or more, each together with the other text, of
    which at most half a sequence is read.
    """
    num_special = 3 if second else 2  # [CLS] and a [SEP] after each text
    room = max_length - num_special
    if len(first) + len(second) <= room:
        yield first, second
        return
    if len(second) > len(first):
        for b, a in windows(second, first, max_length=max_length):
            yield a, b
        return
    other = second[: room // 2]
    size = room - len(other)
    last_start = len(first) - size
    # evenly spaced, so that neighbors have a quarter in common, or more
    number = math.ceil(last_start / (0.75 * size)) + 1
    starts = np.linspace(0, last_start, number).round().astype(int)
    for start in starts:
        yield first[start : start + size], other


def encode_beginnings(
    texts: Sequence[str], tokenizer: Tokenizer, max_length: int
) -> list[list[int]]:
    """Return the pieces of texts, as many as may be read of each, and a few more."""
    return tokenizer.encode_ids(
        [tokenizer.beginning(text, max_length) for text in texts]
    )


def frame_ids(
    tokenizer: Tokenizer,
    first: Sequence[int],
    second: Sequence[int] | None,
    *,
    max_length: int,
) -> Framed:
    """Return ids and segments of [CLS] first [SEP] (second [SEP]), cut to `max_length`.

    To fit, the longer text loses tokens at its end, the second one if both are equally
    long (classifier_utils.py L556).
    """
    a = list(first)
    b = list(second or [])
    num_special = 2 if second is None else 3
    while len(a) + len(b) + num_special > max_length:
        longer = a if len(a) > len(b) else b
        longer.pop()
    ids = [tokenizer.cls_id, *a, tokenizer.sep_id]
    segments = [0] * (len(a) + 2)
    if second is None:
        return ids, segments
    ids += [*b, tokenizer.sep_id]
    segments += [1] * (len(b) + 1)
    return ids, segments


def collate(features: Sequence[Feature]) -> Batch:
    """Lay the sequences of features end to end."""
    ids = list[Sequence[int]]()
    segments = list[Sequence[int]]()
    for feature in features:
        ids += feature.ids
        segments += feature.segments
    return Batch.from_lists(ids, segments)


def targets_of(features: Sequence[Feature]) -> Tensor:
    """Lay the targets of labeled features end to end."""
    parts = [feature.target for feature in features if feature.target is not None]
    assert len(parts) == len(features), "features for training have targets"
    return torch.from_numpy(np.concatenate(parts))
