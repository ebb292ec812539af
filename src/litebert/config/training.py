"""What pretraining and fine-tuning share: the optimizer, and how long to train. The
defaults are those of pretraining; `finetuning` has others.
"""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from litebert.config.section import BelowOne, Count, Options, Section
from litebert.plugins import OPTIMIZERS, NameIn, checked_settings, types_of

Schedule = Literal["official", "linear", "wsd"]


class OptimConfig(Section):
    """The optimizer and its schedule (official optimization.py, lamb_optimizer.py)."""

    name: Annotated[str, NameIn(OPTIMIZERS)] = Field(
        "lamb",
        description="lamb, adamw or muon: on hidden matrices, adamw on the rest",
    )
    learning_rate: float = Field(1.76e-3, gt=0, le=10, description="peak learning rate")
    muon_learning_rate: float = Field(
        4e-3, gt=0, le=1, description="peak rate of the matrices that muon updates"
    )
    muon_momentum: BelowOne = Field(0.95, description="decay of muon's momentum")
    bias_correction: bool | None = Field(
        None, description="divide moments by 1 - beta^t; unset: only with muon"
    )
    average_decay: BelowOne = Field(
        0.0,
        description="decay of the weight average that is saved; 0: none",
    )
    weight_decay: float = Field(
        0.01, ge=0, le=10, description="decoupled; not applied to norms and biases"
    )
    beta1: BelowOne = Field(0.9, description="decay of the first moment")
    beta2: BelowOne = Field(0.999, description="decay of the second moment")
    epsilon: float = Field(
        1e-6, gt=0, le=1, description="added outside the square root"
    )
    clip_norm: float = Field(1.0, gt=0, description="largest global gradient norm")
    schedule: Schedule = Field(
        "linear",
        description="official: with a jump; linear: none; wsd: warm-up-stable-decay",
    )
    warmup_steps: float = Field(
        0.025,
        ge=0,
        description=(
            "warm-up steps, with train.minutes at most a tenth of all; below 1: a share"
            " of all"
        ),
    )
    decay_share: float = Field(
        0.2, gt=0, le=1, description="share of the steps in which wsd decays"
    )
    settings: Options = Field(
        {}, description="settings of an optimizer that a plug-in adds"
    )

    @model_validator(mode="after")
    def _require_settings_of_the_optimizer(self) -> Self:
        if self.settings:  # the registry loads torch
            checked_settings(
                self.settings,
                types_of(OPTIMIZERS[self.name].settings),
                table="optim.settings",
                owner=f"the optimizer {self.name}",
            )
        return self


class TrainConfig(Section):
    """How long to train, with what batches and precision, and what to keep."""

    steps: int = Field(125_000, ge=1, le=10**9, description="optimizer steps in all")
    minutes: float | None = Field(
        None,
        gt=0,
        le=10**7,  # 19 years
        description="stop after this time: the schedule follows the clock",
    )
    batch_size: Count = Field(4_096, description="sequences per step")
    micro_batch_size: int | None = Field(
        None, ge=1, description="sequences computed at once; unset: the whole batch"
    )
    precision: Literal["auto", "fp32", "bf16", "fp16"] | None = Field(
        None,
        description=(
            "of activations; unset: bf16 on a GPU that has it, else fp32; auto: the"
            " faster of the two; fp16: with a scaled loss, on older GPUs"
        ),
    )
    device: str = Field("auto", description="auto, cpu, cuda, cuda:N or mps")
    gradient_checkpointing: bool = Field(
        False, description="recompute blocks in the backward pass"
    )
    compile: bool = Field(
        False,
        description="compile what follows attention in each step (torch.compile)",
    )
    deterministic: bool = Field(
        False, description="on a GPU, use only kernels that repeat the same bits"
    )
    seed: int = Field(
        12_345, ge=0, lt=2**63, description="the single seed of all randomness"
    )
    eval_every: Count = Field(1_000, description="steps between held-out evaluations")
    eval_at_start: bool = Field(True, description="evaluate before the first step, too")
    eval_sequences: Count = Field(
        1_024, description="held-out sequences per evaluation"
    )
    save_every: Count = Field(1_000, description="steps between checkpoints")
    keep_checkpoints: Count = Field(2, description="newest checkpoints to keep")
    keep_every: int | None = Field(
        None, ge=1, description="also keep checkpoints at multiples of this many steps"
    )
    keep_best: bool | None = Field(
        None,
        description="pretraining: also keep the best evaluation's model, in `best`",
    )
    log_every: Count = Field(10, description="steps between reports of the losses")
    loader_workers: int = Field(
        1, ge=0, le=1_024, description="processes that prepare batches; 0: none"
    )
    threads: int | None = Field(
        None,
        ge=1,
        le=1_024,  # torch crashes where the system cannot start so many
        description="CPU threads; unset: torch's default; with minutes: the faster",
    )
    max_skipped_steps: int = Field(
        8, ge=0, description="consecutive non-finite steps before stopping"
    )
