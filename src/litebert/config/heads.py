"""The head of a fine-tuned model: what it predicts, and its labels."""

from typing import Any, Literal, Self

from pydantic import Field, JsonValue, model_validator

from litebert.config.section import Section
from litebert.plugins import TASK_HEADS, TASK_KINDS

Splitting = Literal["words", "spaces", "ideographs", "characters"]
"""How a text is divided into the words that get tags: words and marks, at spaces only,
also each character of a script without spaces, or each character.
"""


class HeadConfig(Section):
    """A task head, under Hugging Face's names."""

    kind: str = Field(description="what is predicted, and from what")
    labels: tuple[str, ...] = Field(
        (), description="names of the labels, by output number"
    )
    problem_type: str = Field(
        "single_label_classification", description="how a classifier's outputs are read"
    )
    splitting: Splitting = Field(
        "words", description="how a text is divided into words that get tags"
    )
    compares_texts: bool | None = Field(
        None,
        description=(
            "a classifier was trained on pairs of texts; unset: its folder does not say"
        ),
    )
    always_answers: bool | None = Field(
        None,
        description=(
            "a linear head for spans was trained on answered questions only; unset:"
            " its folder does not say, and it may find no answer"
        ),
    )
    settings: dict[str, JsonValue] = Field(
        {}, description="settings of the kind of task that a plug-in adds"
    )

    def __hash__(self) -> int:
        # settings, a dict, have no hash
        return hash((self.kind, self.labels, self.problem_type))

    def __str__(self) -> str:
        if not self.labels:
            return self.kind
        labels = ", ".join(self.labels[:10])
        if len(self.labels) > 10:
            labels += ", …"
        return f"{self.kind}, {self.problem_type}: {labels}"

    # ---- the layers ----

    @property
    def record(self) -> Any:
        """The `TaskHead` of this kind: its layers, and its names elsewhere."""
        return TASK_HEADS[self.kind]

    @property
    def num_outputs(self) -> int:
        """The number of logits per token or sequence."""
        if self.record.has_labels:
            return len(self.labels)
        return int(self.record.num_outputs)

    # ---- the kind of task ----

    @property
    def task_kind(self) -> Any:
        """The kind of task that this head was trained for, a subclass of `Family`; None
        if no kind of task uses heads like this.
        """
        for kind in kinds_of_head(self.kind):
            if kind.problem_type in ("", self.problem_type):
                return kind
        return None

    @property
    def has_problem_type(self) -> bool:
        """Whether several kinds of task, which read the outputs differently, have heads
        like this.
        """
        return any(kind.problem_type for kind in kinds_of_head(self.kind))

    def family(self, **changes: Any) -> Any:
        """Return the kind of task, with the settings that it was trained with."""
        kind = self.task_kind
        settings = kind.checked_settings(
            self.settings, next="load the plug-in with which the model was trained"
        )
        return kind(self, **{**settings, **changes})

    # ---- the answers ----

    @property
    def verb(self) -> str:
        """The verb that this head answers."""
        kind = self.task_kind
        return "embed" if kind is None else str(kind.verb)

    @property
    def leaves_answers_open(self) -> bool:
        """Whether nobody knows if it was trained on questions without an answer."""
        return self.kind == "question-answering" and self.always_answers is None

    def answers_as(self, other: "HeadConfig") -> bool:
        """Whether both heads give the same kind of answers, with the same labels."""
        if self.labels != other.labels or self.problem_type != other.problem_type:
            return False
        if self.kind == other.kind:
            return True
        # classifiers of [CLS], of text vectors and of pairs of vectors answer alike
        return self.task_kind is not None and self.task_kind is other.task_kind

    # ---- rules ----

    @model_validator(mode="after")
    def _require_known_kind(self) -> Self:
        if self.kind not in TASK_HEADS:
            kinds = ", ".join(TASK_HEADS)
            raise ValueError(f"there is no head {self.kind!r}, only {kinds}")
        return self

    @model_validator(mode="after")
    def _require_fitting_problem_type(self) -> Self:
        problems = [kind.problem_type for kind in kinds_of_head(self.kind)]
        if any(problems) and self.problem_type not in problems:
            raise ValueError(f"problem_type must be one of {', '.join(problems)}")
        is_default = self.problem_type == "single_label_classification"
        if not any(problems) and not is_default:
            raise ValueError(
                f"a {self.kind} head has no problem_type {self.problem_type}"
            )
        return self

    @model_validator(mode="after")
    def _require_fitting_labels(self) -> Self:
        has_labels = self.record.has_labels
        if has_labels and not self.labels:
            raise ValueError(f"a {self.kind} head needs the names of its labels")
        if self.labels and not has_labels:
            raise ValueError(f"a {self.kind} head has no labels")
        if len(set(self.labels)) != len(self.labels):
            raise ValueError("two labels have the same name")
        return self


def have_same_layers(first: HeadConfig | None, second: HeadConfig | None) -> bool:
    """Return whether two heads, or none, are the same but for what a folder may not
    say.
    """
    if first is None or second is None:
        return first is second
    unsaid: dict[str, Any] = {
        "compares_texts": None,
        "always_answers": None,
        "settings": {},
    }
    return first.model_copy(update=unsaid) == second.model_copy(update=unsaid)


def kinds_of_head(name: str) -> list[Any]:
    """Return the kinds of task that can be trained with a head."""
    return [kind for kind in TASK_KINDS.values() if name in kind.heads]


def numbered_labels(number: int) -> tuple[str, ...]:
    """Return the default names of labels, as in transformers: LABEL_0, LABEL_1, ..."""
    return tuple(f"LABEL_{index}" for index in range(number))
