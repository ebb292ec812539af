"""What can be set for distillation: the teacher and the weights of what it says."""

from __future__ import annotations

from pydantic import Field

from litebert.config.schema import Section


class DistilConfig(Section):
    """Say what a student learns from its teacher, beside masked words and sentence order."""

    hidden: float = Field(1.0, ge=0, le=100, description="weight of the hidden states' error")
    vectors: float = Field(1.0, ge=0, le=100, description="weight of the text vectors' error")
    pretraining: float = Field(1.0, ge=0, le=100, description="weight of masked LM and order")
    texts: int = Field(32, ge=0, le=65_536, description="plain short texts in a step")
    text_length: int = Field(64, ge=8, le=512, description="pieces in the longest plain text")
