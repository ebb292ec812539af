"""The settings of a pretraining run: the model that it starts from, its text, its
objectives, and a teacher.
"""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from litebert.config.network import AlbertConfig
from litebert.config.section import (
    BelowOne,
    ContradictionError,
    Section,
    UpToOne,
    Weight,
)
from litebert.config.training import OptimConfig, TrainConfig
from litebert.plugins import PRETRAINING_HEADS, SENTENCE_OBJECTIVES, NameIn


class PretrainStart(Section):
    """Where the weights come from: a model, whose shape is then used, or random
    initialization.
    """

    model: str | None = Field(None, description="model folder, or a name on the Hub")
    optimizer: bool = Field(False, description="load its optimizer state, too")
    new_vocabulary: bool | None = Field(
        None, description="allow another vocabulary: shared pieces keep vectors"
    )
    attention: Literal["random", "local"] = Field(
        "random", description="local: some heads start by reading neighbors"
    )
    output_bias: Literal["zeros", "unigram"] = Field(
        "zeros", description="unigram: log frequencies of the pieces"
    )

    @model_validator(mode="after")
    def _require_a_model_to_take_from(self) -> Self:
        if self.model is not None:
            return self
        for name in ("optimizer", "new_vocabulary"):
            if getattr(self, name):
                raise ContradictionError(
                    (name, "model"), f"start.{name} is about the model in start.model"
                )
        return self


class DataConfig(Section):
    """Where the training text comes from."""

    corpus: str = Field(description="corpus folder")
    mix: tuple[str, ...] | None = Field(
        None, description="more corpora of the same vocabulary to sample from"
    )
    weights: tuple[Weight, ...] | None = Field(
        None, description="weights of corpus and mix, in order; unset: tokens"
    )
    temperature: float | None = Field(
        None, gt=0, le=100, description="shares are weights ** (1 / temperature)"
    )
    eval_corpus: str | None = Field(
        None, description="corpus to evaluate on; unset: the held-out part of `corpus`"
    )

    @model_validator(mode="after")
    def _require_weight_of_each_corpus(self) -> Self:
        if self.weights is not None and len(self.weights) != 1 + len(self.mix or ()):
            raise ContradictionError(
                ("mix", "weights"),
                f"data.weights needs one number per corpus, not {len(self.weights)}",
            )
        return self


class ObjectiveConfig(Section):
    """The objectives (paper 3.1 and 4.2; official create_pretraining_data.py)."""

    heads: Annotated[dict[str, float], NameIn(PRETRAINING_HEADS)] = Field(
        {"masked_lm": 1.0, "sentence_order": 1.0},
        description="weights of the losses by head; 0: without this head",
    )
    sentence: Annotated[str, NameIn(SENTENCE_OBJECTIVES)] = Field(
        "order",
        description=(
            "order: swapped neighbors; order-official: with a leak; next; none"
        ),
    )
    max_seq_length: int = Field(
        512, ge=8, le=131_072, description="pieces in the longest sequence"
    )
    short_seq_prob: UpToOne = Field(0.1, description="share of shorter sequences")
    short_seq_per: Literal["instance", "document"] = Field(
        "instance", description="document: drawn once, as upstream"
    )
    ngram: int = Field(3, ge=1, le=10, description="most words masked in a row")
    favor_shorter_ngram: bool = Field(
        True, description="p(n) proportional to 1/n, or reversed"
    )
    whole_word: bool = Field(True, description="mask whole words, not single pieces")
    mask_prob: float = Field(0.15, gt=0, lt=1, description="share of pieces to predict")
    max_predictions: int | None = Field(
        None, ge=1, description="most pieces predicted in a sequence; upstream: 20"
    )

    @property
    def chosen_heads(self) -> tuple[str, ...]:
        """The heads that the network has."""
        return tuple(name for name, weight in self.heads.items() if weight > 0)

    @model_validator(mode="after")
    def _require_masked_lm(self) -> Self:
        if self.heads.get("masked_lm", 0.0) <= 0 or min(self.heads.values()) < 0:
            raise ContradictionError(
                ("heads",),
                "objective.heads needs a weight above 0 for masked_lm, and none below"
                " 0",
            )
        return self


class EarlyConfig(Section):
    """What differs in the early steps; it depends only on the step, so resuming is
    exact.
    """

    mask_prob: float | None = Field(
        None, gt=0, lt=1, description="share to predict at first; unset: no change"
    )
    mask_share: UpToOne = Field(
        0.6, description="share of the planned steps with that mask_prob"
    )
    depth: int | None = Field(
        None, ge=1, description="steps of the network applied at first; unset: all"
    )
    depth_share: BelowOne = Field(
        0.3, description="share of the planned steps with that depth"
    )


class DistilConfig(Section):
    """What is learned from a teacher, besides masked words and sentence order."""

    teacher: str | None = Field(
        None,
        description="model folder, a name on the Hub, or vectors.npy; unset: none",
    )
    hidden: float = Field(
        5.5, ge=0, le=100, description="weight of the hidden-state error"
    )
    vectors: float = Field(
        3.0, ge=0, le=100, description="weight of the text-vector error"
    )
    pretraining: float = Field(
        1.0, ge=0, le=100, description="weight of masked LM and sentence order"
    )
    texts: int = Field(24, ge=1, le=65_536, description="short plain texts per step")
    text_length: int = Field(
        64, ge=8, le=512, description="pieces in the longest plain text"
    )


class PretrainConfig(Section):
    """Everything that determines a pretraining run."""

    start: PretrainStart = PretrainStart()
    model: AlbertConfig = AlbertConfig()
    data: DataConfig
    objective: ObjectiveConfig = ObjectiveConfig()
    early: EarlyConfig = EarlyConfig()
    distil: DistilConfig = DistilConfig()
    optim: OptimConfig = OptimConfig()
    train: TrainConfig = TrainConfig()

    @model_validator(mode="after")
    def _require_enough_positions(self) -> Self:
        length = self.objective.max_seq_length
        positions = self.model.max_position_embeddings
        # that of a starting model is known later
        if length > positions and not self.start.model:
            raise ContradictionError(
                ("model.max_position_embeddings", "objective.max_seq_length"),
                f"objective.max_seq_length {length} must not exceed"
                f" model.max_position_embeddings {positions}",
            )
        return self

    @model_validator(mode="after")
    def _require_steps_after_warmup(self) -> Self:
        warmup = self.optim.warmup_steps
        steps = self.train.steps
        if warmup >= steps > 1 and self.train.minutes is None:
            raise ContradictionError(
                ("optim.warmup_steps", "train.steps"),
                f"optim.warmup_steps {warmup} must be below train.steps {steps}",
            )
        return self

    @model_validator(mode="after")
    def _require_equal_micro_batches(self) -> Self:
        size = self.train.batch_size
        micro_size = self.train.micro_batch_size
        if micro_size is not None and size % micro_size:
            raise ContradictionError(
                ("train.batch_size", "train.micro_batch_size"),
                f"train.batch_size {size} must be a multiple of"
                f" train.micro_batch_size {micro_size}",
            )
        return self

    @model_validator(mode="after")
    def _require_whole_steps_in_distillation(self) -> Self:
        without_teacher = {
            "early.depth": self.early.depth,
            "train.micro_batch_size": self.train.micro_batch_size,
        }
        for name, value in without_teacher.items():
            if self.distil.teacher and value:
                raise ContradictionError(
                    (name,),
                    f"{name} must be null in distillation, which does not support it",
                )
        return self
