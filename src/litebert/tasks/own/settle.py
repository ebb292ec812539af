"""Settle how the rows of a table become examples: once on the training file, then for every file.

What is not set is guessed from the columns and, for labels, from all rows; each guess is reported.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from litebert.errors import LitebertError, RequestError, did_you_mean
from litebert.reading.tables import Row
from litebert.tasks.own.choices import ChoiceRows
from litebert.tasks.own.columns import RowShape, guess_columns, pair_flags
from litebert.tasks.own.reading import RowReading
from litebert.tasks.own.roles import Columns, Role, chosen_columns, chosen_header, require_columns
from litebert.tasks.own.rows import TableFile, open_table
from litebert.tasks.own.spans import SpanRows
from litebert.tasks.own.texts import TEXTS, TextRows
from litebert.tasks.own.values import Contents, label_of
from litebert.tasks.own.words import WordRows

LEARNT: tuple[Role, ...] = ("label", "tags", "answers", "start")
"""Roles that are not needed in a file without labels."""


READINGS: dict[RowShape, type[TextRows | WordRows | ChoiceRows | SpanRows]] = {
    reading.shape: reading for reading in (TextRows, WordRows, ChoiceRows, SpanRows)
}
"""The reading of each shape; a new shape is added here and to columns.py."""
PROBLEMS: dict[str, type[RowReading[Any, Any]]] = TEXTS | {
    reading.problem: reading for reading in (WordRows, ChoiceRows, SpanRows)
}


@dataclass(frozen=True)
class Settled:
    """A reading, and what is known about the files: whether they have headers, and their names."""

    reading: RowReading[Any, Any]
    has_header: bool | None = None
    names: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    def open(self, path: Path, *, is_labelled: bool) -> TableFile:
        """Open a file with the same columns; only with `is_labelled` does it need the labels.

        Raises:
            LitebertError: LB-851, a column is missing; or the file cannot be read.
        """
        table = open_table(path, has_header=self.has_header, known=self.names)
        needed = self.reading.columns.without(("id",) if is_labelled else ("id", *LEARNT))
        require_columns(needed, table.columns, where=f" in {path}")
        return table

    @property
    def words(self) -> tuple[str, ...]:
        """The assignments that a user would type for these columns."""
        header = ("header=no",) if self.has_header is False else ()
        return (*self.reading.columns.words(), *header)

    def example(self, table: TableFile, number: int, row: Row, *, is_labelled: bool) -> Any:
        """Turn a row into an example; its id is in the id column or, without one, its number."""
        id_column = self.reading.columns.one("id")
        own = label_of(row.get(id_column)) if id_column else None
        place = table.place(number)
        return self.reading.example(own or str(number), row, place, is_labelled=is_labelled)


def settle(table: TableFile, columns: Sequence[str], problem: str | None) -> Settled:
    """Read a training table once to settle what its rows are.

    Raises:
        LitebertError: LB-861, there is no column of labels; or a column or the problem is unclear
            or was chosen wrongly.
    """
    chosen = chosen_columns(columns, table.columns)
    shape = _reading_of(problem).shape if problem else None
    sample = table.sample()
    shape, found = guess_columns(table.columns, sample, chosen, shape)
    role = READINGS[shape].learnt
    if not found.all(role):
        raise LitebertError(
            "LB-861",
            f"{table.source.name} has no column of labels",
            received=f"columns {', '.join(table.columns)}",
            expected="a column with the right answer in every row, to learn from",
            next=f"--column {role}=NAME",
        )
    reading: RowReading[Any, Any]
    reading, summary = READINGS[shape].settle(table, found, problem)
    unused = [name for name in table.columns if name not in found.used]
    aside = f"; not used: {', '.join(unused)}" if unused else ""
    notes = (
        f"{table.source.name}: {table.writing}",
        f"columns: {' '.join(found.words())}{aside}",
        f"problem: {reading.problem}; {summary}",
        *([] if chosen.all("text") else _maybe_pairs(unused, found, Contents(sample))),
    )
    has_header = False if table.has_header is False else chosen_header(columns)
    return Settled(reading, has_header, table.columns, notes)


def _maybe_pairs(unused: Sequence[str], found: Columns, contents: Contents) -> list[str]:
    """Warn of a column that is not read although it looks like the other half of a pair."""
    text = found.one("text")
    worded = [name for name in unused if contents.is_worded(name)]
    if text is None or found.one("second") or not worded:
        return []
    pair = [name for name in contents.rows[0] if name in (text, worded[0])]
    return [f"warning: not used, though it looks like text: {', '.join(worded)}; for pairs: {pair_flags(pair)}"]


def recalled(columns: Sequence[str], problem: str | None, labels: Sequence[str]) -> Settled:
    """Return what was settled earlier, from what a run recorded.

    Raises:
        LitebertError: LB-868, the columns, the problem or the labels are missing.
    """
    chosen, known = chosen_columns(columns, None), tuple(labels)
    reading = _reading_of(problem) if problem else None
    if reading is None or not chosen.names or (reading.needs_labels and not known):
        raise LitebertError(
            "LB-868",
            "without a training file the columns, the problem and the labels are needed",
            received=f"columns {' '.join(columns)}, problem {problem}, {len(known)} labels",
            expected="what was settled when the model was trained",
            next="give the file that it was trained on",
        )
    return Settled(reading(chosen, known), chosen_header(columns), chosen.used)


def _reading_of(problem: str) -> type[RowReading[Any, Any]]:
    if problem not in PROBLEMS:
        raise RequestError(
            "LB-855",
            "there is no such problem",
            received=problem,
            expected=f"one of {', '.join(PROBLEMS)}",
            next=f"--problem classification ({did_you_mean(problem, PROBLEMS)})",
        )
    return PROBLEMS[problem]
