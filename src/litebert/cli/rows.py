"""The rows of files: which words of a command name files, and how the columns of a table
become the parts of a row.
"""

import os
import shlex
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

from litebert.errors import LitebertError, RequestError
from litebert.inference.verb import Row
from litebert.reading.lines import recognize_encoding, scan_lines
from litebert.reading.pieces import read_pieces
from litebert.reading.source import (
    COMPACT,
    FOLDER,
    STANDARD_INPUT,
    Source,
    find_input,
    no_content,
)
from litebert.tasks.tables.cells import text_of
from litebert.tasks.tables.columns import (
    HEADERS,
    NAMES,
    SYNONYMS,
    Columns,
    normalize_name,
)
from litebert.tasks.tables.folders import find_folder
from litebert.tasks.tables.guess import ColumnGuess
from litebert.tasks.tables.layouts import DELIMITED, SUFFIXES, note_encoding, open_table
from litebert.tasks.tables.table import TableFile

Numbered: TypeAlias = tuple[int, "Row | LitebertError"]
"""A row with its number, from 1; or the error that says why it has no text."""
KINDS = (".txt", *SUFFIXES)  # of files with rows to answer
ID = "id"  # the name by which a row of a table is known


# ---- words of a command --------------------------------------------------------------


def find_sources(words: Sequence[str]) -> list[Source]:
    """Return the files that words name, "-" for standard input, or none if they are
    texts; raise for a mixture.
    """
    files = [word for word in words if _names_a_file(word)]
    texts = [word for word in words if word not in files]
    if files and texts:
        raise RequestError(
            "LB-948",
            "files and texts cannot be mixed",
            received=f"the file {files[0]} and the text {texts[0]!r}",
            next="use two commands",
        )
    return [find_source(word) for word in files]


def find_source(word: str) -> Source:
    """Return the file or folder that a word names, or standard input."""
    if word == "-":
        return STANDARD_INPUT
    if _names_a_folder(word):
        return find_folder(Path(word))
    return find_input(word, KINDS)


def _has_slash(word: str) -> bool:
    """Return whether a word looks like a path; without a slash, it may be a text even
    if a file or folder has this name.
    """
    return "/" in word or os.sep in word


def _names_a_folder(word: str) -> bool:
    return _has_slash(word) and os.path.isdir(word)  # noqa: PTH112  a text may be too long for Path


def _names_a_file(word: str) -> bool:
    """Return whether a word names a file, compressed or not, a folder, or a pipe such
    as /dev/fd/63; a text of several words may end like a file.
    """
    if word == "-":
        return True
    if _has_slash(word) and os.path.exists(word):  # noqa: PTH110  a text may be too long for Path
        return True
    name = word.lower().removesuffix(".gz").removesuffix(".zst")
    if not name.endswith(KINDS):
        return False
    is_one_word = word.split() == [word]
    return is_one_word or os.path.isfile(word)  # noqa: PTH113  a text may be too long for Path


def count_rows(sources: Sequence[Source]) -> int | None:
    """Estimate the number of rows in files by their lines; return None if the lines
    cannot be counted.
    """
    num_lines = 0
    for source in sources:
        is_stream = source is STANDARD_INPUT
        is_read_whole = source.kind in (FOLDER, *COMPACT)
        if is_stream or is_read_whole or source.compression:
            return None
        num_lines += sum(piece.count(b"\n") for piece in read_pieces(source))
        if source.kind in DELIMITED:
            num_lines -= 1  # the header
    return max(0, num_lines)


# ---- rows of files -------------------------------------------------------------------


@dataclass(frozen=True)
class Reading:
    """How to read the rows of a verb from files.

    `columns` are choices such as text=body, or just body for the first role. `shared`
    are parts for all rows that lack them. `trained` are the columns, by role, of the
    table that the model was trained on. Besides its roles, a row has the cell of the
    column of ids, if there is one, as "id".
    """

    roles: Sequence[str]
    needed: Sequence[str]
    columns: Sequence[str] = ()
    shared: Row = field(default_factory=dict)
    trained: Mapping[str, str] = field(default_factory=dict)

    def rows(self, sources: Sequence[Source]) -> Iterator[Numbered]:
        """Yield the rows of files, numbered from 1 across all files.

        A row is a line of a text file, where blank lines are skipped, or a record of a
        table, not counting its header.
        """
        chosen, has_header = self._choose()
        number = 0
        for source in sources:
            for row in self._read(source, chosen, has_header):
                number += 1
                if row is not None:
                    yield number, row

    def _choose(self) -> tuple[dict[str, str], bool | None]:
        """Return the chosen columns by role, and whether tables have a header."""
        chosen = dict[str, str]()
        has_header = None
        for choice in self.columns:
            if choice in HEADERS:
                has_header = HEADERS[choice]
                continue
            role = self.roles[0]
            name = choice
            if "=" in choice:
                typed, _, name = choice.partition("=")
                role = SYNONYMS.get(typed, typed)
            if role not in (*self.roles, ID) or not name:
                raise self._no_choice(choice)
            chosen[role] = name
        return chosen, has_header

    def _read(
        self, source: Source, chosen: Mapping[str, str], has_header: bool | None
    ) -> Iterator[Row | LitebertError | None]:
        """Yield what each line or record of a file holds; None for a blank line."""
        if source.kind == ".txt":
            return self._lines(source)
        return self._records(source, chosen, has_header)

    def _lines(self, source: Source) -> Iterator[Row | LitebertError | None]:
        """Yield the lines of a text file as rows; None for a blank one."""
        first = self.roles[0]
        self._require_columns({first: first}, (first,), source)
        encoded = source
        if source is not STANDARD_INPUT:
            encoded = recognize_encoding(source)
        note_encoding(encoded)
        is_empty = True
        for _, line in scan_lines(encoded):
            is_empty = False
            if isinstance(line, LitebertError):
                yield line
            elif line.strip():
                yield {**self.shared, first: line}
            else:
                yield None
        # an empty file is refused where it is found
        if is_empty and source is STANDARD_INPUT:
            raise no_content(
                "standard input", next="run the command before the pipe alone"
            )

    def _records(
        self, source: Source, chosen: Mapping[str, str], has_header: bool | None
    ) -> Iterator[Row | LitebertError]:
        """Yield the records of a table as rows."""
        table = open_table(source.name, has_header=has_header)
        if has_header is None and not set(chosen.values()) <= set(table.columns):
            # a chosen name must be in a header
            table = open_table(source.name, has_header=True)
        note_encoding(table.source)
        names = {**self._columns_of(table.columns), **chosen}
        self._require_columns(names, table.columns, source, chosen, table)
        for place, record in table.scan():
            if isinstance(record, LitebertError):
                yield record
            else:
                yield self._row(record, names, source.place(place))

    def _columns_of(self, columns: Sequence[str]) -> dict[str, str]:
        """Return the column of each role that has one: the column of the training, the
        one with the name of the role, or with a synonym of it.
        """
        columns_by_role = dict[str, str]()
        for role in (*self.roles, ID):
            trained = self._trained_column(role)
            if trained is not None and trained in columns:
                columns_by_role[role] = trained
            elif role in columns:
                columns_by_role[role] = role
        for synonym, role in SYNONYMS.items():
            if role in self.roles and synonym in columns:
                columns_by_role.setdefault(role, synonym)
        return columns_by_role

    def _trained_column(self, role: str) -> str | None:
        """Return the column that a role had in the table of the training."""
        if role in ("text", "first"):
            # A table of words has them in place of a text; the first text of a pair is
            # in the column of texts.
            for kind in ("tokens", "text"):
                if kind in self.trained:
                    return self.trained[kind]
        return self.trained.get(role)

    def _row(
        self, record: Mapping[str, object], names: Mapping[str, str], place: str
    ) -> Row | LitebertError:
        """Return a record as a row; a part that is not needed may be empty, such as the
        third of two choices, and one that is needed may not be blank.
        """
        row = dict(self.shared)
        for role, name in names.items():
            cell = record.get(name)
            text = text_of(cell)
            is_needed = role in self.needed and role not in self.shared
            if is_needed and not (text or "").strip():
                return no_text(f"{place} has no text in column {name}")
            if text is not None:
                row[role] = text
            elif cell not in (None, ""):
                return no_text(f"{place} has no text in column {name}")
        return row

    def _no_choice(self, choice: str) -> RequestError:
        """Return the error for a word that chooses no column."""
        more = ", …" if len(self.roles) > 4 else ""
        known = ", ".join(self.roles[:4]) + more
        return RequestError(
            "LB-915",
            f"{choice} does not choose a column",
            expected=f"NAME, header=no, or ROLE=NAME of {known}",
            next=f"--column {self.roles[0]}=NAME",
        )

    def _require_columns(
        self,
        names: Mapping[str, str],
        columns: Sequence[str],
        source: Source,
        chosen: Collection[str] = (),
        table: TableFile | None = None,
    ) -> None:
        """Raise if a file lacks a column that is needed or chosen."""
        needed = [role for role in self.needed if role not in self.shared]
        lacking = list[str]()
        for role in (*needed, *chosen):
            if names.get(role, role) not in columns:
                lacking.append(role)
        if not lacking:
            return
        role = lacking[0]
        received = ", ".join(map(str, columns))[:200]
        if source.kind == ".txt":
            received += " only, one per line"
        flag = shlex.quote(f"{role}={self._likely_column(role, columns, table)}")
        advice = f"add --column {flag}"
        if role in chosen:
            advice = f"correct --column {flag}"
        elif source.kind == ".txt":
            advice = f"use a table, such as a CSV file, with a column {role}"
        if "tokens" in columns:
            advice = "use predict for a file of words: --data takes it"
        raise RequestError(
            "LB-944",
            f"{source.name} has no column {names.get(role, role)}",
            received=received,
            next=advice,
        )

    def _likely_column(
        self, role: str, columns: Sequence[str], table: TableFile | None
    ) -> str:
        """Return the column with a usual name of a role; for the first role, also one
        that looks like text; or NAME.
        """
        names = {normalize_name(column): column for column in reversed(columns)}
        likely = [names[name] for name in NAMES.get(role, ()) if name in names]
        if not likely and table is not None and role == self.roles[0]:
            likely = ColumnGuess(columns, table.sample(), Columns({})).texts()
        return next(iter(likely), "NAME")


def no_text(what: str) -> LitebertError:
    """Return the error of a row without a text to answer."""
    return LitebertError("LB-945", what, next="correct or delete the row")
