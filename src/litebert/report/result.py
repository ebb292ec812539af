"""How fine-tuning ended: result.json read back, last step and best evaluation kept apart."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from litebert.errors import DamagedError
from litebert.files import Json, read_json
from litebert.metrics.spread import Spread

RESULT_FILE = "result.json"


@dataclass(frozen=True)
class Evaluation:
    """All measures of one evaluation, by name."""

    step: int
    measures: dict[str, float]


@dataclass(frozen=True)
class Result:
    """The last step of a run, and its best evaluation by the key measure."""

    task: str
    key_measure: str
    last: Evaluation
    best: Evaluation
    num_evaluations: int
    fresh: tuple[str, ...]


def read_result(folder: Path) -> Result | None:
    """Read the result of a run; nothing where it is not finished.

    Raises:
        DamagedError: LB-653, result.json is not what litebert finetune writes.
    """
    path = folder / RESULT_FILE
    if not path.exists():
        return None
    table = read_json(path, command=f"ls {folder}")
    try:
        fresh, count, key = table["fresh"], table["evaluations"], str(table["key_measure"])
        if not isinstance(fresh, list) or not isinstance(count, int):
            raise ValueError(f"no evaluations, or no names: {count!r}, {fresh!r}")
        return Result(
            task=str(table["task"]),
            key_measure=key,
            last=_evaluation(table["last"], key),
            best=_evaluation(table["best"], key),
            num_evaluations=count,
            fresh=tuple(map(str, fresh)),
        )
    except (KeyError, ValueError) as error:
        raise DamagedError(
            "LB-653",
            f"{path} is not the result of a run",
            received=str(error),
            expected="task, key_measure, last, best, evaluations and fresh",
            next=f"delete {path} and run the litebert finetune command again",
        ) from error


def spreads(evaluations: Sequence[Evaluation]) -> dict[str, Spread]:
    """Summarise each measure that all evaluations have, one evaluation a seed."""
    names = [
        name for name in evaluations[0].measures if all(name in e.measures for e in evaluations)
    ]
    return {name: Spread.of([each.measures[name] for each in evaluations]) for name in names}


def number(value: float) -> str:
    """Write a measure, a count without decimals.

    >>> number(0.68382), number(10570.0), number(float("nan"))
    ('0.6838', '10,570', 'not finite')
    """
    if not math.isfinite(value):
        return "not finite"
    return f"{value:,.0f}" if abs(value) > 100 and value.is_integer() else f"{value:.4f}"


def _evaluation(table: Json, key_measure: str) -> Evaluation:
    if not isinstance(table, dict) or not isinstance(step := table.get("step"), int):
        raise ValueError(f"no evaluation: {table!r}")
    if key_measure not in table:
        raise ValueError(f"no {key_measure}: {table!r}")
    measures = {n: float(str(value)) for n, value in table.items() if n != "step"}
    return Evaluation(step, measures)
