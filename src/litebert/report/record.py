"""A run read back: its settings, what it ran on, and every row of its log."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from litebert.errors import DamagedError, LitebertError
from litebert.files import Json, read_json

RUN_FILE = "run.json"
METRICS_FILE = "metrics.jsonl"
Kind = Literal["pretraining", "fine-tuning"]


@dataclass(frozen=True)
class Row:
    """One row of metrics.jsonl: numbers by name, some perhaps not finite; a note has text."""

    kind: str
    step: int
    values: dict[str, float]
    text: str = ""


@dataclass(frozen=True)
class Record:
    """A run as its two files tell it; what they do not tell is empty."""

    folder: Path
    version: str
    settings: dict[str, Json]
    origins: dict[str, Json]
    data: dict[str, Json]
    environment: dict[str, Json]
    training: tuple[Row, ...]
    evaluations: tuple[Row, ...]
    notes: tuple[Row, ...]
    has_model: bool

    @property
    def name(self) -> str:
        """Name of the run: that of its folder."""
        return self.folder.resolve().name

    @property
    def kind(self) -> Kind:
        """What was done: only fine-tuning is told a task."""
        return "fine-tuning" if "task.name" in self.settings else "pretraining"

    def setting(self, name: str) -> str:
        """One setting in words."""
        value = self.settings.get(name, "unknown")
        return f"{value:,}" if isinstance(value, int | float) else str(value)

    @property
    def step(self) -> int:
        """The last step that was written down."""
        return max((row.step for row in (*self.training, *self.evaluations)), default=0)

    @property
    def tokens(self) -> int:
        """Tokens trained on, padding never counted."""
        return int(sum(finite(self.training, "tokens")))

    @property
    def seconds(self) -> float:
        """Time spent training; held-out evaluations are not in it."""
        return sum(
            row.values["tokens"] / row.values["tokens_per_second"]
            for row in self.training
            if row.values.get("tokens_per_second", 0) > 0 and "tokens" in row.values
        )

    @property
    def trains_sentences(self) -> bool:
        """Whether a second objective, sentence order or next sentence, was measured."""
        rows = (*self.training[-1:], *self.evaluations[-1:])
        return any("sentence_order_accuracy" in row.values for row in rows)


def read_record(folder: Path) -> Record:
    """Read run.json and metrics.jsonl of a run; a run without rows yet is a run."""
    if not (folder / RUN_FILE).exists():
        raise LitebertError(
            "LB-650",
            f"{folder} is not a run",
            received="a folder without run.json" if folder.is_dir() else "no such folder",
            expected="a folder made by litebert pretrain or litebert finetune",
            next="ls runs",
        )
    run = read_json(folder / RUN_FILE, command=f"ls {folder}")
    rows = _rows(folder)
    return Record(
        folder=folder,
        version=str(run.get("litebert", "unknown")),
        settings=_table(run, "settings"),
        origins=_table(run, "origins"),
        data=_table(run, "data"),
        environment=_table(run, "environment"),
        training=tuple(row for row in rows if row.kind == "train"),
        evaluations=tuple(row for row in rows if row.kind == "eval"),
        notes=tuple(row for row in rows if row.kind == "note"),
        has_model=(folder / "model" / "config.json").is_file(),
    )


def finite(rows: Sequence[Row], name: str) -> list[float]:
    """Return one number of all rows that have it, leaving out NaN and infinity."""
    values = (row.values.get(name, math.nan) for row in rows)
    return [value for value in values if math.isfinite(value)]


def _rows(folder: Path) -> list[Row]:
    try:
        text = (folder / METRICS_FILE).read_text(encoding="utf-8")
        # A last line without its end was cut off by a crash.
        return [_row(json.loads(line)) for line in text[: text.rfind("\n") + 1].splitlines()]
    except FileNotFoundError:
        return []
    except (OSError, ValueError, OverflowError, RecursionError) as error:
        raise DamagedError(
            "LB-651",
            f"{folder / METRICS_FILE} cannot be read",
            received=str(error),
            expected="one JSON object a line, as litebert writes them",
            next=f"delete the damaged line of {folder / METRICS_FILE}",
        ) from error


def _row(row: Json) -> Row:
    if not isinstance(row, dict) or not isinstance(row.get("kind"), str):
        raise ValueError(f"no row of a run: {row!r}")
    step = row.get("step")
    if not isinstance(step, int) or not 0 <= step < 1 << 53:
        raise ValueError(f"no step: {step!r}")
    numbers = {
        name: float(value)
        for name, value in row.items()
        if type(value) is float or type(value) is int
    }
    return Row(str(row["kind"]), step, numbers, str(row.get("text", "")))


def _table(run: dict[str, Json], name: str) -> dict[str, Json]:
    value = run.get(name)
    return value if isinstance(value, dict) else {}
