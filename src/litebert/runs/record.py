"""A run as read from disk: its settings, its environment, and every row of its log."""

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
    """The contents of run.json and metrics.jsonl; what they do not say is empty."""

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
        """The name of the run: that of its folder."""
        return self.folder.resolve().name

    def setting(self, name: str) -> str:
        """Return one setting as text."""
        value = self.settings.get(name, "unknown")
        return f"{value:,}" if isinstance(value, int | float) else str(value)

    @property
    def step(self) -> int:
        """The last recorded step."""
        return max((row.step for row in (*self.training, *self.evaluations)), default=0)

    @property
    def tokens(self) -> int:
        """The number of tokens trained on, without padding."""
        return int(sum(finite(self.training, "tokens")))

    @property
    def seconds(self) -> float:
        """The time spent on training, without evaluations."""
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
    """Read run.json and metrics.jsonl of a run, which may have no rows yet.

    Raises:
        LitebertError: LB-650, the folder is not a run.
        DamagedError: LB-540, LB-651, a file is damaged.
    """
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
    """Return the finite values of one number in all rows that have it."""
    values = (row.values.get(name, math.nan) for row in rows)
    return [value for value in values if math.isfinite(value)]
