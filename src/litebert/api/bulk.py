"""Many texts through one verb: rows in order, bad rows skipped, resumed after a kill."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Generic, TypeAlias, TypeVar

from litebert.errors import LitebertError
from litebert.files import Json, append_line, read_json, write_json, write_stream
from litebert.reading.find import TABLES, TEXTS, find_text
from litebert.reading.lines import read_lines
from litebert.reading.source import COMPRESSIONS
from litebert.tasks.own.rows import open_table

CHUNK = 256
"""Rows that are answered, and written, together."""

Answer = TypeVar("Answer")
Values: TypeAlias = dict[str, str]
Numbered: TypeAlias = tuple[int, Values | LitebertError]


@dataclass(frozen=True)
class BulkOptions:
    """What the options of a bulk verb say."""

    columns: tuple[str, ...] = ()
    output: Path | None = None
    force: bool = False
    quiet: bool = False
    as_json: bool = False


@dataclass(frozen=True)
class Answered(Generic[Answer]):
    """A row with its number in the input, and its answer, or why it has none."""

    number: int
    values: Values
    answer: Answer | LitebertError


def is_file(words: Sequence[str]) -> bool:
    """Tell whether arguments are files to read, or standard input, and not texts."""
    return all(word == "-" or (_has_kind(word) and Path(word).is_file()) for word in words)


def rows_of(
    words: Sequence[str], columns: Sequence[str], roles: Sequence[str]
) -> Iterator[Numbered]:
    """Yield rows of files, of standard input ("-"), or of given texts.

    `columns` are choices such as text=body, or body alone for the first role.
    """
    if not is_file(words):
        yield from enumerate(({roles[0]: word} for word in words), 1)
        return
    named = {role: role for role in roles}
    for choice in columns:
        role, equals, name = choice.rpartition("=")
        named[role if equals else roles[0]] = name
    for word in words:
        if word == "-":
            lines: Iterator[tuple[int, str]] = enumerate(
                (line.rstrip("\n") for line in sys.stdin), 1
            )
            yield from ((n, {roles[0]: line}) for n, line in lines if line.strip())
        elif _kind(word) == ".txt":
            source = find_text(word)
            yield from ((n, {roles[0]: x}) for n, x in read_lines(source) if x.strip())
        else:
            yield from _table_rows(Path(word), named, tuple(dict.fromkeys(columns)))


def answered(
    rows: Iterable[Numbered], answer: Callable[[list[Values]], Sequence[Answer]]
) -> Iterator[list[Answered[Answer]]]:
    """Yield answers a chunk at a time, in order; a row that cannot be answered says why."""
    remaining = iter(rows)
    while chunk := list(islice(remaining, CHUNK)):
        good = [values for _, values in chunk if not isinstance(values, LitebertError)]
        found = iter(_each(good, answer))
        yield [
            Answered(number, {}, values)
            if isinstance(values, LitebertError)
            else Answered(number, values, next(found))
            for number, values in chunk
        ]


class AnswerFile:
    """A JSONL file that is written a chunk at a time, and resumed by the same command.

    Raises:
        LitebertError: LB-941, the file exists; LB-942, another command began it.
    """

    def __init__(self, path: Path, command: Mapping[str, str], *, force: bool) -> None:
        self._path, self._unfinished = path, path.with_name(f"{path.name}.unfinished")
        self._command = path.with_name(f"{path.name}.unfinished.json")
        if path.exists() and not force:
            raise LitebertError(
                "LB-941",
                f"{path} exists",
                received="a finished file of answers",
                expected="a new file, or --force",
                next="choose another --output, or add --force",
            )
        if force:
            self._unfinished.unlink(missing_ok=True)
            self._command.unlink(missing_ok=True)
        if self._command.exists() and read_json(self._command, command=f"ls {path.parent}") != dict(
            command
        ):
            raise LitebertError(
                "LB-942",
                f"{self._unfinished} was begun by another command",
                received="another model, input or verb",
                expected="the same command, or --force to start again",
                next="choose another --output, or add --force",
            )
        record: dict[str, Json] = {**command}
        write_json(self._command, record)
        self.num_done = self._whole_lines()

    def write(self, lines: Sequence[Mapping[str, object]]) -> None:
        """Append answers."""
        if lines:
            text = "\n".join(json.dumps(line, ensure_ascii=False) for line in lines)
            append_line(self._unfinished, text)

    def finish(self) -> None:
        """Give the file its name."""
        if not self._unfinished.exists():
            write_stream(self._unfinished, ())
        self._unfinished.replace(self._path)
        self._command.unlink(missing_ok=True)

    def _whole_lines(self) -> int:
        """Count the lines that are whole; cut off a last one that a kill left half written."""
        if not self._unfinished.exists():
            return 0
        number, is_whole = 0, True
        with open(self._unfinished, "rb") as file:
            for line in file:
                is_whole = line.endswith(b"\n")
                number += is_whole
        if not is_whole:
            with open(self._unfinished, "rb") as file:
                write_stream(self._unfinished, (line for line in file if line.endswith(b"\n")))
        return number


def read_texts_of(path: Path, column: str) -> list[str]:
    """Return all texts of a file: a line each, or a column of a table.

    Raises:
        LitebertError: The first row that cannot be read.
    """
    texts = []
    for _, values in rows_of([str(_existing(path))], [column], ["text"]):
        if isinstance(values, LitebertError):
            raise values
        texts.append(values["text"])
    return texts


def _existing(path: Path) -> Path:
    """Refuse a file that is not there, or of no kind that is read."""
    if not is_file([str(path)]):
        raise LitebertError(
            "LB-943",
            f"{path} is no file of texts",
            received="a file of another kind" if path.exists() else "no such file",
            expected=", ".join(sorted({*TEXTS, *TABLES})),
            next=f"ls {path.parent}",
        )
    return path


def _each(
    rows: list[Values], answer: Callable[[list[Values]], Sequence[Answer]]
) -> Iterator[Answer | LitebertError]:
    """Answer rows together; where one of them is refused, each by itself."""
    try:
        yield from answer(rows) if rows else ()
    except LitebertError:
        for row in rows:
            try:
                yield answer([row])[0]
            except LitebertError as error:
                yield error


def _table_rows(path: Path, named: Mapping[str, str], asked: Sequence[str]) -> Iterator[Numbered]:
    """Yield the chosen columns of a table; optional roles may be missing."""
    table = open_table(path, has_header=True if asked else None)
    first = next(iter(named))
    if named[first] not in table.columns:
        raise LitebertError(
            "LB-944",
            f"{path} has no column {named[first]}",
            received=", ".join(map(str, table.columns))[:200],
            expected=f"the column of the {first}s",
            next=f"add --column {first}=NAME",
        )
    there = {role: name for role, name in named.items() if name in table.columns}
    for number, row in table.scan():
        if isinstance(row, LitebertError):
            yield number, row
            continue
        values = {role: row.get(name) for role, name in there.items()}
        wrong = [name for role, name in there.items() if not isinstance(values[role], str)]
        if wrong:
            yield number, _not_text(path, number, wrong[0])
        else:
            yield number, {role: str(value) for role, value in values.items()}


def _not_text(path: Path, number: int, column: str) -> LitebertError:
    return LitebertError(
        "LB-945",
        f"row {number} of {path} has no text",
        received=f"column {column} is empty or of another type",
        expected="a text",
        next="correct or delete the row",
    )


def _kind(name: str) -> str:
    suffixes = Path(name).suffixes
    return next((s.lower() for s in reversed(suffixes) if s.lower() not in COMPRESSIONS), "")


def _has_kind(name: str) -> bool:
    return len(name) < 4_096 and "\0" not in name and _kind(name) in {*TEXTS, *TABLES}
