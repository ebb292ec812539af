"""How the rows of a user's training file become examples: what the user did not say is
guessed from the columns and, for labels, from all rows. The guesses are told in notes.
"""

import shlex
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any, TypeAlias

from litebert.config import HeadConfig
from litebert.errors import LitebertError, escape_breaks, no_such_name
from litebert.plugins import LOADING, TASK_KINDS
from litebert.reading.source import FOLDER, SPREADSHEETS
from litebert.reading.tables import Row
from litebert.tasks.kinds.text_rows import TextRows
from litebert.tasks.tables.cells import (
    FEWEST_WORDS,
    are_dates,
    are_varied,
    has_list,
    have_words,
    mean_words,
    split_of,
)
from litebert.tasks.tables.columns import Columns, chosen_columns, pair_flags
from litebert.tasks.tables.guess import ColumnGuess, has_usual_word
from litebert.tasks.tables.layouts import open_table
from litebert.tasks.tables.rows import RowReading, TrainingRows, guess_columns
from litebert.tasks.tables.table import TableFile

AnyReading: TypeAlias = RowReading[Any, Any]
"""How rows are read, for any kind of task."""


# ---- kinds of task, by their names in --problem --------------------------------------


def problems() -> dict[str, type[AnyReading]]:
    """Return how the rows of each kind of task are read, by its name in --problem."""
    readings = dict[str, type[AnyReading]]()
    for name, kind in TASK_KINDS.items():
        if kind.reading is not None:
            readings[name] = kind.reading
    return readings


def reading_of(problem: str) -> type[AnyReading]:
    """Return how the rows of a kind of task are read, given its name in --problem."""
    readings = problems()
    if problem not in readings:
        raise no_such_name(
            "LB-855",
            "there is no kind of task of this name for your own files",
            problem,
            readings,
            next=f"omit --problem; or if a plug-in adds the kind: {LOADING}",
        )
    return readings[problem]


def problems_of_head(head: HeadConfig) -> list[str]:
    """Return the names in --problem of the kinds of task that use such a head."""
    names = list[str]()
    for name, kind in TASK_KINDS.items():
        is_read = kind.reading is not None and head.kind in kind.heads
        if is_read and kind.problem_type in ("", head.problem_type):
            names.append(name)
    return names


# ---- settling ------------------------------------------------------------------------


@dataclass(frozen=True)
class Choices:
    """What the user said about the files; everything else is guessed."""

    columns: Sequence[str] = ()  # assignments such as text=review or header=no
    problem: str | None = None
    labels: tuple[str, ...] = ()  # in an order of the user's
    skips_unlabeled: bool = False

    def open(self, path: Path) -> TableFile:
        """Open a training file."""
        chosen = chosen_columns(self.columns)
        return open_table(path, has_header=chosen.has_header, sentence=chosen.sentence)


def settle(table: TableFile, choices: Choices) -> tuple[AnyReading, list[str]]:
    """Read a training table once to settle how its rows become examples; the notes list
    what was guessed.
    """
    file = table.source.name
    sample = table.sample()
    chosen = chosen_columns(choices.columns, table.columns)
    candidates = list(dict.fromkeys(problems().values()))
    if choices.problem is not None:
        candidates = [reading_of(choices.problem)]
    names = [name for name in table.columns if name not in table.spare]
    kind, columns = guess_columns(names, sample, chosen, candidates, TextRows)
    _require_labels(table, kind, columns)
    if table.has_header is False:  # then other files have none either
        columns = replace(columns, has_header=False)
    splits = count_splits(table, columns)
    if not chosen.all("split") and not _divide(splits):
        columns = columns.without("split")

    training = TrainingRows(
        file,
        lambda: (row for _, row in table.rows()),
        columns,
        choices.problem,
        choices.labels,
        choices.skips_unlabeled,
    )
    reading, about_labels = kind.settle(training)
    assignments = " ".join(columns.words())
    guess = _Guess(table, sample, chosen, columns)
    notes = [
        f"{file}: {table.writing}",
        f"columns: {assignments}{guess.note_on_unused()}",
        f"problem: {reading.problem}; {about_labels}",
        *guess.notes_on_labels(),
        *_notes_on_splits(columns, splits),
        *guess.warnings_of_pairs(),
    ]
    return reading, [escape_breaks(note) for note in notes]


def _require_labels(table: TableFile, kind: type[AnyReading], columns: Columns) -> None:
    """Raise unless a column has the labels; the advice depends on how the file is
    written.
    """
    role = kind.learned[0]
    if columns.all(role):
        return
    advice = f"--column {role}=NAME; numbers have no units and no commas: 1234.5"
    if len(table.columns) == 1 and table.has_header is not None:
        advice = "put commas, semicolons, tabs or bars between the text and its label"
        if table.source.kind in SPREADSHEETS:
            advice = "put the texts and their labels into two columns of one sheet"
    if table.source.kind == FOLDER:
        advice = "put each text into a folder that is called like its label"
    raise LitebertError(
        "LB-861",
        f"{table.source.name} has no column of labels",
        received=f"columns {', '.join(table.columns)}",
        next=advice,
    )


# ---- rows that a column assigns to a split -------------------------------------------


def count_splits(table: TableFile, columns: Columns) -> Counter[str]:
    """Count the rows of each split that a column names; "other" are of none."""
    counts = Counter[str]()
    if columns.all("split"):
        for _, row in table.rows():
            counts[split_of(columns.cell(row, "split")) or "other"] += 1
    return counts


def _divide(splits: Counter[str]) -> bool:
    """Return whether rows are divided into some to train on and others."""
    return splits["train"] > 0 and len(splits) > 1 and "other" not in splits


def _notes_on_splits(columns: Columns, splits: Counter[str]) -> list[str]:
    if not columns.all("split"):
        return []
    counts = ", ".join(f"{name} {number:,}" for name, number in splits.items())
    notes = [f"rows by column {columns.all('split')[0]}: {counts}"]
    if not splits["dev"]:
        notes.append(
            "warning: no rows are for development, so the best evaluation is chosen"
            " on the test rows, which flatters it; the last step is not"
        )
    return notes


# ---- columns that the user may have meant --------------------------------------------


@dataclass(frozen=True)
class _Guess:
    """The columns that were guessed, and those that the user may have meant."""

    table: TableFile
    sample: Sequence[Row]
    chosen: Columns  # by the user
    columns: Columns  # chosen or guessed

    def unused(self) -> list[str]:
        """Return the columns without a role that somebody may miss."""
        used = {*self.table.spare, *chain.from_iterable(self.columns.names.values())}
        return [name for name in self.table.columns if name not in used]

    def note_on_unused(self) -> str:
        unused = self.unused()
        return f"; not used: {', '.join(unused)}" if unused else ""

    def notes_on_labels(self) -> list[str]:
        """Return a note on columns that are called like labels and look like them,
        beside the one that was guessed.
        """
        labels = self.columns.all("label")
        if self.chosen.all("label") or len(labels) != 1:
            return []
        guess = ColumnGuess(self.unused(), self.sample, Columns({}))
        others = list[str]()
        for name in guess.likely_labels():
            is_about_label = name.startswith(labels[0])  # such as label_confidence
            is_single = not has_list(guess.cells(name))
            if has_usual_word(name, "label") and is_single and not is_about_label:
                others.append(name)
        if not others:
            return []
        flag = shlex.quote(f"label={others[0]}")
        return [f"could be the label, too: {', '.join(others)}; --column {flag}"]

    def warnings_of_pairs(self) -> list[str]:
        """Return a warning of a column that is not read although it looks like the
        other half of a pair of texts.
        """
        texts = self.columns.all("text")
        if not texts or self.chosen.all("text") or self.columns.all("second"):
            return []
        like_texts = [name for name in self.unused() if self._is_like_text(name)]
        if not like_texts:
            return []
        pair = [name for name in self.table.columns if name in (*texts, like_texts[0])]
        return [
            f"warning: not used, though it looks like text: {', '.join(like_texts)};"
            f" for pairs: {pair_flags(pair)}"
        ]

    def _is_like_text(self, name: str) -> bool:
        cells = [row.get(name) for row in self.sample]
        is_rich = are_varied(cells) or mean_words(cells) >= FEWEST_WORDS
        return have_words(cells) and is_rich and not are_dates(cells)
