"""A run read from disk: its settings, what it ran on, and every row of its log."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import JsonValue

from litebert.config import Origin
from litebert.errors import LitebertError
from litebert.runs.metrics import LogRow, read_rows
from litebert.runs.run import Kind, read_run


@dataclass(frozen=True)
class Record:
    """A run as its two files tell it; what they do not tell is empty."""

    folder: Path
    kind: Kind
    version: str
    settings: dict[str, JsonValue]
    origins: dict[str, Origin]
    data: dict[str, JsonValue]
    environment: dict[str, JsonValue]
    training: tuple[LogRow, ...]
    evaluations: tuple[LogRow, ...]
    notes: tuple[LogRow, ...]
    has_model: bool

    @property
    def name(self) -> str:
        """Name of the run: that of its folder."""
        return self.folder.resolve().name

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
    run = read_run(folder)
    if run is None:
        raise LitebertError(
            "LB-650",
            f"{folder} is not a run",
            received="a folder without run.json" if folder.is_dir() else "no such folder",
            expected="a folder made by litebert pretrain or litebert finetune",
            next="ls runs",
        )
    rows = read_rows(folder)
    return Record(
        folder=folder,
        kind=run.kind,
        version=run.litebert,
        settings=run.settings,
        origins=run.origins,
        data=run.data,
        environment=run.environment,
        training=tuple(row for row in rows if row.kind == "train"),
        evaluations=tuple(row for row in rows if row.kind == "eval"),
        notes=tuple(row for row in rows if row.kind == "note"),
        has_model=(folder / "model" / "config.json").is_file(),
    )


def finite(rows: Sequence[LogRow], name: str) -> list[float]:
    """Return one number of all rows that have it, leaving out NaN and infinity."""
    values = (row.values.get(name, math.nan) for row in rows)
    return [value for value in values if math.isfinite(value)]
