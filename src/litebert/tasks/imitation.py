"""Learn a task from a fine-tuned run, too: its logits, softened (Hinton et al. 2015)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from litebert.config import HeadConfig
from litebert.errors import LitebertError
from litebert.nn import AlbertForTask
from litebert.tasks.finetuning import outputs_of
from litebert.tasks.kinds.family import Family, Feature
from litebert.tasks.kinds.teaching import Teachable
from litebert.tokenizer import Tokenizer


def taught(
    family: Family[Any, Any],
    features: Sequence[Feature],
    examples: Sequence[Any],
    teacher: AlbertForTask,
    tokenizer: Tokenizer,
    *,
    max_length: int,
) -> list[Feature]:
    """Return the features with the logits of a teacher, which reads with its own vocabulary.

    Raises:
        LitebertError: LB-883, this kind of task has no teacher yet; LB-884, the teacher has another
            head or other labels.
    """
    if not isinstance(family, Teachable):
        raise LitebertError(
            "LB-883",
            f"{family.head.kind} cannot be learnt from a teacher",
            received="teacher.run",
            expected="a task that gives a text, a pair or a choice one row of logits",
            next="omit teacher.run",
        )
    if teacher.head_config != family.head:
        raise LitebertError(
            "LB-884",
            "the teacher was trained for another task",
            received=_described(teacher.head_config),
            expected=_described(family.head),
            next="give a run of the same task, with the same labels",
        )
    read = family.features(examples, tokenizer, max_length=max_length, training=False)
    logits = outputs_of(teacher, family, read)
    return [
        replace(feature, teacher=np.asarray(logits[feature.example], dtype=np.float32))
        for feature in features
    ]


def _described(head: HeadConfig) -> str:
    return f"{head.kind}, {head.problem_type}: {', '.join(head.labels) or 'no labels'}"
