"""One row: its place, its JSON, and the texts of a dotted column."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NoReturn, TypeAlias

from litebert.errors import LitebertError, did_you_mean
from litebert.files import parse_json
from litebert.reading.source import Source

Row: TypeAlias = Mapping[str, object]
Scanned: TypeAlias = tuple[int, Row | LitebertError]
"""The number of a row (that of its first line), and the row or its error."""

_UNITS = {".parquet": "row", ".json": "item"}

_LONE_SURROGATE = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True)
class RowPlace:
    """The place of a row, for messages.

    >>> print(RowPlace(Source("a.csv", "/a.csv", ".csv", "", 1), 1200))
    a.csv, line 1,200
    """

    source: Source
    number: int

    def __str__(self) -> str:
        unit = _UNITS.get(self.source.kind, "line")
        return f"{self.source.name}, {unit} {self.number:,}"


def parse_row(line: str, place: RowPlace) -> Row:
    """Read one line of a .jsonl input: one object, without NaN and duplicate keys.

    Raises:
        LitebertError: LB-312, it is not JSON; LB-313, it is not an object.
    """
    try:
        row = parse_json(line, distinct_keys=True)
    except (ValueError, RecursionError) as error:
        reason = "nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise LitebertError(
            "LB-312",
            f"{place}: not JSON",
            received=f"{reason}: {line[:80]}",
            expected="one complete object per line, without NaN and without duplicate keys",
            next="write the file again with a JSON library, one json.dumps per line",
        ) from error
    if not isinstance(row, dict):
        raise LitebertError(
            "LB-313",
            f"{place}: not an object",
            received=type(row).__name__,
            expected='an object per line, such as {"text": "…"}',
            next="wrap each text as an object with a column text",
        )
    return row


def texts_of(row: Row, column: str, place: RowPlace) -> Iterator[str]:
    """Yield the texts of a dotted column; each element of a list is a separate text.

    >>> source = Source("a.jsonl", "/a.jsonl", ".jsonl", "", 1)
    >>> row = {"chapters": [{"text": "One."}, {"text": "Two."}]}
    >>> list(texts_of(row, "chapters.text", RowPlace(source, 1)))
    ['One.', 'Two.']

    Raises:
        LitebertError: LB-314, there is no such column; LB-315, it is not text.
    """
    walk = _Walk(column.split("."), place)
    try:
        yield from walk.texts(row, 0)
    except RecursionError as error:
        raise walk.wrong_type("lists in lists without end") from error


@dataclass(frozen=True)
class _Walk:
    parts: list[str]
    place: RowPlace

    def texts(self, value: object, depth: int) -> Iterator[str]:
        if isinstance(value, list):
            for element in value:
                yield from self.texts(element, depth)
        elif depth < len(self.parts) and isinstance(value, Mapping):
            if self.parts[depth] not in value:
                self.refuse_column(value, depth)
            yield from self.texts(value[self.parts[depth]], depth + 1)
        elif depth == len(self.parts) and isinstance(value, str):
            yield _LONE_SURROGATE.sub("\ufffd", value)
        else:
            raise self.wrong_type("null" if value is None else type(value).__name__)

    def refuse_column(self, row: Row, depth: int) -> NoReturn:
        within = f" in {'.'.join(self.parts[:depth])}" if depth else ""
        raise LitebertError(
            "LB-314",
            f"{self.place}: there is no column {self.parts[depth]}{within}",
            received=f"--column {'.'.join(self.parts)}",
            expected=f"one of {', '.join(map(str, row)) or '(the object is empty)'}",
            next=f"--column with another name: {did_you_mean(self.parts[depth], map(str, row))}",
        )

    def wrong_type(self, received: str) -> LitebertError:
        return LitebertError(
            "LB-315",
            f"{self.place}: column {'.'.join(self.parts)} is not text",
            received=received,
            expected="a string, or a list of strings or of objects that lead to one",
            next="name another --column, or remove such rows from the file",
        )
