"""A run on disk: run.json, metrics.jsonl, result.json and the answers.

`Run` reads them. A folder whose seed-N folders are runs is a run, too: that of several seeds.
"""

import json
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Literal, Self, TypeAlias, TypeVar

from pydantic import BaseModel, Field, JsonValue, TypeAdapter, ValidationError, model_validator

from litebert.errors import DamagedError, LitebertError
from litebert.files import Json, append_line, as_path, read_json, write_text
from litebert.settings import refused

RUN_FILE, METRICS_FILE, RESULT_FILE, ANSWERS = "run.json", "metrics.jsonl", "result.json", "answers"
DAMAGED_FILE = "metrics.damaged"
Kind = Literal["pretraining", "fine-tuning"]
Listener: TypeAlias = Callable[[dict[str, Json]], None]
"""Receives every row of metrics.jsonl."""


# ---- run.json: settings with their origins, data, environment -------------------------------------------------------


class RunFile(BaseModel, frozen=True):
    """The contents of run.json."""

    format: int = 1
    litebert: str = "unknown"
    settings: dict[str, JsonValue] = {}
    origins: dict[str, str] = {}
    data: dict[str, JsonValue] = {}
    environment: dict[str, JsonValue] = {}


def is_run(folder: Path) -> bool:
    return (folder / RUN_FILE).is_file()


def read_run(folder: Path) -> RunFile | None:
    """Read run.json; None if no run was begun."""
    return _read_record(RunFile, folder / RUN_FILE, "LB-540", "restore it, or start again under another --name")


Record = TypeVar("Record", bound=BaseModel)


def _read_record(kind: type[Record], path: Path, code: str, advice: str) -> Record | None:
    if not path.exists():
        return None
    try:
        return kind.model_validate(read_json(path, command=f"ls {path.parent}"))
    except ValidationError as error:
        raise DamagedError(code, f"{path} is damaged", received=refused(error), next=advice) from error


# ---- metrics.jsonl: one JSON object per line ------------------------------------------------------------------------


@dataclass(frozen=True)
class LogRow:
    """One row: numbers by name, which may not be finite; a note has text."""

    kind: str
    step: int
    values: dict[str, float]
    text: str = ""

    @classmethod
    def read(cls, row: Json) -> Self:
        """Read a line of the log; ValueError if it is none."""
        if not isinstance(row, dict) or not isinstance(row.get("kind"), str):
            raise ValueError(f"no row of a run: {row!r:.80}")
        step = row.get("step")
        if not isinstance(step, int) or not 0 <= step < 1 << 53:
            raise ValueError(f"no step: {step!r:.80}")
        numbers = {n: float(v) for n, v in row.items() if isinstance(v, int | float) and not isinstance(v, bool)}
        del numbers["step"]
        return cls(str(row["kind"]), step, numbers, str(row.get("text", "")))


def line_of(row: dict[str, Json]) -> str:
    """Write a row as JSON; numbers that are not finite become null."""
    values = {n: None if isinstance(v, float) and not math.isfinite(v) else v for n, v in row.items()}
    return json.dumps(values, allow_nan=False)


def read_log(folder: Path) -> tuple[list[dict[str, Json]], dict[int, tuple[str, str]]]:
    """Return the valid rows; and by number, each line that is none, with its problem.

    A last line that a crash cut off is ignored.
    """
    path = folder / METRICS_FILE
    *lines, last = path.read_bytes().split(b"\n") if path.exists() else [b""]
    rows, damaged = list[dict[str, Json]](), dict[int, tuple[str, str]]()
    for number, line in enumerate([*lines, last] if last.endswith(b"}") else lines, start=1):
        text = line.decode("utf-8", "replace")
        try:
            LogRow.read(row := json.loads(text))
            rows.append(row)
        except (ValueError, OverflowError, RecursionError) as error:
            damaged[number] = (text, str(error))
    return rows, damaged


def read_metrics(folder: Path) -> list[dict[str, Json]]:
    """Read all rows; a line that is none is an error."""
    rows, damaged = read_log(folder)
    if damaged:
        path, (number, (_, problem)) = folder / METRICS_FILE, next(iter(damaged.items()))
        others = f", and {len(damaged) - 1} more lines" if len(damaged) > 1 else ""
        found, advice = f"line {number}: {problem}{others}", f"delete line {number} of {path}"
        raise DamagedError("LB-651", f"{path} is damaged", received=found, next=advice)
    return rows


def truncate_after(folder: Path, step: int) -> list[int]:
    """Drop the rows after `step`; move damaged lines to metrics.damaged and return their numbers."""
    if not (folder / METRICS_FILE).exists():
        return []
    rows, damaged = read_log(folder)
    for number, (text, _) in damaged.items():
        append_line(folder / DAMAGED_FILE, f"line {number}: {text}")
    kept = [line_of(row) for row in rows if LogRow.read(row).step <= step]
    write_text(folder / METRICS_FILE, "".join(f"{line}\n" for line in kept))
    return list(damaged)


def finite(rows: Sequence[LogRow], name: str) -> list[float]:
    """Return the finite values of one number in all rows that have it."""
    return [row.values[name] for row in rows if math.isfinite(row.values.get(name, math.nan))]


# ---- result.json: the measures of fine-tuning, for the last step and for the best evaluation ------------------------


class EvaluatedStep(BaseModel, frozen=True, extra="allow"):
    """A step, and all measures of its evaluation by name; in the file they are one flat object."""

    __pydantic_extra__: dict[str, float]

    step: int

    @property
    def measures(self) -> dict[str, float]:
        return self.__pydantic_extra__

    @classmethod
    def of(cls, row: LogRow) -> Self:
        """Return the finite numbers of one row of metrics.jsonl."""
        measures = {name: value for name, value in row.values.items() if math.isfinite(value)}
        return cls.model_validate({**measures, "step": row.step})


class Result(BaseModel, frozen=True, populate_by_name=True):
    """The last step of a run, and its best evaluation by the key measure."""

    task: str
    key_measure: str
    last: EvaluatedStep
    best: EvaluatedStep
    num_evaluations: int = Field(alias="evaluations")
    seed: int | None = None
    start: str | None = None
    fresh: tuple[str, ...]
    baseline: dict[str, float] = {}  # the measures of always giving the commonest label of the training examples
    doubts: tuple[str, ...] = ()  # reasons not to trust the last step

    @model_validator(mode="after")
    def _check(self) -> Self:
        for each in (self.last, self.best):
            if self.key_measure not in each.measures:
                raise ValueError(f"no {self.key_measure} in {sorted(each.measures)}")
        return self


def read_result(folder: Path) -> Result | None:
    """Read the result of a run; None if it is not finished."""
    return _read_record(Result, folder / RESULT_FILE, "LB-653", "delete it and run litebert finetune again")


# ---- answers/<split>.jsonl: what a fine-tuned model answered on its held-out sets -----------------------------------


@dataclass(frozen=True)
class AnswerRow:
    """One answer and what was expected, as text: for files of answers and the report's errors.

    `confidence` is the probability of the answer, None if the kind of task has none; `score` is 1 for a right answer, 0
    for a wrong one, or between (F1 of a span, closeness of a number); None without a label.
    """

    id: str
    text: str
    expected: str | None
    answer: str
    confidence: float | None
    score: float | None

    @property
    def is_right(self) -> bool:
        return (self.score or 0.0) >= 1


def read_answers(folder: Path) -> dict[str, list[AnswerRow]]:
    """Read the answers of a run by split; examples without a label are skipped."""
    found, record = dict[str, list[AnswerRow]](), TypeAdapter(AnswerRow)
    for path in sorted((folder / ANSWERS).glob("*.jsonl")):
        # A text may contain characters that splitlines treats as line ends.
        for number, line in enumerate(path.read_bytes().split(b"\n"), start=1):
            try:
                row = record.validate_json(line, strict=True) if line else None
            except ValidationError as error:
                what, advice = (
                    f"line {number}: {refused(error)}",
                    "delete it, or run litebert finetune under another --name",
                )
                raise DamagedError("LB-654", f"{path} is damaged", received=what, next=advice) from error
            if row and row.expected is not None:
                found.setdefault(path.stem, []).append(row)
    return found


# ---- the run --------------------------------------------------------------------------------------------------------

_SEED = re.compile(r"seed-([0-9]{1,19})")


@dataclass(frozen=True)
class Run:
    """A run, finished or not; its files are read when they are first asked for, and what they do not say is empty.

    Of several seeds, `seeds` has a run for each, by number; settings, origins and data are those of the first.
    """

    folder: Path

    def __post_init__(self) -> None:  # a string is a folder, too
        object.__setattr__(self, "folder", as_path(self.folder, "the folder of a run"))

    @classmethod
    def open(cls, folder: str | Path) -> Self:
        run = cls(Path(folder))
        if not is_run(run.folder) and not run.seeds:
            found = "a folder without run.json" if run.folder.is_dir() else "no such folder"
            named = "runs" / run.folder  # what `runs list` prints is the name of a folder in runs
            next_step = f"give its folder, {named}" if is_run(named) else "litebert runs list"
            raise LitebertError("LB-650", f"{run.folder} is not a run", received=found, next=next_step)
        return run

    @cached_property
    def seeds(self) -> tuple[Self, ...]:
        """The runs seed-1, seed-2, ... of one command with several seeds, in the order of their numbers."""
        folders = () if is_run(self.folder) else self.folder.glob("seed-*")
        found = [type(self)(path) for path in folders if is_run(path) and _SEED.fullmatch(path.name)]
        return tuple(sorted(found, key=lambda run: run.seed))

    @property
    def seed(self) -> int:
        """The number in the name of one run of several seeds."""
        return int(self.folder.name.removeprefix("seed-"))

    @property
    def name(self) -> str:
        return self.folder.resolve().name

    @cached_property
    def file(self) -> RunFile:
        return read_run(self.seeds[0].folder if self.seeds else self.folder) or RunFile()

    @property
    def settings(self) -> dict[str, JsonValue]:
        return self.file.settings

    def setting(self, name: str) -> str:
        value = self.settings.get(name, "unknown")
        return f"{value:,}" if isinstance(value, int | float) else str(value)

    @property
    def kind(self) -> Kind:
        """The kind of run; only fine-tuning has a task."""
        return "fine-tuning" if "task.name" in self.settings else "pretraining"

    @property
    def has_model(self) -> bool:
        return (self.folder / "model" / "config.json").is_file()

    @cached_property
    def config(self) -> dict[str, Json]:
        """The config.json of the model; empty if there is no model."""
        folder = self.folder / "model"
        return read_json(folder / "config.json", command=f"ls {folder}") if self.has_model else {}

    @property
    def is_finished(self) -> bool:
        """Whether the last step was reached and the model written."""
        if self.seeds:
            return all(run.is_finished for run in self.seeds)
        return (self.folder / RESULT_FILE).is_file() if self.kind == "fine-tuning" else self.has_model

    @cached_property
    def outcome(self) -> Result | None:
        return read_result(self.folder)

    @cached_property
    def rows(self) -> tuple[LogRow, ...]:
        return tuple(LogRow.read(row) for row in read_metrics(self.folder))

    @cached_property
    def training(self) -> tuple[LogRow, ...]:
        return tuple(row for row in self.rows if row.kind == "train")

    @cached_property
    def evaluations(self) -> tuple[LogRow, ...]:
        return tuple(row for row in self.rows if row.kind == "eval")

    @property
    def step(self) -> int:
        return max((row.step for row in (*self.training, *self.evaluations)), default=0)

    @property
    def tokens(self) -> int:
        """The number of tokens trained on, without padding."""
        return int(sum(finite(self.training, "tokens")))

    @property
    def trains_sentences(self) -> bool:
        """Whether a second objective, sentence order or next sentence, was measured."""
        rows = (*self.training[-1:], *self.evaluations[-1:])
        return any("sentence_order_accuracy" in row.values for row in rows)
