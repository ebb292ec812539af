"""How the rows of a table become examples: settled once on the training file, then for every file.

What is not set is guessed from the columns and, for labels, from all rows; each guess is reported.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar

from litebert.errors import LitebertError
from litebert.reading.rows import Row
from litebert.tasks.kinds.family import Answer, Family
from litebert.tasks.own.choices import Choices
from litebert.tasks.own.columns import Shape, guess_columns
from litebert.tasks.own.labels import require_problem
from litebert.tasks.own.roles import (
    Columns,
    Role,
    chosen_columns,
    chosen_header,
    require_columns,
)
from litebert.tasks.own.rows import Table, open_table
from litebert.tasks.own.spans import Spans
from litebert.tasks.own.texts import Texts
from litebert.tasks.own.values import label_of
from litebert.tasks.own.words import Words

Read = TypeVar("Read")
LEARNT: tuple[Role, ...] = ("label", "tags", "answers", "start")
"""Roles that a file to be answered need not have."""


class Reading(Protocol[Read, Answer]):
    """How rows of one shape become examples."""

    @property
    def columns(self) -> Columns:
        """Which column plays which role."""

    @property
    def problem(self) -> str:
        """What is to be learnt, one of `PROBLEMS`."""

    @property
    def labels(self) -> tuple[str, ...]:
        """Names of labels, tags or choices, as they stand in the file."""

    @property
    def family(self) -> Family[Read, Answer]:
        """The kind of task."""

    @property
    def key_measure(self) -> str:
        """The measure by which evaluations are compared."""

    def example(self, id: str, row: Row, place: str, *, is_labelled: bool) -> Read:
        """Turn a row into an example; raises LitebertError with the row's place."""

    def lacks_label(self, row: Row, /) -> bool:
        """Whether a row says nothing to learn."""

    def stratum(self, example: Read) -> str:
        """Return the label, if there is one: held-out rows are the same share of each."""

    def key(self, example: Read) -> str:
        """Return what may not be both trained and evaluated on."""


READINGS: dict[Shape, type[Texts | Words | Choices | Spans]] = {
    reading.shape: reading for reading in (Texts, Words, Choices, Spans)
}
"""How rows of each shape are read; another shape is added here and to columns.py."""


@dataclass(frozen=True)
class Settled:
    """A reading, with what is known of files: do they have headers, and which names in them."""

    reading: Reading[Any, Any]
    has_header: bool | None = None
    names: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    def open(self, path: Path, *, is_labelled: bool) -> Table:
        """Open a file with the same columns; where labels are not needed, it may lack theirs.

        Raises:
            LitebertError: LB-851, a column is missing; the file cannot be read.
        """
        table = open_table(path, has_header=self.has_header, known=self.names)
        needed = self.reading.columns.without(("id",) if is_labelled else ("id", *LEARNT))
        require_columns(needed, table.columns, where=f" in {path}")
        return table

    @property
    def words(self) -> tuple[str, ...]:
        """Return what one would type to choose the same columns."""
        header = ("header=no",) if self.has_header is False else ()
        return (*self.reading.columns.words(), *header)

    def example(self, table: Table, number: int, row: Row, *, is_labelled: bool) -> Any:
        """Turn a row into an example, called by its id or, without one, by its number."""
        id_column = self.reading.columns.one("id")
        own = label_of(row.get(id_column)) if id_column else None
        place = table.place(number)
        return self.reading.example(own or str(number), row, place, is_labelled=is_labelled)


def settle(table: Table, columns: Sequence[str], problem: str | None) -> Settled:
    """Read a training table once to settle what its rows are.

    Raises:
        LitebertError: A column or the problem cannot be told, or is not as it was chosen; the
            table is not valid.
    """
    chosen = chosen_columns(columns, table.columns)
    shape, found = guess_columns(table.columns, table.sample(), chosen, require_problem(problem))
    reading: Reading[Any, Any]
    reading, summary = READINGS[shape].settle(table, found, problem)
    unused = [name for name in table.columns if name not in found.used]
    aside = f"; not used: {', '.join(unused)}" if unused else ""
    notes = (
        f"{table.source.name}: {table.writing}",
        f"columns: {' '.join(found.words())}{aside}",
        f"problem: {reading.problem}; {summary}",
    )
    has_header = False if table.has_header is False else chosen_header(columns)
    return Settled(reading, has_header, table.columns, notes)


def recalled(columns: Sequence[str], problem: str | None, labels: Sequence[str]) -> Settled:
    """Return what was settled earlier, from its words.

    Raises:
        LitebertError: LB-868, it does not say all that is needed.
    """
    chosen, known = chosen_columns(columns, None), tuple(labels)
    shape = require_problem(problem)
    if not problem or shape is None or not chosen.names or not (known or shape == "spans"):
        raise LitebertError(
            "LB-868",
            "without a training file the columns, the problem and the labels are needed",
            received=f"columns {' '.join(columns)}, problem {problem}, {len(known)} labels",
            expected="what was settled when the model was trained",
            next="give the file that it was trained on",
        )
    reading = READINGS[shape](chosen, known, problem)
    return Settled(reading, chosen_header(columns), chosen.used)
