"""Settings that vary over a run: masks, depth, lengths, batches, the choice of sequences."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import Field, model_validator

from litebert.config.allowed import Section

Share = Annotated[float, Field(gt=0, lt=1)]
Length = Annotated[int, Field(ge=8)]
Size = Annotated[int, Field(ge=1)]


class EarlyConfig(Section):
    """Say what differs in the early steps; it depends on the step alone, so resume is exact."""

    mask_prob: float | None = Field(
        None, gt=0, lt=1, description="share of pieces to predict at first; unset: no difference"
    )
    mask_share: float = Field(0.6, ge=0, le=1, description="share of the steps with that mask_prob")
    depth: int | None = Field(None, ge=1, description="steps of the network applied at first; unset: all")
    depth_share: float = Field(0.3, ge=0, lt=1, description="share of the training steps with that depth")


class ElasticConfig(Section):
    """Say how the depth varies in training, so that the network can be used at any depth."""

    least_depth: int | None = Field(
        None,
        ge=1,
        description="half of the training steps apply a random number of steps of the network, at "
        "least this many; unset: all steps always",
    )


class MiningConfig(Section):
    """Say whether training prefers sequences or examples with a large loss."""

    pool: int = Field(
        1, ge=1, le=64, description="how many are drawn for each one that is trained on, the hardest; 1: no choice"
    )


class RampConfig(Section):
    """Say how a run begins with short sequences or small batches, in consecutive stages.

    The steps after the last stage have objective.max_seq_length and train.batch_size.
    """

    shares: tuple[Share, ...] | None = Field(
        None, description="share of the steps of each stage, such as [0.6, 0.2]; unset: no stages"
    )
    seq_lengths: tuple[Length, ...] | None = Field(
        None, description="max_seq_length of each stage; unset: the same throughout"
    )
    batch_sizes: tuple[Size, ...] | None = Field(
        None, description="batch_size of each stage; unset: the same throughout"
    )

    @model_validator(mode="after")
    def _check(self) -> Self:
        number = len(self.shares or ())
        for name in ("seq_lengths", "batch_sizes"):
            values = getattr(self, name)
            if values is not None and len(values) != number:
                raise ValueError(f"ramp.{name} has {len(values)} stages, ramp.shares {number}")
        if sum(self.shares or ()) >= 1:
            raise ValueError("ramp.shares must add up to less than 1: steps follow the last stage")
        return self
