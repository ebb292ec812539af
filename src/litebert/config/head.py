"""What stands on the encoder: the kind of a task head and the names of its labels."""

from __future__ import annotations

from typing import Literal, Self, get_args

from pydantic import Field, model_validator

from litebert.config.schema import Section

HeadKind = Literal[
    "sequence-classification",
    "token-classification",
    "question-answering",
    "conditional-question-answering",
    "multiple-choice",
]
Problem = Literal["single_label_classification", "multi_label_classification", "regression"]
HEAD_KINDS: tuple[HeadKind, ...] = get_args(HeadKind)
_WITH_LABELS = ("sequence-classification", "token-classification")
_WITH_POOLER = ("sequence-classification", "multiple-choice")


class HeadConfig(Section):
    """Describe a task head in Hugging Face's words.

    >>> HeadConfig(kind="sequence-classification", labels=("negative", "positive")).num_outputs
    2
    """

    kind: HeadKind = Field(description="what is predicted, and from what")
    labels: tuple[str, ...] = Field((), description="names of the labels, by output number")
    problem_type: Problem = Field(
        "single_label_classification", description="how a classifier's outputs are read"
    )

    @property
    def num_outputs(self) -> int:
        """How many logits a token or a sequence gets from the linear layer."""
        if self.kind in _WITH_LABELS:
            return len(self.labels)
        return 2 if self.kind == "question-answering" else 1

    @property
    def is_pooled(self) -> bool:
        """Whether the head reads the pooled [CLS] instead of every token."""
        return self.kind in _WITH_POOLER

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.kind in _WITH_LABELS and not self.labels:
            raise ValueError(f"a {self.kind} head needs the names of its labels")
        if self.kind not in _WITH_LABELS and self.labels:
            raise ValueError(f"a {self.kind} head has no labels")
        if len(set(self.labels)) != len(self.labels):
            raise ValueError("two labels have the same name")
        if self.problem_type != "single_label_classification" and (
            self.kind != "sequence-classification"
        ):
            raise ValueError(f"a {self.kind} head has no problem_type {self.problem_type}")
        return self


def numbered_labels(number: int) -> tuple[str, ...]:
    """Return the names of labels that nobody named, as transformers has them.

    >>> numbered_labels(2)
    ('LABEL_0', 'LABEL_1')
    """
    return tuple(f"LABEL_{index}" for index in range(number))
