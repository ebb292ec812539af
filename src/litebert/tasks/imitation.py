"""Learn a task from a fine-tuned run as well: its softened logits (arXiv 1503.02531) and state."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from litebert.config import HeadConfig
from litebert.errors import LitebertError
from litebert.nn import AlbertForTask
from litebert.tasks.base import device_of
from litebert.tasks.finetuning import by_length, outputs_of
from litebert.tasks.kinds.family import Family, Feature, Output, joined
from litebert.tasks.kinds.teaching import Teachable, read_by_head
from litebert.tokenizer import Tokenizer


def taught(
    family: Family[Any, Any],
    features: Sequence[Feature],
    examples: Sequence[Any],
    teacher: AlbertForTask,
    tokenizer: Tokenizer,
    *,
    max_length: int,
    state_size: int | None = None,
) -> list[Feature]:
    """Return the features with the logits of a teacher, which reads with its own vocabulary.

    With `state_size`, the student's hidden size, the state that the teacher's head reads follows
    the logits.

    Raises:
        LitebertError: LB-883, this kind of task does not support teachers; LB-884, the teacher has
            another head or other labels; LB-889, its states cannot be compared with the student's.
    """
    if not isinstance(family, Teachable):
        raise LitebertError(
            "LB-883",
            f"{family.head.kind} cannot be learnt from a teacher",
            received="teacher.run",
            expected="a task that gives a text, a pair or a choice one row of logits",
            next="omit teacher.run",
        )
    if not teacher.head_config.answers_as(family.head):
        raise LitebertError(
            "LB-884",
            "the teacher was trained for another task",
            received=_described(teacher.head_config),
            expected=_described(family.head),
            next="give a run of the same task, with the same labels",
        )
    if state_size is not None:
        _require_comparable(teacher, family.head, state_size)
    read = family.features(examples, tokenizer, max_length=max_length, training=False)
    given: list[Output] = outputs_of(teacher, family, read)
    if state_size is not None:
        states = _states(teacher, read)
        given = [np.concatenate(both) for both in zip(given, states, strict=True)]
    return [replace(feature, teacher=np.asarray(given[feature.example], dtype=np.float32)) for feature in features]


def _require_comparable(teacher: AlbertForTask, head: HeadConfig, state_size: int) -> None:
    kind, size = teacher.head_config.kind, teacher.config.hidden_size
    if (kind, size) != (head.kind, state_size) or not head.record.has_problem_type:
        raise LitebertError(
            "LB-889",
            "teacher.hidden compares the states that two heads of the same kind and width read",
            received=f"{kind} of {size} (teacher), {head.kind} of {state_size}",
            expected="a text or a pair with labels or a score, the same head and hidden size",
            next="omit teacher.hidden, or choose model.pooling=cls for both",
        )


@torch.inference_mode()
def _states(network: AlbertForTask, features: Sequence[Feature]) -> list[Output]:
    """Return what the head reads for each feature; `outputs_of` has packed the network."""
    states: dict[int, Output] = {}
    for numbers in by_length([feature.num_tokens for feature in features]):
        batch = joined([features[number] for number in numbers]).to(device_of(network))
        rows = read_by_head(network, batch).float().cpu().numpy()
        states.update(zip(numbers, rows, strict=True))
    return [states[number] for number in range(len(features))]


def _described(head: HeadConfig) -> str:
    return f"{head.kind}, {head.problem_type}: {', '.join(head.labels) or 'no labels'}"
