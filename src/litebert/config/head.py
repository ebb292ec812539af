"""Heads of the encoder: one record per kind of head, and the settings of one head."""

from __future__ import annotations

from dataclasses import dataclass
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any, Self, TypeAlias

from pydantic import Field, model_validator

from litebert.config.schema import Section

if TYPE_CHECKING:
    from litebert.config.schema import AlbertConfig

HeadKind: TypeAlias = str


@dataclass(frozen=True)
class HeadRecord:
    """Everything that the package knows about one kind of head."""

    kind: HeadKind
    class_name: str  # ends the names of its classes in transformers: AlbertFor..., BertFor...
    layer: str  # the linear layer on disk
    pipeline: str  # its task on the Hub
    purpose: str
    verb: str  # the method of `litebert.load(...)` that uses it
    shell_example: str  # what follows `litebert` in a shell
    python_example: str  # what follows `model.` in Python
    is_pooled: bool = False  # reads the pooled [CLS] instead of every token
    has_labels: bool = False  # the outputs are named labels; else there are `num_outputs`
    num_outputs: int = 0
    variable: str = ""  # by which an official checkpoint shows this head
    logits: tuple[str, ...] = ("logits",)  # names of the columns of a linear head that is read token by token
    has_problem_type: bool = False  # outputs can be one label, a set of labels, or a score
    has_choices: bool = False
    is_in_transformers: bool = True  # if not, transformers reads the encoder alone
    has_dropout: bool = True  # of the linear layer's input
    module: str = "litebert.nn.heads:LinearHead"  # its class
    reads_texts: bool = False  # gets all tokens and the batch, and returns one row per sequence

    def make(self, config: AlbertConfig, head: HeadConfig) -> Any:
        """Return a new module of this kind."""
        return resolve_name(self.module)(config, head)


_CLASSIFIER = "output_weights"
_CLASSIFY = (
    "classify", 'classify "A first text." "Another one."', 'classify(["A first text.", "Another one."])',
)  # fmt: skip
_ANSWER = (
    "answer", 'answer "Who sat there?" --context "The cat sat on the mat."',
    'answer("Who sat there?", "The cat sat on the mat.")',
)  # fmt: skip
_RECORDS = (
    HeadRecord(
        "sequence-classification", "SequenceClassification", "classifier",
        "text-classification", "classifies texts or pairs of texts", *_CLASSIFY,
        is_pooled=True, has_labels=True, variable=_CLASSIFIER, has_problem_type=True,
    ),
    HeadRecord(
        "vector-classification", "VectorClassification", "classifier",
        "text-classification", "classifies texts or pairs of texts by their vectors", *_CLASSIFY,
        has_labels=True, has_problem_type=True, is_in_transformers=False,
        module="litebert.tasks.kinds.text:VectorHead", reads_texts=True,
    ),
    HeadRecord(
        "token-classification", "TokenClassification", "classifier",
        "token-classification", "tags words",
        "tag", 'tag "The words of this text are tagged."', 'tag(["The words of this text are tagged."])',
        has_labels=True, variable=_CLASSIFIER,
    ),
    HeadRecord(
        "question-answering", "QuestionAnswering", "qa_outputs",
        "question-answering", "finds answers in a text (SQuAD 1.1)", *_ANSWER,
        num_outputs=2, variable="cls/squad/output_weights", logits=("start_logits", "end_logits"),
        has_dropout=False,  # unlike the official classifiers (squad_utils.py L708)
    ),
    HeadRecord(
        "conditional-question-answering", "ConditionalQuestionAnswering", "",
        "question-answering", "finds answers in a text, or says that there is none (SQuAD 2.0)", *_ANSWER,
        num_outputs=1, variable="start_logits/dense/kernel", is_in_transformers=False,
        module="litebert.tasks.kinds.spans:ConditionalSpanHead",
    ),
    HeadRecord(
        "multiple-choice", "MultipleChoice", "classifier",
        "multiple-choice", "chooses between answers",
        "choose", 'choose "Who sat there?" "the cat" nobody', 'choose("Who sat there?", ["the cat", "nobody"])',
        is_pooled=True, num_outputs=1, variable=_CLASSIFIER, has_choices=True,
    ),
)  # fmt: skip
HEADS: dict[HeadKind, HeadRecord] = {record.kind: record for record in _RECORDS}
"""The kinds of heads; folders, cards, verbs and reports know every kind that has a record."""
PROBLEMS = {
    "single_label_classification": "litebert.tasks.kinds.text:SingleLabel",
    "multi_label_classification": "litebert.tasks.kinds.text:MultiLabel",
    "regression": "litebert.tasks.kinds.text:Regression",
}
"""What a classifier's outputs can be, as its `problem_type` says, and the family of each, `package.module:Class`."""


class HeadConfig(Section):
    """Describe a task head in Hugging Face's words."""

    kind: HeadKind = Field(description="what is predicted, and from what")
    labels: tuple[str, ...] = Field((), description="names of the labels, by output number")
    problem_type: str = Field("single_label_classification", description="how a classifier's outputs are read")

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
        if self.problem_type not in PROBLEMS:
            raise ValueError(f"problem_type is one of {', '.join(PROBLEMS)}")
        if self.record.has_labels != bool(self.labels):
            needs = "needs the names of its labels" if self.record.has_labels else "has no labels"
            raise ValueError(f"a {self.kind} head {needs}")
        if len(set(self.labels)) != len(self.labels):
            raise ValueError("two labels have the same name")
        if self.problem_type != "single_label_classification" and not self.record.has_problem_type:
            raise ValueError(f"a {self.kind} head has no problem_type {self.problem_type}")
        return self


def kind_of_class(name: str) -> HeadKind | None:
    """Return the head of a transformers class, such as BertForTokenClassification; None for others."""
    ends = {f"{family}For{record.class_name}": kind for kind, record in HEADS.items() for family in ("Albert", "Bert")}
    return ends.get(name)


def numbered_labels(number: int) -> tuple[str, ...]:
    """Return the default names of labels, as transformers has them: LABEL_0, LABEL_1, ..."""
    return tuple(f"LABEL_{index}" for index in range(number))
