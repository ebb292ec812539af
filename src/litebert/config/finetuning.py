"""The settings of a fine-tuning run: the task, its examples, the model that it starts
from, and a teacher.
"""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from litebert.config.section import (
    ContradictionError,
    Count,
    Options,
    Section,
    UpToOne,
)
from litebert.config.training import OptimConfig, TrainConfig
from litebert.plugins import OPTIMIZERS, NameIn

OWN_FILES = "table"
"""The name of the task whose data are users' own files."""


class TaskConfig(Section):
    """What is learned, and how long its sequences may be."""

    name: str = Field(description="a named task, or table: your own data")
    max_length: int = Field(
        512, ge=8, le=131_072, description="pieces in the longest sequence"
    )
    max_query_length: Count = Field(64, description="SQuAD: pieces kept of a question")
    doc_stride: Count = Field(
        128, description="SQuAD: pieces from one window's start to the next"
    )
    max_answer_length: Count = Field(
        30, description="SQuAD: pieces in the longest answer"
    )
    null_threshold: float | None = Field(
        None, description="SQuAD 2.0: no answer from this null score; unset: official"
    )
    max_qa_length: Count = Field(
        128, description="RACE: last pieces kept of question + option"
    )
    class_weights: tuple[float, ...] | None = Field(
        None, description="loss weights, in the order of the labels"
    )
    settings: Options = Field(
        {}, description="settings of a kind of task that a plug-in adds"
    )


class TaskDataConfig(Section):
    """Where the examples are: a folder of a named task, or files of your own."""

    folder: str | None = Field(
        None, description="folder of a named task, as its authors publish it"
    )
    train: str | None = Field(
        None, description="your own examples: a table, or a folder for each label"
    )
    dev: str | None = Field(
        None, description="examples to evaluate on; unset: a part of train"
    )
    held_out: float = Field(
        0.1, gt=0, lt=1, description="share of train to evaluate on"
    )
    missing_labels: Literal["refuse", "skip"] = Field(
        "refuse", description="rows of your own files without a label"
    )
    problem: str | None = Field(
        None, description="kind of your own task; unset: guessed"
    )
    labels: tuple[str, ...] = Field(
        (), description="labels of your own task in your order; unset: sorted"
    )
    columns: tuple[str, ...] = Field(
        (), description='roles, ["text=review", "label=stars"]; unset: guessed'
    )


DROPOUTS = (
    "hidden_dropout_prob",
    "attention_probs_dropout_prob",
    "classifier_dropout_prob",
)
"""Settings of a network that a run may change when it starts from it."""


class StartConfig(Section):
    """Which network is fine-tuned; unset values are those of its config.json."""

    start: str = Field(description="model folder, or a name on the Hub")
    random: bool = Field(
        False, description="its shape with random weights, as a control"
    )
    pooling: Literal["auto", "cls", "mean", "apart"] = Field(
        "auto",
        description=(
            "what a classifier reads: [CLS], the mean of the tokens, or the means of"
            " two texts that are read apart; auto: what suits the start model"
        ),
    )
    hidden_dropout_prob: float | None = Field(
        None, ge=0, lt=1, description="encoder dropout"
    )
    attention_probs_dropout_prob: float | None = Field(
        None, ge=0, lt=1, description="attention dropout"
    )
    classifier_dropout_prob: float | None = Field(
        None, ge=0, lt=1, description="dropout before the head"
    )


class FinetuneOptimConfig(OptimConfig):
    """The optimizer, with defaults that suit most tasks."""

    name: Annotated[str, NameIn(OPTIMIZERS)] = Field("adamw", description="update rule")
    learning_rate: float = Field(2e-5, gt=0, le=10, description="peak learning rate")
    warmup_steps: float = Field(
        0.1, ge=0, description="warm-up steps; below 1: a share of all steps"
    )
    head_rate_scale: float = Field(
        1.0, gt=0, le=1000, description="factor on the learning rate of the new head"
    )


class FinetuneTrainConfig(TrainConfig):
    """How long to train, and with what batches."""

    epochs: float = Field(
        3.0, gt=0, le=10**6, description="passes over the data, if steps are not set"
    )
    steps: int = Field(
        0, ge=0, le=10**9, description="optimizer steps in all; 0: from epochs"
    )
    batch_size: Count = Field(32, description="examples (SQuAD: windows) per step")
    eval_every: int = Field(
        0,
        ge=0,
        description=(
            "steps between evaluations; 0: once an epoch, or less often if more"
            " examples are held out than trained on"
        ),
    )
    eval_at_start: bool = Field(
        False, description="evaluate before the first step, too"
    )
    save_every: Count = Field(500, description="steps between checkpoints")
    keep_checkpoints: Count = Field(1, description="newest checkpoints to keep")


class TeacherConfig(Section):
    """Which fine-tuned run is imitated in addition to the labels, and with what
    weight.
    """

    run: str | None = Field(
        None, description="fine-tuned run of the same task; unset: no teacher"
    )
    temperature: float = Field(
        2.0, gt=0, le=100, description="softens the logits of both teacher and student"
    )
    weight: UpToOne = Field(0.5, description="share of the loss; 1: labels are ignored")


def without_effect(data: TaskDataConfig) -> list[str]:
    """Return the names of the settings of the data that are set, but change nothing."""
    unused = list[str]()
    if data.train is None:  # a named task has its own files and columns
        unused = [name for name in TaskDataConfig.model_fields if name != "folder"]
    elif data.dev is not None:
        unused = ["held_out"]
    defaults = TaskDataConfig()
    return [name for name in unused if getattr(data, name) != getattr(defaults, name)]


class FinetuneConfig(Section):
    """Everything that determines a fine-tuning run."""

    task: TaskConfig
    data: TaskDataConfig = TaskDataConfig()
    model: StartConfig
    optim: FinetuneOptimConfig = FinetuneOptimConfig()
    train: FinetuneTrainConfig = FinetuneTrainConfig()
    teacher: TeacherConfig = TeacherConfig()

    @model_validator(mode="after")
    def _require_one_place_of_data(self) -> Self:
        if (self.data.folder is None) == (self.data.train is None):
            raise ContradictionError(
                ("data.folder", "data.train"),
                "set either data.folder (a named task) or data.train (your own)",
            )
        if self.task.name == OWN_FILES and self.data.train is None:
            raise ContradictionError(
                ("data.folder",), "your own files are in data.train, not data.folder"
            )
        if self.task.name != OWN_FILES and self.data.folder is None:
            raise ContradictionError(
                ("data.train",),
                f"the files of {self.task.name} are in data.folder, not data.train",
            )
        return self

    @model_validator(mode="after")
    def _require_data_settings_with_an_effect(self) -> Self:
        for name in without_effect(self.data):
            if self.data.train is None:
                raise ContradictionError(
                    (f"data.{name}",),
                    f"data.{name} applies only to your own files (data.train)",
                )
            raise ContradictionError(
                (f"data.{name}", "data.dev"),
                f"set either data.dev or data.{name}: with data.dev, no rows of"
                " data.train are held out",
            )
        return self
