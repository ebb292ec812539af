"""What a run recorded about its model: settings, data, measures."""

from __future__ import annotations

import json
import shlex
from dataclasses import dataclass
from pathlib import Path

from pydantic import JsonValue

from litebert.config import Origin
from litebert.runs import EvaluatedStep, Record, is_run, read_record, read_result

_LEFT_OUT = ("model.", "data.")
_SET_BY_HAND = ("flag", "file", "measured")


@dataclass(frozen=True)
class RunFacts:
    """A summary of a run: how it was trained, on which data (by hash), and the model's measures.

    `settings` are those that were set, except the network's, which are in its config.json. Paths
    are private: `command`, which trains the model again, has names in capitals instead.
    """

    name: str
    version: str
    step: int
    command: str
    settings: dict[str, JsonValue]
    data: dict[str, JsonValue]
    measures: dict[str, float]
    baseline: dict[str, float]
    doubts: tuple[str, ...]


def run_facts(folder: Path) -> RunFacts | None:
    """Return the facts of the run that contains a model folder (runs/<name>/model), if any.

    Raises:
        DamagedError: LB-540, LB-651, LB-653, its record cannot be read.
    """
    run = folder.absolute().parent
    if not is_run(run):
        return None
    record = read_record(run)
    evaluation, result = _evaluation(record, folder.name), read_result(record.folder)
    return RunFacts(
        name=run.name,
        version=record.version,
        command=_command(record),
        step=evaluation.step,
        settings={
            name: value
            for name, value in record.settings.items()
            if record.origins.get(name) != Origin() and not name.startswith(_LEFT_OUT)
        },
        data=record.data,
        measures=evaluation.measures,
        baseline=result.baseline if result else {},
        doubts=result.doubts if result else (),
    )


def _command(record: Record) -> str:
    """Return the command that trains the model again."""
    if record.kind == "pretraining":
        words = ["pretrain", "--corpus", "CORPUS"]
        start = "--from" if record.settings.get("start.model") else ""
    else:
        name = str(record.settings["task.name"])
        own = name == "table"
        words = ["finetune", "DATA"] if own else ["finetune", name, "--data", "DATA"]
        start = "" if record.origins.get("model.start") == Origin() else "--model"
    words += [start, "MODEL"] if start else []
    recipes = sorted({o.detail for o in record.origins.values() if o.kind == "recipe"})
    words += ["--recipe", recipes[0]] if recipes else []
    presets = {o.detail for o in record.origins.values() if o.kind == "preset" and o.is_typed}
    words += [word for name in presets for word in ("--preset", name)]
    words += ["--name", record.name]
    for name, origin in sorted(record.origins.items()):
        is_private = name.startswith("data.") or name in ("start.model", "model.start", "task.name")
        if origin.kind in _SET_BY_HAND and not is_private:
            value = record.settings.get(name)
            words.append(f"{name}={value if isinstance(value, str) else json.dumps(value)}")
    return shlex.join(["litebert", *words])


def _evaluation(record: Record, kept: str) -> EvaluatedStep:
    """Return the evaluation of the last step, or of the best one for the model in `best`."""
    if result := read_result(record.folder):
        return result.best if kept == "best" else result.last
    if not record.evaluations:
        return EvaluatedStep(step=0, measures={})
    return EvaluatedStep.of(record.evaluations[-1])
