"""result.json: the measures of fine-tuning, for the last step and for the best evaluation."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_serializer, model_validator

from litebert.config.allowed import refused
from litebert.errors import DamagedError
from litebert.files import read_json, write_json
from litebert.runs.metrics import LogRow

RESULT_FILE = "result.json"


class EvaluatedStep(BaseModel):
    """All measures of one evaluation, by name; in the file they are one flat object."""

    model_config = ConfigDict(frozen=True)

    step: int
    measures: dict[str, float]

    @model_validator(mode="before")
    @classmethod
    def _unflatten(cls, value: object) -> object:
        if not isinstance(value, dict) or "measures" in value:
            return value
        measures = {name: v for name, v in value.items() if name != "step"}
        return {"step": value.get("step"), "measures": measures}

    @classmethod
    def of(cls, row: LogRow) -> Self:
        """Return the finite numbers of one row of metrics.jsonl."""
        finite = {name: v for name, v in row.values.items() if math.isfinite(v) and name != "step"}
        return cls(step=row.step, measures=finite)

    @model_serializer
    def _flat(self) -> dict[str, int | float]:
        return {"step": self.step, **self.measures}


class Result(BaseModel):
    """The last step of a run, and its best evaluation by the key measure.

    `baseline` has the measures of always giving the commonest label of the training examples;
    `doubts` are reasons not to trust the last step.
    """

    model_config = ConfigDict(frozen=True, populate_by_name=True)

    task: str
    key_measure: str
    last: EvaluatedStep
    best: EvaluatedStep
    num_evaluations: int = Field(alias="evaluations")
    seed: int | None = None
    start: str | None = None
    fresh: tuple[str, ...]
    baseline: dict[str, float] = Field(default_factory=dict)
    doubts: tuple[str, ...] = ()

    @model_validator(mode="after")
    def _check(self) -> Self:
        for each in (self.last, self.best):
            if self.key_measure not in each.measures:
                raise ValueError(f"no {self.key_measure} in {sorted(each.measures)}")
        return self


def read_result(folder: Path) -> Result | None:
    """Read the result of a run; None if it is not finished.

    Raises:
        DamagedError: LB-653, result.json is not what litebert finetune writes.
    """
    path = folder / RESULT_FILE
    if not path.exists():
        return None
    table = read_json(path, command=f"ls {folder}")
    try:
        return Result.model_validate(table)
    except ValidationError as error:
        raise DamagedError(
            "LB-653",
            f"{path} is not the result of a run",
            received=refused(error),
            expected="task, key_measure, last, best, evaluations and fresh",
            next=f"delete {path} and run the litebert finetune command again",
        ) from error


def write_result(folder: Path, result: Result) -> None:
    """Write result.json."""
    write_json(folder / RESULT_FILE, result.model_dump(mode="json", by_alias=True))
