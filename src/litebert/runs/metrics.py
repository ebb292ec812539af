"""metrics.jsonl: the log of a run, one JSON object per line."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path

from litebert.errors import DamagedError
from litebert.files import Json, append_line, sync_file, write_text

METRICS_FILE = "metrics.jsonl"
DAMAGED_FILE = "metrics.damaged"
_MAX_STEP = 1 << 53


@dataclass(frozen=True)
class LogRow:
    """One row: numbers by name, which may not be finite; a note has text."""

    kind: str
    step: int
    values: dict[str, float]
    text: str = ""


@dataclass(frozen=True)
class DamagedRow:
    """A line that is not a row."""

    line: int
    text: str
    problem: str


def append_row(folder: Path, row: dict[str, Json]) -> None:
    """Append one row; numbers that are not finite are written as null."""
    append_line(folder / METRICS_FILE, json.dumps(without_nan(row), allow_nan=False))


def without_nan(row: dict[str, Json]) -> dict[str, Json]:
    """Return a row with None for every number that is not finite, because JSON has none."""
    return {
        name: None if isinstance(value, float) and not math.isfinite(value) else value for name, value in row.items()
    }


def read_metrics(folder: Path) -> list[dict[str, Json]]:
    """Read all rows; a last line that a crash cut off is ignored.

    Raises:
        DamagedError: LB-651, a line is not a row.
    """
    rows, damaged = read_log(folder)
    if damaged:
        path = folder / METRICS_FILE
        raise DamagedError(
            "LB-651",
            f"{path} is damaged",
            received=f"line {damaged[0].line}: {damaged[0].problem}"
            + (f", and {len(damaged) - 1} more lines" if damaged[1:] else ""),
            expected="one JSON object per line, as litebert writes them",
            next=f"delete line {damaged[0].line} of {path}",
        )
    return rows


def read_rows(folder: Path) -> list[LogRow]:
    """Read all rows of a run as numbers by name; see `read_metrics`."""
    return [_row(row) for row in read_metrics(folder)]


def read_log(folder: Path) -> tuple[list[dict[str, Json]], list[DamagedRow]]:
    """Return the valid rows, and the lines that are not valid."""
    rows: list[dict[str, Json]] = []
    damaged: list[DamagedRow] = []
    for number, line in enumerate(_whole_lines(folder / METRICS_FILE), start=1):
        text = line.decode("utf-8", "replace")
        try:
            rows.append(_checked(json.loads(text)))
        except (ValueError, OverflowError, RecursionError) as error:
            damaged.append(DamagedRow(number, text, str(error)))
    return rows, damaged


def truncate_after(folder: Path, step: int) -> list[DamagedRow]:
    """Drop the rows after `step`; move damaged lines to metrics.damaged and return them."""
    if not (folder / METRICS_FILE).exists():
        return []
    rows, damaged = read_log(folder)
    for each in damaged:
        append_line(folder / DAMAGED_FILE, f"line {each.line}: {each.text}")
    kept = [json.dumps(without_nan(row)) for row in rows if _step(row) <= step]
    write_text(folder / METRICS_FILE, "".join(f"{line}\n" for line in kept))
    return damaged


def sync_metrics(folder: Path) -> None:
    """Sync the rows written so far, so that they survive a power cut."""
    if (folder / METRICS_FILE).exists():
        sync_file(folder / METRICS_FILE)


def _checked(row: Json) -> dict[str, Json]:
    if not isinstance(row, dict) or not isinstance(row.get("kind"), str):
        raise ValueError(f"no row of a run: {row!r:.80}")
    _row(row)  # every number is one
    return row


def _step(row: dict[str, Json]) -> int:
    step = row.get("step")
    if not isinstance(step, int) or not 0 <= step < _MAX_STEP:
        raise ValueError(f"no step: {step!r:.80}")
    return step


def _row(row: dict[str, Json]) -> LogRow:
    numbers = {
        name: float(value)
        for name, value in row.items()
        if isinstance(value, int | float) and not isinstance(value, bool)
    }
    return LogRow(str(row["kind"]), _step(row), numbers, str(row.get("text", "")))


def _whole_lines(path: Path) -> list[bytes]:
    data = path.read_bytes() if path.exists() else b""
    end = len(data) if data.endswith(b"}") else data.rfind(b"\n") + 1
    return data[:end].removesuffix(b"\n").split(b"\n") if end else []
