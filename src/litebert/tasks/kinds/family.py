"""The protocol of a kind of fine-tuned task: features, loss, answers, measures; and framing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from litebert.config import HeadConfig
from litebert.nn import AlbertForTask, Batch
from litebert.tokenizer import Tokenizer

Example = TypeVar("Example")
ExampleIn = TypeVar("ExampleIn", contravariant=True)
Answer = TypeVar("Answer")
Output: TypeAlias = NDArray[np.float32]
NEVER = -1e30
"""The logit of what may not be chosen (official squad_utils.py L1246)."""


@dataclass(frozen=True)
class Feature:
    """One unit of training: a framed sequence, or the sequences of one question's choices.

    `target` is a flat array whose meaning the family defines, or None without a label; `example` is
    the index of the example that it comes from. A step's loss is the weighted mean over its
    features. `teacher` has the logits of a teacher and, if it is learnt too, its pooled state.
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
class AnswerRow:
    """One answer and what was expected, as text: for files of answers and the report's errors.

    `confidence` is the probability of the answer, None if the kind of task has none; `score` is 1
    for a right answer, 0 for a wrong one, or between (F1 of a span, closeness of a number).
    """

    id: str
    text: str
    expected: str | None
    answer: str
    confidence: float | None
    score: float | None


@dataclass(frozen=True, slots=True)
class CheckItem:
    """An example as a data check sees it: its texts and labels.

    The texts are read together with one of `choices`. `main` may not be empty; `labels` are counted
    for the balance of classes; equal texts must have equal `answer`s, None if there is none.
    """

    texts: tuple[str, ...]
    main: str
    choices: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()
    answer: str | None = None


class Family(Protocol[ExampleIn, Answer]):
    """A kind of task, independent of where its examples come from.

    Implementations are frozen dataclasses whose fields are the settings of the kind, such as the
    longest question. A new data set needs no new family, a new kind of task needs one.
    """

    @property
    def head(self) -> HeadConfig:
        """The head that this kind of task trains."""

    def features(
        self, examples: Sequence[ExampleIn], tokenizer: Tokenizer, *, max_length: int, training: bool
    ) -> list[Feature]:
        """Encode examples, in order; with `training`, features have targets."""

    def losses(self, network: AlbertForTask, batch: Batch, targets: Tensor) -> Tensor:
        """Return each feature's loss times its weight; `targets` lie end to end."""

    def outputs(self, network: AlbertForTask, batch: Batch) -> list[Output]:
        """Return for each feature the numpy array that `answers` needs."""

    def answers(
        self, examples: Sequence[ExampleIn], features: Sequence[Feature], outputs: Sequence[Output], /
    ) -> list[Answer]:
        """Return one answer per example, from the outputs of its features."""

    def measures(self, examples: Sequence[ExampleIn], answers: Sequence[Answer], /) -> dict[str, float]:
        """Compare answers with the labels in the examples, by the field's measures."""

    def constant(self, training: Sequence[ExampleIn], examples: Sequence[ExampleIn], /) -> list[Answer]:
        """Return the baseline: for all examples, the answer that is commonest in training."""

    def item(self, example: ExampleIn, /) -> CheckItem:
        """Return what a data check examines."""

    def rows(self, examples: Sequence[ExampleIn], answers: Sequence[Answer], /) -> list[AnswerRow]:
        """Return answers and labels as text, one row per example."""

    def averaged(self, answers: Sequence[Sequence[Answer]], /) -> list[Answer]:
        """Return the answers of an ensemble from those of its members, example by example."""


def joined(features: Sequence[Feature]) -> Batch:
    """Lay the sequences of features end to end."""
    return Batch.from_lists(
        [ids for feature in features for ids in feature.ids],
        [segments for feature in features for segments in feature.segments],
    )


def targets_of(features: Sequence[Feature]) -> Tensor:
    """Lay the targets of labelled features end to end."""
    parts = [feature.target for feature in features if feature.target is not None]
    assert len(parts) == len(features), "features for training have targets"
    return torch.from_numpy(np.concatenate(parts))


def frame_ids(
    tokenizer: Tokenizer, first: Sequence[int], second: Sequence[int] | None, *, max_length: int
) -> tuple[list[int], list[int]]:
    """Return ids and segments of [CLS] first [SEP] (second [SEP]), cut to `max_length`.

    To fit, the longer text loses tokens at its end, the second one if both are equally long
    (official classifier_utils.py L556).
    """
    a, b = list(first), list(second or [])
    room = max_length - (3 if second is not None else 2)
    while len(a) + len(b) > room:
        (a if len(a) > len(b) else b).pop()
    ids, segments = [tokenizer.cls_id, *a, tokenizer.sep_id], [0] * (len(a) + 2)
    if second is None:
        return ids, segments
    return [*ids, *b, tokenizer.sep_id], segments + [1] * (len(b) + 1)
