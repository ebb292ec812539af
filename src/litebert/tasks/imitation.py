"""Learn a task from a fine-tuned run as well: its softened logits (arXiv 1503.02531) and what its head reads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from litebert.config import TeacherConfig
from litebert.errors import LitebertError
from litebert.nn import AlbertForTask, Batch
from litebert.tasks.base import device_of
from litebert.tasks.finetuning import by_length, outputs_of
from litebert.tasks.kinds.family import Family, Feature, Output, joined
from litebert.tasks.kinds.text import VectorHead
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

    With `state_size`, the student's hidden size, the state that the teacher's head reads follows the logits.
    """
    theirs, ours = teacher.head_config, family.head
    if not family.learns_from_teacher:
        raise LitebertError(
            "LB-883",
            f"{ours.kind} cannot be learnt from a teacher",
            received="teacher.run",
            expected="a task that gives a text, a pair or a choice one row of logits",
            next="omit teacher.run",
        )
    if not theirs.answers_as(ours):
        described = [
            f"{head.kind}, {head.problem_type}: {', '.join(head.labels) or 'no labels'}" for head in (theirs, ours)
        ]
        raise LitebertError(
            "LB-884",
            "the teacher was trained for another task",
            received=described[0],
            expected=described[1],
            next="give a run of the same task, with the same labels",
        )
    size = teacher.config.hidden_size
    if state_size is not None and ((theirs.kind, size) != (ours.kind, state_size) or not ours.record.has_problem_type):
        raise LitebertError(
            "LB-889",
            "teacher.hidden compares the states that two heads of the same kind and width read",
            received=f"{theirs.kind} of {size} (teacher), {ours.kind} of {state_size}",
            expected="a text or a pair with labels or a score, the same head and hidden size",
            next="omit teacher.hidden, or choose model.pooling=cls for both",
        )
    read = family.features(examples, tokenizer, max_length=max_length, training=False)
    given = outputs_of(teacher, family, read)
    if state_size is not None:
        given = [np.concatenate(both) for both in zip(given, _states(teacher, read), strict=True)]
    return [replace(feature, teacher=np.asarray(given[feature.example], dtype=np.float32)) for feature in features]


def taught_losses(
    family: Family[Any, Any],
    config: TeacherConfig,
    network: AlbertForTask,
    batch: Batch,
    targets: Tensor,
    wanted: Tensor,
) -> Tensor:
    """Return the loss of each feature, a share of it against the teacher, from one pass through the network.

    `wanted` has the teacher's logits of each feature, followed by the state that its head reads if that is learnt, too:
    by squared error relative to its size, as in `litebert distil`.
    """
    state = None
    if config.hidden:
        state, head = read_by_head(network, batch), network.head
        logits = head.logits(state) if isinstance(head, VectorHead) else head(state)
    else:
        logits = family.logits(network, batch)
    theirs, their_state = wanted.view(len(logits), -1).tensor_split([logits.shape[-1]], dim=-1)
    imitated = family.imitation(logits, theirs, config.temperature)
    losses = (1 - config.weight) * family.losses_of(logits, targets) + config.weight * imitated
    if state is None:
        return losses
    error = (state - their_state).square().sum(-1) / their_state.square().sum(-1)
    return losses + config.hidden * error


def read_by_head(network: AlbertForTask, batch: Batch) -> Tensor:
    """Return what the head reads for a text or a pair: the pooled [CLS], or rows of vectors."""
    if isinstance(network.head, VectorHead):
        return network.head.rows(network.albert(batch).float(), batch)
    return network.albert.pool(network.albert(batch, batch.first_tokens))


@torch.inference_mode()
def _states(network: AlbertForTask, features: Sequence[Feature]) -> list[Output]:
    """Return what the head reads for each feature; `outputs_of` has packed the network."""
    states: dict[int, Output] = {}
    for numbers in by_length([feature.num_tokens for feature in features]):
        batch = joined([features[number] for number in numbers]).to(device_of(network))
        states.update(zip(numbers, read_by_head(network, batch).float().cpu().numpy(), strict=True))
    return [states[number] for number in range(len(features))]
