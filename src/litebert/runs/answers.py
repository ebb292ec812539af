"""The answers of a fine-tuned model on its held-out sets: answers/<split>.jsonl as records."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from pydantic import TypeAdapter

from litebert.errors import DamagedError
from litebert.files import read_json

FOLDER = "answers"


@dataclass(frozen=True)
class Answered:
    """One labelled example with its answer; see tasks.kinds.family.AnswerRow."""

    id: str
    text: str
    expected: str
    answer: str
    confidence: float | None
    score: float

    @property
    def is_right(self) -> bool:
        """Whether the answer is entirely right."""
        return self.score >= 1


_ANSWERED = TypeAdapter(Answered)


def read_answers(folder: Path) -> dict[str, list[Answered]]:
    """Read the answers of a run by split; examples without a label are skipped.

    Raises:
        DamagedError: LB-654, a line is not what litebert finetune writes.
    """
    splits = {path.stem: _rows(path) for path in sorted((folder / FOLDER).glob("*.jsonl"))}
    return {split: rows for split, rows in splits.items() if rows}


def read_labels(folder: Path) -> tuple[str, ...]:
    """Return the labels of a run's model in order; none if its head has none."""
    path = folder / "model" / "config.json"
    table = read_json(path, command=f"ls {path.parent}") if path.exists() else {}
    names = table.get("id2label")
    return tuple(map(str, names.values())) if isinstance(names, dict) else ()


def _rows(path: Path) -> list[Answered]:
    rows = []
    # A text may contain characters that splitlines treats as line ends.
    for number, line in enumerate(path.read_bytes().split(b"\n"), start=1):
        if not line:
            continue
        try:
            row = json.loads(line)
            if row["expected"] is not None and row["score"] is not None:
                rows.append(_ANSWERED.validate_json(line, strict=True))
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise DamagedError(
                "LB-654",
                f"{path} cannot be read",
                received=f"line {number}: {error!r}",
                expected="one answer per line, as litebert finetune writes them",
                next=f"delete {path}, or run litebert finetune under another --name",
            ) from error
    return rows
