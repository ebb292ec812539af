"""What a run wrote down about the model that lies in it: settings, data, measures."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from litebert.errors import DamagedError
from litebert.files import Json, read_capped, read_json

_RUN, _METRICS, _RESULT = "run.json", "metrics.jsonl", "result.json"
_LONGEST_LOG = 256 << 20
_LEFT_OUT = ("model.", "data.")


@dataclass(frozen=True)
class RunFacts:
    """A run in short: how it was trained, on which data (by hash), and this model's measures.

    `settings` are those that were set; the network's are in its config.json, and paths are private.
    """

    name: str
    version: str
    step: int
    settings: dict[str, Json]
    data: dict[str, Json]
    measures: dict[str, float]


def run_facts(folder: Path) -> RunFacts | None:
    """Return the facts of the run that a model folder lies in (runs/<name>/model), if it does.

    Raises:
        DamagedError: LB-639, its metrics.jsonl cannot be read.
    """
    run = folder.absolute().parent
    if not (run / _RUN).is_file():
        return None
    recorded = read_json(run / _RUN, command=f"ls {run}")
    origins, settings = _table(recorded, "origins"), _table(recorded, "settings")
    evaluation = _evaluation(run, folder.name)
    step = evaluation.get("step")
    return RunFacts(
        name=run.name,
        version=str(recorded.get("litebert", "unknown")),
        step=step if isinstance(step, int) else 0,
        settings={
            name: value
            for name, value in settings.items()
            if origins.get(name) != "default" and not name.startswith(_LEFT_OUT)
        },
        data=_table(recorded, "data"),
        measures={
            name: float(value)
            for name, value in evaluation.items()
            if isinstance(value, int | float) and name != "step"
        },
    )


def _evaluation(run: Path, kept: str) -> dict[str, Json]:
    """Return the evaluation of this model: of the last step, or of the best one (runs/.../best)."""
    if (run / _RESULT).is_file():
        result = read_json(run / _RESULT, command=f"ls {run}")
        return _table(result, "best" if kept == "best" else "last")
    rows = _rows(run / _METRICS)
    return rows[-1] if rows else {}


def _rows(path: Path) -> list[dict[str, Json]]:
    if not path.is_file():
        return []
    text = read_capped(path, _LONGEST_LOG, command=f"ls -l {path}").decode("utf-8", "replace")
    try:
        rows = [json.loads(line) for line in text.splitlines()]
        return [row for row in rows if row["kind"] == "eval"]
    except (ValueError, TypeError, LookupError, RecursionError) as error:
        raise DamagedError(
            "LB-639",
            f"{path} cannot be read",
            received=str(error),
            expected="one JSON object a line, as training writes them",
            next=f"delete the damaged line of {path}",
        ) from error


def _table(recorded: dict[str, Json], name: str) -> dict[str, Json]:
    value = recorded.get(name)
    return value if isinstance(value, dict) else {}
