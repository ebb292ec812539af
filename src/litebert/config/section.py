"""What every group of settings is."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Section(BaseModel):
    """Group settings that are read together; unknown names are refused, values never change."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)
