"""The settings of fine-tuning: the task, its data, the model that it starts from, training."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator

from litebert.config.allowed import Section
from litebert.config.curriculum import MiningConfig
from litebert.config.schema import OptimConfig, TrainConfig


class TaskConfig(Section):
    """Say what is learnt, and how long its sequences may be."""

    name: str = Field(description="a named task (litebert recipes list), or table: your own data")
    max_length: int = Field(512, ge=8, le=131_072, description="pieces in the longest sequence")
    max_query_length: int = Field(64, ge=1, description="SQuAD: pieces kept of a question")
    doc_stride: int = Field(128, ge=1, description="SQuAD: pieces between two windows")
    max_answer_length: int = Field(30, ge=1, description="SQuAD: pieces in the longest answer")
    null_threshold: float | None = Field(
        None, description="SQuAD 2.0: null score from which on nothing is answered; unset: official"
    )
    max_qa_length: int = Field(128, ge=1, description="RACE: last pieces kept of question + option")
    class_weights: tuple[float, ...] | None = Field(
        None, description="weight of each label in the loss, in the order of the labels"
    )


Problem = Literal[
    "classification", "multi-label", "regression", "token-classification", "multiple-choice", "question-answering"
]
"""The kinds of tasks that users' own files may be; `tasks/own/examples.py` has a reading for each."""


class TaskDataConfig(Section):
    """Say where the examples are: a folder of a named task, or files of your own."""

    folder: str | None = Field(None, description="folder of a named task, as its authors pack it")
    train_split: str | None = Field(
        None, description="train on this split; SQuAD: fit, which leaves articles to tune on"
    )
    train: str | None = Field(None, description="your own examples: CSV, TSV, JSONL, Parquet")
    dev: str | None = Field(None, description="examples to evaluate on; unset: a part of train")
    held_out: float = Field(0.1, gt=0, lt=1, description="share of train to evaluate on")
    missing_labels: Literal["refuse", "skip"] = Field(
        "refuse", description="rows of your own files without a label: an error, or omitted"
    )
    problem: str | None = Field(None, description="kind of your own task, such as regression; unset: guessed")
    columns: tuple[str, ...] = Field(
        (), description='roles of your columns, ["text=review", "label=stars"]; unset: guessed'
    )


class StartConfig(Section):
    """Say which network is fine-tuned; unset values are those of its config.json."""

    start: str = Field(description="model folder, or a name on the Hub")
    random: bool = Field(False, description="its shape, but random weights: the control")
    pooling: Literal["auto", "cls", "mean"] = Field(
        "auto", description="what a classifier reads; auto: mean of a model of text vectors, else [CLS]"
    )
    hidden_dropout_prob: float | None = Field(None, ge=0, lt=1, description="encoder dropout")
    attention_probs_dropout_prob: float | None = Field(None, ge=0, lt=1, description="dropout of attention")
    classifier_dropout_prob: float | None = Field(None, ge=0, lt=1, description="dropout before the head")


class FinetuneOptimConfig(OptimConfig):
    """Choose the optimizer; these are the values that suit most tasks."""

    name: Literal["lamb", "adamw"] = Field("adamw", description="update rule")
    learning_rate: float = Field(2e-5, gt=0, le=10, description="peak learning rate")
    warmup_steps: float = Field(0.1, ge=0, description="steps to the peak; below 1: a share of all steps")
    layer_decay: float = Field(1.0, gt=0, le=1, description="factor on the rate for each layer below the head")
    head_rate_scale: float = Field(1.0, gt=0, le=1000, description="factor on the rate for the new head")


class FinetuneTrainConfig(TrainConfig):
    """Say how long and with what batches."""

    epochs: float = Field(3.0, gt=0, description="passes over the data, where steps are not set")
    steps: int = Field(0, ge=0, description="optimizer steps in all; 0: from epochs")
    batch_size: int = Field(32, ge=1, description="examples (SQuAD: windows) in one step")
    eval_every: int = Field(0, ge=0, description="steps between evaluations; 0: once an epoch")
    eval_at_start: bool = Field(False, description="evaluate before the first step, too")
    save_every: int = Field(500, ge=1, description="steps between checkpoints")
    keep_checkpoints: int = Field(1, ge=1, description="newest checkpoints that stay")
    patience: int | None = Field(None, ge=1, description="evaluations without improvement before training ends early")
    exits: bool = Field(False, description="classification: a head after every step, for early exit and less depth")


class TeacherConfig(Section):
    """Say which fine-tuned run is imitated as well as the labels, and with what weight."""

    run: str | None = Field(None, description="fine-tuned run of the same task; unset: no teacher")
    temperature: float = Field(2.0, gt=0, le=100, description="softens both sides' logits")
    weight: float = Field(0.5, ge=0, le=1, description="share of the loss; 1: labels do not count")
    hidden: float = Field(0.0, ge=0, le=100, description="weight of the error of the pooled state, beside the logits")


class FinetuneConfig(Section):
    """Everything that determines a fine-tuning run."""

    task: TaskConfig
    data: TaskDataConfig = TaskDataConfig()
    model: StartConfig
    optim: FinetuneOptimConfig = FinetuneOptimConfig()
    train: FinetuneTrainConfig = FinetuneTrainConfig()
    teacher: TeacherConfig = TeacherConfig()
    mining: MiningConfig = MiningConfig()

    @model_validator(mode="after")
    def _check(self) -> Self:
        if (self.data.folder is None) == (self.data.train is None):
            raise ValueError("data.folder (a named task) or data.train (your own), one of the two")
        return self
