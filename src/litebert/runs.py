"""A run on disk: run.json, metrics.jsonl, result.json and the answers.

`RunFolder` reads them. A folder with runs in seed-N subfolders is itself a run, with several
seeds.
"""

import json
import math
import os
import re
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from shlex import quote
from typing import Literal, NamedTuple, Self, TypeVar

from pydantic import (
    BaseModel,
    Field,
    JsonValue,
    TypeAdapter,
    ValidationError,
    model_validator,
)

from litebert.errors import DamagedError, LitebertError
from litebert.files import (
    Json,
    append_line,
    as_path,
    is_staging,
    read_capped,
    read_json,
    write_text,
)
from litebert.origins import Origin
from litebert.plugins import require_plugins, with_plugins
from litebert.settings import describe_invalid

RUN_FILE = "run.json"
METRICS_FILE = "metrics.jsonl"
RESULT_FILE = "result.json"
ANSWERS = "answers"
DAMAGED_FILE = "metrics.damaged"
# What run.json records of a table to train on: its bytes, and what was read from it, which
# another order of its columns leaves as it was.
FILE_HASH = "train_hash"
EXAMPLES_HASH = "train hash"
HOLDER = ".lock"  # names the process that works in the folder
_HOLDER_TEXT = re.compile(rb"pid \d+ on ")
RESTORE = "restore it, or start again under another --name"
Record = TypeVar("Record", bound=BaseModel)


def _damaged(path: Path, received: str, advice: str = RESTORE) -> DamagedError:
    return DamagedError("LB-651", f"{path} is damaged", received=received, next=advice)


def require_distinct(seeds: Sequence[int]) -> None:
    """Check that no seed is given twice: it would give the same run twice, which is no
    evidence of a spread.
    """
    if len({*seeds}) < len(seeds):
        raise LitebertError(
            "LB-539",
            "a seed is given twice",
            received=[*seeds],
            next="give each seed once",
        )


def read_record(kind: type[Record], path: Path, advice: str = RESTORE) -> Record | None:
    """Read a record from a JSON file, if there is this file; the advice is for a
    damaged one.
    """
    if not path.exists():
        return None
    try:
        return kind.model_validate(read_json(path))
    except ValidationError as error:
        raise _damaged(path, describe_invalid(error), advice) from error


# ---- run.json: settings with their origins, data, environment ------------------------


class RunFile(BaseModel, frozen=True):
    """The contents of run.json."""

    format: int = 1
    litebert: str = "unknown"
    settings: dict[str, JsonValue] = {}
    origins: dict[str, str] = {}  # the phrases of `Origin`
    data: dict[str, JsonValue] = {}
    plugins: dict[str, str] = {}  # the file of each plug-in that the run needs
    environment: dict[str, JsonValue] = {}

    def origin_of(self, setting: str) -> Origin | None:
        """Return where a setting got its value; None if the file does not say it."""
        phrase = self.origins.get(setting)
        return None if phrase is None else Origin.parse(phrase)


def is_run(folder: Path) -> bool:
    return (folder / RUN_FILE).is_file()


# ---- whose folder it is --------------------------------------------------------------


def require_run_folder(folder: Path) -> None:
    """Refuse a folder that has files, unless it is a run or one was begun in it."""
    _require_no_file_above(folder)
    if not folder.is_dir() or is_begun(folder):
        return
    for path in sorted(folder.iterdir()):
        if path.name != ".DS_Store" and not is_staging(path):
            raise LitebertError(
                "LB-652",
                f"{folder} is not a run, and has files that litebert did not write",
                received=path.name,
                expected="a run, or a new or empty folder",
                next="choose another --name, or another --runs folder",
            )


def _require_no_file_above(folder: Path) -> None:
    for place in folder.parents:
        if place.is_file():
            raise LitebertError(
                "LB-652",
                f"{place} is a file, and a run is a folder",
                received=str(folder),
                next="choose another --name, or another --runs folder",
            )


def is_begun(folder: Path) -> bool:
    """Return whether litebert began a run in a folder, of one seed or of several."""
    if _has_record(folder):
        return True
    parts = [path for path in folder.glob("seed-*") if _SEED.fullmatch(path.name)]
    return any(map(_has_record, parts))


def _has_record(folder: Path) -> bool:
    holder = folder / HOLDER
    if holder.is_file() and not holder.is_symlink():
        text = read_capped(holder, 1_000)
        if _HOLDER_TEXT.match(text):
            return True
    return has_settings(folder)


def has_settings(folder: Path) -> bool:
    """Return whether a folder has a run.json that litebert wrote; other tools have
    files of this name, too.
    """
    path = folder / RUN_FILE
    if not path.is_file():
        return False
    try:
        record = RunFile.model_validate(read_json(path))
    except (LitebertError, ValidationError):
        return False
    return any(name.startswith("train.") for name in record.settings)


def claim(folder: Path) -> None:
    """Write into the folder of a run which process works there."""
    require_run_folder(folder)
    write_text(folder / HOLDER, f"pid {os.getpid()} on {socket.gethostname()}\n")


def holder_of(folder: Path) -> str | None:
    """Return which process works, or last worked, in the folder of a run."""
    holder = folder / HOLDER
    return holder.read_text("utf-8").strip() if holder.is_file() else None


# ---- metrics.jsonl: one JSON object per line -----------------------------------------


class MeasuredStep(BaseModel, frozen=True, extra="allow"):
    """A step and its finite numbers by name; in a file they are one flat object."""

    __pydantic_extra__: dict[str, float]

    step: int = Field(ge=0, lt=1 << 53)

    @property
    def values(self) -> dict[str, float]:
        return self.__pydantic_extra__

    @model_validator(mode="before")
    @classmethod
    def _finite(cls, row: Json) -> Json:
        """Leave out values that are not finite (null if litebert wrote them) or not
        numbers.
        """
        if not isinstance(row, dict):
            return row
        kept = dict[str, Json]()
        for name, value in row.items():
            is_finite = isinstance(value, int | float) and math.isfinite(value)
            if name in cls.model_fields or is_finite:
                kept[name] = value
        return kept


class LogRow(MeasuredStep):
    """A row of metrics.jsonl: of training (`train`), of an evaluation (`eval`), or a
    note with its text.
    """

    kind: str
    text: str = ""


def line_of(row: dict[str, Json]) -> str:
    """Write a row as JSON; numbers that are not finite become null."""
    values = dict(row)
    for name, value in row.items():
        if isinstance(value, float) and not math.isfinite(value):
            values[name] = None
    return json.dumps(values, allow_nan=False)


class DamagedLine(NamedTuple):
    """A line of metrics.jsonl that is not a row."""

    number: int
    text: str
    problem: str


def read_log(folder: Path) -> tuple[list[dict[str, Json]], list[DamagedLine]]:
    """Return the valid rows, and the lines that are none; a last line cut off is
    ignored.
    """
    rows = list[dict[str, Json]]()
    damaged = list[DamagedLine]()
    for number, line in enumerate(_lines_of(folder / METRICS_FILE), start=1):
        text = line.decode("utf-8", "replace")
        try:
            row = json.loads(text)
            LogRow.model_validate(row)
        except ValidationError as error:
            damaged.append(DamagedLine(number, text, describe_invalid(error)))
        except (ValueError, OverflowError, RecursionError) as error:
            damaged.append(DamagedLine(number, text, str(error)))
        else:
            rows.append(row)
    return rows, damaged


def _lines_of(path: Path) -> list[bytes]:
    """Return the complete lines of a log; none if it does not exist yet."""
    if not path.exists():
        return []
    *lines, last = path.read_bytes().split(b"\n")
    if last.endswith(b"}"):  # complete, only its line end is missing
        lines.append(last)
    return lines


def read_metrics(folder: Path) -> list[dict[str, Json]]:
    """Read all rows; an invalid line is an error."""
    rows, damaged = read_log(folder)
    if not damaged:
        return rows
    first = damaged[0]
    received = f"line {first.number}: {first.problem}"
    if len(damaged) > 1:
        received += f", and {len(damaged) - 1} more lines"
    raise _damaged(folder / METRICS_FILE, received, "delete these lines")


def truncate_after(folder: Path, step: int) -> list[int]:
    """Drop the rows after `step`; move damaged lines to metrics.damaged and return
    their numbers.
    """
    if not (folder / METRICS_FILE).exists():
        return []
    rows, damaged = read_log(folder)
    for line in damaged:
        append_line(folder / DAMAGED_FILE, f"line {line.number}: {line.text}")
    kept = [line_of(row) for row in rows if LogRow.model_validate(row).step <= step]
    write_text(folder / METRICS_FILE, "".join(f"{line}\n" for line in kept))
    return [line.number for line in damaged]


# ---- result.json: the measures of fine-tuning, for the last step and for the best evaluation


class Calibration(BaseModel, frozen=True):
    """The temperature that the logits of a model were divided by, fitted on held-out
    rows, and their mean loss before and after.

    Each half of the rows is measured with the temperature of the other half.
    """

    temperature: float
    num_rows: int
    loss_before: float
    loss_after: float

    def __str__(self) -> str:
        return (
            f"temperature {self.temperature:.2f}, fitted on {self.num_rows:,} held-out"
            f" rows: their loss falls from {self.loss_before:.3f} to"
            f" {self.loss_after:.3f}"
        )


class Result(BaseModel, frozen=True, populate_by_name=True):
    """The last step of a run, and its best evaluation by the key measure."""

    task: str
    key_measure: str
    last: MeasuredStep
    best: MeasuredStep
    # what the vectors of the start model give before any training; None if they were
    # not used
    first: MeasuredStep | None = None
    # which of them is in model/: the best evaluation if training lost what the start
    # knew
    kept: Literal["last", "best"] = "last"
    num_evaluations: int = Field(alias="evaluations")
    seed: int | None = None
    start: str | None = None
    fresh: tuple[str, ...]
    # the measures of always predicting the most common training label
    baseline: dict[str, float] = {}
    doubts: tuple[str, ...] = ()  # reasons not to trust the last step
    # of the probabilities that model/ gives; None if they are those of the training
    calibration: Calibration | None = None

    @property
    def of_model(self) -> MeasuredStep:
        """The measures of the model in model/."""
        return self.best if self.kept == "best" else self.last

    @model_validator(mode="after")
    def _check(self) -> Self:
        for end in (self.last, self.best):
            if self.key_measure not in end.values:
                raise ValueError(f"no {self.key_measure} in {sorted(end.values)}")
        return self


# ---- answers/<split>.jsonl: what a fine-tuned model answered on its held-out sets ----


@dataclass(frozen=True)
class AnswerRow:
    """One answer and what was expected, as text: for files of answers and the report's
    errors.
    """

    id: str
    text: str
    expected: str | None
    answer: str
    # the probability of the answer; None if the kind of task has none
    confidence: float | None
    # 1 if right, 0 if wrong, or between (F1 of a span, closeness of a number); None
    # without a label
    score: float | None

    @property
    def is_blank(self) -> bool:  # a blank text has no answer
        return not self.answer and self.confidence is None

    @property
    def is_right(self) -> bool:
        return (self.score or 0.0) >= 1


def read_answers(folder: Path) -> dict[str, list[AnswerRow]]:
    """Read the answers of a run by split; examples without a label are skipped."""
    answers = dict[str, list[AnswerRow]]()
    record = TypeAdapter(AnswerRow)
    for path in sorted((folder / ANSWERS).glob("*.jsonl")):
        # A text may contain characters that splitlines treats as line ends.
        for number, line in enumerate(path.read_bytes().split(b"\n"), start=1):
            if not line:  # the end of the file
                continue
            try:
                row = record.validate_json(line, strict=True)
            except ValidationError as error:
                problem = f"line {number}: {describe_invalid(error)}"
                raise _damaged(path, problem) from error
            if row.expected is not None:
                answers.setdefault(path.stem, []).append(row)
    return answers


# ---- the run -------------------------------------------------------------------------

_SEED = re.compile(r"seed-([0-9]{1,19})")


@dataclass(frozen=True)
class RunFolder:
    """A run, finished or not; its files are read on first access, and what they lack is
    empty.

    With several seeds, `seeds` has a run for each, in order; settings, origins and data
    are those of the first.
    """

    folder: Path

    def __post_init__(self) -> None:  # a string is accepted, too
        object.__setattr__(self, "folder", as_path(self.folder, "the folder of a run"))

    @classmethod
    def open(cls, folder: str | Path) -> Self:
        run = cls(as_path(folder, "the folder of a run"))
        run.require_begun()
        return run

    def require_begun(self) -> None:
        """Refuse a folder that is no run."""
        if is_run(self.folder) or self.seeds:
            return
        received = "no such folder"
        if self.folder.is_dir():
            received = "a folder without run.json"
        advice = "litebert runs list"
        named = "runs" / self.folder  # `runs list` prints names of folders in runs
        if is_run(named):
            advice = f"give its folder, {named}"
        raise LitebertError(
            "LB-650", f"{self.folder} is not a run", received=received, next=advice
        )

    @classmethod
    def of(cls, path: str | Path) -> Self | None:
        """Return the run that a folder is, or whose model it is; None if there is none;
        refuse one of several seeds.
        """
        seeds = RunFolder(Path(path)).seeds
        if seeds:
            raise LitebertError(
                "LB-657",
                f"{path} is a run of several seeds",
                next=f"name one, {seeds[0].folder}",
            )
        folder = Path(path).absolute()
        if folder.name in ("model", "best") and not is_run(folder):
            folder = folder.parent
        return cls(folder) if is_run(folder) else None

    @cached_property
    def seeds(self) -> tuple[Self, ...]:
        """The runs seed-1, seed-2, ... of one command with several seeds, in the order
        of their numbers.
        """
        if is_run(self.folder):
            return ()
        runs = list[Self]()
        for path in self.folder.glob("seed-*"):
            if is_run(path) and _SEED.fullmatch(path.name):
                runs.append(type(self)(path))
        return tuple(sorted(runs, key=lambda run: run.seed))

    @property
    def parts(self) -> tuple[Self, ...]:
        """The runs of the seeds; without seeds, the run itself."""
        return self.seeds or (self,)

    @property
    def seed(self) -> int:
        """The number N in the name seed-N, for a run that is one of several."""
        return int(self.folder.name.removeprefix("seed-"))

    @property
    def name(self) -> str:
        return self.folder.resolve().name

    @cached_property
    def file(self) -> RunFile:
        return read_record(RunFile, self.parts[0].folder / RUN_FILE) or RunFile()

    @property
    def settings(self) -> dict[str, JsonValue]:
        return self.file.settings

    def setting(self, name: str) -> str:
        value = self.settings.get(name, "unknown")
        return f"{value:,}" if isinstance(value, int | float) else str(value)

    @property
    def kind(self) -> Literal["pretraining", "fine-tuning"]:
        """The kind of run; only fine-tuning has a task."""
        return "fine-tuning" if "task.name" in self.settings else "pretraining"

    @property
    def has_model(self) -> bool:
        return (self.folder / "model" / "config.json").is_file()

    @cached_property
    def config(self) -> dict[str, Json]:
        """The config.json of the model; empty if there is no model."""
        if not self.has_model:
            return {}
        return read_json(self.folder / "model" / "config.json")

    def command(self, words: str) -> str:
        """Return a command that reads the run, with its plug-ins."""
        return with_plugins(f"litebert {words}", self.file.plugins.values())

    def model_command(self, words: str) -> str:
        """Return a command that uses the model, with the plug-ins that it needs."""
        needed = self.config.get("litebert_plugins")
        files = list[str]()
        if isinstance(needed, list):
            for name in map(str, needed):
                files.append(self.file.plugins.get(name, f"{name}.py"))
        model = quote(str(self.folder / "model"))
        return with_plugins(f"litebert {words} --model {model}", files)

    def require_plugins(self) -> None:
        """Check that the plug-ins that the run was begun with are loaded."""
        plugins = self.file.plugins
        require_plugins(plugins, self.folder, plugins)

    @property
    def is_finished(self) -> bool:
        """Whether the model is written, which is the last thing that training does;
        with several seeds, every one.
        """
        return all(run.has_model for run in self.parts)

    @property
    def finished(self) -> tuple[Self, ...]:
        """The finished ones of the parts."""
        return tuple(run for run in self.parts if run.has_model)

    @cached_property
    def outcome(self) -> Result | None:  # None until it is finished
        return read_record(Result, self.folder / RESULT_FILE)

    @cached_property
    def rows(self) -> tuple[LogRow, ...]:
        return tuple(LogRow.model_validate(row) for row in read_metrics(self.folder))

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
        return int(sum(row.values.get("tokens", 0) for row in self.training))
