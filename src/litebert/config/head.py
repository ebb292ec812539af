"""Heads of the encoder: one record per kind of head, and the settings of one head."""

from __future__ import annotations

from dataclasses import dataclass
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any, Self, TypeAlias

from pydantic import Field, field_validator, model_validator

from litebert.config.allowed import Section

if TYPE_CHECKING:
    from litebert.config.schema import AlbertConfig

HeadKind: TypeAlias = str
_CLASSIFIER = "output_weights"
_ANSWER = (
    'answer "Who sat there?" --context "The cat sat on the mat."',
    'answer("Who sat there?", "The cat sat on the mat.")',
)


@dataclass(frozen=True)
class HeadRecord:
    """Everything that the package knows about one kind of head.

    `class_name` ends the names of its classes in transformers (AlbertFor..., BertFor...); if it
    has no such class (`is_in_transformers`), transformers reads the encoder alone. `layer` is the
    linear layer on disk, `variable` a variable by which an official checkpoint shows this head,
    and `pipeline` its task on the Hub. A head without labels has `num_outputs`. `verb` is the
    method of `litebert.load(...)` that uses it; the examples follow `litebert` in a shell and
    `model.` in Python. `module` is its class, `package.module:Class`; `logits` names the columns of
    a linear head that is read token by token. `has_dropout` is about the linear layer's input.
    With `has_problem_type` the outputs can be one label, a set of labels, or a score. A head that
    `reads_texts` gets all tokens and the batch, and returns one row per sequence.
    """

    kind: HeadKind
    class_name: str
    layer: str
    is_pooled: bool
    has_labels: bool
    num_outputs: int
    pipeline: str
    purpose: str
    verb: str
    shell_example: str
    python_example: str
    variable: str = ""
    logits: tuple[str, ...] = ("logits",)
    has_problem_type: bool = False
    has_choices: bool = False
    is_in_transformers: bool = True
    has_dropout: bool = True
    module: str = "litebert.nn.heads:LinearHead"
    reads_texts: bool = False

    def make(self, config: AlbertConfig, head: HeadConfig) -> Any:
        """Return a new module of this kind."""
        return resolve_name(self.module)(config, head)


_RECORDS = (
    HeadRecord(
        kind="sequence-classification",
        class_name="SequenceClassification",
        layer="classifier",
        is_pooled=True,
        has_labels=True,
        num_outputs=0,
        pipeline="text-classification",
        purpose="classifies texts or pairs of texts",
        verb="classify",
        shell_example='classify "A first text." "Another one."',
        python_example='classify(["A first text.", "Another one."])',
        variable=_CLASSIFIER,
        has_problem_type=True,
    ),
    HeadRecord(
        kind="vector-classification",
        class_name="VectorClassification",
        layer="classifier",
        is_pooled=False,
        has_labels=True,
        num_outputs=0,
        pipeline="text-classification",
        purpose="classifies texts or pairs of texts by their vectors",
        verb="classify",
        shell_example='classify "A first text." "Another one."',
        python_example='classify(["A first text.", "Another one."])',
        has_problem_type=True,
        is_in_transformers=False,
        module="litebert.tasks.kinds.text:VectorHead",
        reads_texts=True,
    ),
    HeadRecord(
        kind="token-classification",
        class_name="TokenClassification",
        layer="classifier",
        is_pooled=False,
        has_labels=True,
        num_outputs=0,
        pipeline="token-classification",
        purpose="tags words",
        verb="tag",
        shell_example='tag "The words of this text are tagged."',
        python_example='tag(["The words of this text are tagged."])',
        variable=_CLASSIFIER,
    ),
    HeadRecord(
        kind="question-answering",
        class_name="QuestionAnswering",
        layer="qa_outputs",
        is_pooled=False,
        has_labels=False,
        num_outputs=2,
        pipeline="question-answering",
        purpose="finds answers in a text (SQuAD 1.1)",
        verb="answer",
        shell_example=_ANSWER[0],
        python_example=_ANSWER[1],
        variable="cls/squad/output_weights",
        logits=("start_logits", "end_logits"),
        has_dropout=False,  # unlike the official classifiers (squad_utils.py L708)
    ),
    HeadRecord(
        kind="conditional-question-answering",
        class_name="ConditionalQuestionAnswering",
        layer="",
        is_pooled=False,
        has_labels=False,
        num_outputs=1,
        pipeline="question-answering",
        purpose="finds answers in a text, or says that there is none (SQuAD 2.0)",
        verb="answer",
        shell_example=_ANSWER[0],
        python_example=_ANSWER[1],
        variable="start_logits/dense/kernel",
        is_in_transformers=False,
        module="litebert.tasks.kinds.spans:ConditionalSpanHead",
    ),
    HeadRecord(
        kind="multiple-choice",
        class_name="MultipleChoice",
        layer="classifier",
        is_pooled=True,
        has_labels=False,
        num_outputs=1,
        pipeline="multiple-choice",
        purpose="chooses between answers",
        verb="choose",
        shell_example='choose "Who sat there?" "the cat" nobody',
        python_example='choose("Who sat there?", ["the cat", "nobody"])',
        variable=_CLASSIFIER,
        has_choices=True,
    ),
)
PROBLEMS = {
    "single_label_classification": "litebert.tasks.kinds.text:SingleLabel",
    "multi_label_classification": "litebert.tasks.kinds.text:MultiLabel",
    "regression": "litebert.tasks.kinds.text:Regression",
}
"""What a classifier's outputs can be, as its `problem_type` says, and the family of each, `package.module:Class`."""
HEADS: dict[HeadKind, HeadRecord] = {record.kind: record for record in _RECORDS}
"""The kinds of heads; folders, cards, verbs and reports know every kind that has a record."""


class HeadConfig(Section):
    """Describe a task head in Hugging Face's words.

    >>> HeadConfig(kind="sequence-classification", labels=("negative", "positive")).num_outputs
    2
    """

    kind: HeadKind = Field(description="what is predicted, and from what")
    labels: tuple[str, ...] = Field((), description="names of the labels, by output number")
    problem_type: str = Field("single_label_classification", description="how a classifier's outputs are read")

    @field_validator("problem_type")
    @classmethod
    def _known_problem(cls, name: str) -> str:
        if name not in PROBLEMS:
            raise ValueError(f"one of {', '.join(PROBLEMS)}")
        return name

    @property
    def record(self) -> HeadRecord:
        """The record of this kind of head."""
        return HEADS[self.kind]

    @property
    def num_outputs(self) -> int:
        """The number of logits per token or sequence."""
        return len(self.labels) if self.record.has_labels else self.record.num_outputs

    @property
    def is_pooled(self) -> bool:
        """Whether the head reads the pooled [CLS] instead of every token."""
        return self.record.is_pooled

    def answers_as(self, other: HeadConfig) -> bool:
        """Whether both give the same kind of answers, with the same labels."""
        has_same = self.record.has_problem_type and other.record.has_problem_type
        ours, theirs = (self.labels, self.problem_type), (other.labels, other.problem_type)
        return (has_same or self.kind == other.kind) and ours == theirs

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.kind not in HEADS:
            raise ValueError(f"there is no head {self.kind!r}, only {', '.join(HEADS)}")
        if self.record.has_labels and not self.labels:
            raise ValueError(f"a {self.kind} head needs the names of its labels")
        if not self.record.has_labels and self.labels:
            raise ValueError(f"a {self.kind} head has no labels")
        if len(set(self.labels)) != len(self.labels):
            raise ValueError("two labels have the same name")
        is_special = self.problem_type != "single_label_classification"
        if is_special and not self.record.has_problem_type:
            raise ValueError(f"a {self.kind} head has no problem_type {self.problem_type}")
        return self


def kind_of_class(name: str) -> HeadKind | None:
    """Return the head of a transformers class; None for pretraining heads or no head.

    >>> kind_of_class("BertForTokenClassification")
    'token-classification'
    """
    for family in ("AlbertFor", "BertFor"):
        for kind, record in HEADS.items():
            if name == family + record.class_name:
                return kind
    return None


def numbered_labels(number: int) -> tuple[str, ...]:
    """Return the default names of labels, as transformers has them.

    >>> numbered_labels(2)
    ('LABEL_0', 'LABEL_1')
    """
    return tuple(f"LABEL_{index}" for index in range(number))
