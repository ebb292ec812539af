"""What a run wrote down about the model that lies in it: settings, data, measures."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from pydantic import JsonValue

from litebert.config import Origin
from litebert.runs import Evaluation, Record, is_run, read_record, read_result

_LEFT_OUT = ("model.", "data.")


@dataclass(frozen=True)
class RunFacts:
    """A run in short: how it was trained, on which data (by hash), and this model's measures.

    `settings` are those that were set; the network's are in its config.json, and paths are private.
    """

    name: str
    version: str
    step: int
    settings: dict[str, JsonValue]
    data: dict[str, JsonValue]
    measures: dict[str, float]


def run_facts(folder: Path) -> RunFacts | None:
    """Return the facts of the run that a model folder lies in (runs/<name>/model), if it does.

    Raises:
        DamagedError: LB-540, LB-651, LB-653, its record cannot be read.
    """
    run = folder.absolute().parent
    if not is_run(run):
        return None
    record = read_record(run)
    evaluation = _evaluation(record, folder.name)
    return RunFacts(
        name=run.name,
        version=record.version,
        step=evaluation.step,
        settings={
            name: value
            for name, value in record.settings.items()
            if record.origins.get(name) != Origin() and not name.startswith(_LEFT_OUT)
        },
        data=record.data,
        measures=evaluation.measures,
    )


def _evaluation(record: Record, kept: str) -> Evaluation:
    """Return the evaluation of this model: of the last step, or of the best one (runs/.../best)."""
    if result := read_result(record.folder):
        return result.best if kept == "best" else result.last
    if not record.evaluations:
        return Evaluation(step=0, measures={})
    return Evaluation.of(record.evaluations[-1])
