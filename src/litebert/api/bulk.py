"""Many texts through one verb: rows in order, bad rows skipped, resumed after a kill."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Generic, TypeAlias, TypeVar

from litebert.errors import LitebertError, RequestError
from litebert.reading.find import TABLES, TEXTS, find_text
from litebert.reading.lines import STANDARD_INPUT, read_lines
from litebert.reading.source import COMPRESSIONS
from litebert.tasks.own.roles import SYNONYMS, chosen_header
from litebert.tasks.own.rows import open_table

CHUNK = 256
"""Rows that are answered, and written, together."""

Answer = TypeVar("Answer")
Values: TypeAlias = dict[str, str]
Numbered: TypeAlias = tuple[int, Values | LitebertError]


@dataclass(frozen=True)
class BulkOptions:
    """The options of a bulk verb."""

    columns: tuple[str, ...] = ()
    output: Path | None = None
    force: bool = False
    quiet: bool = False
    as_json: bool = False


@dataclass(frozen=True)
class NumberedAnswer(Generic[Answer]):
    """A row with its number in the input, and its answer, or why it has none."""

    number: int
    values: Values
    answer: Answer | LitebertError


def is_file(words: Sequence[str]) -> bool:
    """Tell whether arguments are files, or "-" for standard input, rather than texts.

    Raises:
        LitebertError: LB-943, one of them names no file; LB-948, there are files and texts.
    """
    found = [word for word in words if word == "-" or (_has_kind(word) and Path(word).is_file())]
    if len(found) == len(words):
        return True
    texts = [word for word in words if word not in found]
    for word in texts:
        if _has_kind(word) and not any(map(str.isspace, word)):
            raise _no_file(Path(word))
    if found:
        raise RequestError(
            "LB-948",
            "files and texts cannot be mixed",
            received=f"the file {found[0]} and the text {texts[0]!r}",
            expected="files alone, or texts alone",
            next="use two commands",
        )
    return False


def rows_of(words: Sequence[str], columns: Sequence[str], roles: Sequence[str]) -> Iterator[Numbered]:
    """Yield rows of files, or of standard input ("-").

    `columns` are choices such as text=body, or body alone for the first role.

    Raises:
        LitebertError: LB-915, a choice names no role; LB-944, a table lacks the column.
    """
    has_header = chosen_header(columns)
    choices = [choice for choice in columns if chosen_header([choice]) is None]
    chosen = dict(_chosen(choice, roles) for choice in choices)
    for word in words:
        if word == "-" or _kind(word) == ".txt":
            source = STANDARD_INPUT if word == "-" else find_text(word)
            yield from ((n, {roles[0]: x}) for n, x in read_lines(source) if x.strip())
        else:
            yield from _table_rows(Path(word), roles, chosen, has_header=has_header)


def answered(
    rows: Iterable[Numbered], answer: Callable[[list[Values]], Sequence[Answer]]
) -> Iterator[list[NumberedAnswer[Answer]]]:
    """Yield answers in order, a chunk at a time; a row that cannot be answered has an error."""
    remaining = iter(rows)
    while chunk := list(islice(remaining, CHUNK)):
        good = [values for _, values in chunk if not isinstance(values, LitebertError)]
        found = iter(_each(good, answer))
        yield [
            NumberedAnswer(number, {}, values)
            if isinstance(values, LitebertError)
            else NumberedAnswer(number, values, next(found))
            for number, values in chunk
        ]


def count_rows(words: Sequence[str]) -> int | None:
    """Estimate the rows of files by their lines; None where the lines cannot be counted."""
    if any(word == "-" or _kind(word) == ".parquet" or Path(word).suffix.lower() in COMPRESSIONS for word in words):
        return None
    total = 0
    for word in words:
        with open(word, "rb") as file:
            while piece := file.read(1 << 20):
                total += piece.count(b"\n")
        total -= _kind(word) in (".csv", ".tsv")
    return max(0, total)


def read_texts_of(path: Path, column: str) -> list[str]:
    """Return all texts of a file: its lines, or a column of a table.

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
    """Return `path`; raise LB-943 unless it is a file of texts of a known kind."""
    if not is_file([str(path)]):
        raise _no_file(path)
    return path


def _no_file(path: Path) -> LitebertError:
    return RequestError(
        "LB-943",
        f"{path} is not a file of texts",
        received="a file of another kind" if path.exists() else "no such file",
        expected=", ".join(sorted({*TEXTS, *TABLES})),
        next=f"ls {path.parent}; a text that looks like a file name goes to standard input (-)",
    )


def _chosen(choice: str, roles: Sequence[str]) -> tuple[str, str]:
    """Read ROLE=NAME, or the NAME of the first role."""
    role, equals, name = choice.partition("=")
    if not equals:
        return roles[0], choice
    role = role if role in roles else SYNONYMS.get(role, role)
    if role not in roles or not name:
        raise RequestError(
            "LB-915",
            "this does not choose a column",
            received=choice,
            expected=f"NAME, or ROLE=NAME with a role of {', '.join(roles)}; or header=no",
            next=f"--column {roles[0]}=NAME",
        )
    return role, name


def _each(rows: list[Values], answer: Callable[[list[Values]], Sequence[Answer]]) -> Iterator[Answer | LitebertError]:
    """Answer rows together; where one of them is refused, each by itself.

    What is wrong with the request is wrong with every row, and ends it.
    """
    try:
        yield from answer(rows) if rows else ()
    except RequestError:
        raise
    except LitebertError:
        for row in rows:
            try:
                yield answer([row])[0]
            except LitebertError as error:
                yield error


def _table_rows(
    path: Path, roles: Sequence[str], chosen: Mapping[str, str], *, has_header: bool | None
) -> Iterator[Numbered]:
    """Yield the columns of some roles in a table; those that nobody chose may be missing."""
    table = open_table(path, has_header=has_header)
    if has_header is None and not set(chosen.values()) <= set(table.columns):
        table = open_table(path, has_header=True)  # a chosen name is in a header
    usual = {role: name for name, role in SYNONYMS.items() if role not in table.columns}
    named = {role: chosen.get(role, usual.get(role, role)) for role in roles}
    for role in (roles[0], *chosen):
        if named[role] not in table.columns:
            raise RequestError(
                "LB-944",
                f"{path} has no column {named[role]}",
                received=", ".join(map(str, table.columns))[:200],
                expected=f"a column named {role}, or the name of the one to use",
                next=f"add --column {role}=NAME",
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
