"""Read documents from input files as passages of bounded size, in bounded memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from litebert.corpus.settings import TextSettings, text_settings
from litebert.errors import LitebertError
from litebert.reading.find import find_texts
from litebert.reading.lines import read_lines
from litebert.reading.parquet import read_rows
from litebert.reading.rows import Row, RowPlace, parse_row, texts_of
from litebert.reading.source import Source

PASSAGE_CHARACTERS = 1 << 16
"""From this size on, a passage of a .txt file ends at the next blank line."""
LONGEST_PASSAGE = 1 << 20
"""From this size on, it ends at the next line end."""


class Passage(NamedTuple):
    """Some text of a document, and the line or row where it starts.

    `is_start` marks the first passage of a document; the others continue it.
    """

    text: str
    line: int
    is_start: bool


def read_passages(source: Source, settings: TextSettings) -> Iterator[Passage]:
    """Yield the documents of one input in order; the end of the file ends a document.

    Raises:
        LitebertError: LB-318, there is no text; or a place, named by file and line, cannot be read.
    """
    passages = _passages(source, settings)
    has_text = False
    for passage in passages:
        has_text = has_text or bool(passage.text.strip())
        yield passage
    if not has_text:
        raise LitebertError(
            "LB-318",
            f"{source.name} contains no text",
            received=f"{source.size:,} bytes",
            expected="text",
            next="omit this file",
        )


def read_texts(inputs: Iterable[str | Path], *, column: str = "text") -> Iterator[str]:
    """Yield the text of all inputs in passages of bounded size.

    Raises:
        LitebertError: What `read_passages` raises.
    """
    settings = text_settings(sentences="segment", documents=None, column=column, language="en")
    for source in find_texts(inputs):
        for passage in read_passages(source, settings):
            yield passage.text


def _passages(source: Source, settings: TextSettings) -> Iterator[Passage]:
    if source.kind == ".txt":
        ends_at_blank = settings.documents == "blank-line"
        return _text_passages(read_lines(source), ends_at_blank=ends_at_blank)
    rows = _json_rows(source) if source.kind == ".jsonl" else _parquet_rows(source, settings)
    return _row_passages(rows, settings.column)


def _text_passages(lines: Iterable[tuple[int, str]], *, ends_at_blank: bool) -> Iterator[Passage]:
    held: list[str] = []
    size, first, is_start = 0, 1, True
    for number, line in lines:
        is_blank = not line or line.isspace()
        wants_end = ends_at_blank or size >= PASSAGE_CHARACTERS
        if held and ((is_blank and wants_end) or size >= LONGEST_PASSAGE):
            yield Passage("\n".join(held), first, is_start)
            held, size, is_start = [], 0, False
        if is_blank and ends_at_blank:
            is_start = True
        if is_blank and not held:
            continue
        first = first if held else number
        held.append(line)
        size += len(line) + 1
    if held:
        yield Passage("\n".join(held), first, is_start)


def _row_passages(rows: Iterable[tuple[RowPlace, Row]], column: str) -> Iterator[Passage]:
    for place, row in rows:
        for text in texts_of(row, column, place):
            yield Passage(text, place.number, is_start=True)


def _json_rows(source: Source) -> Iterator[tuple[RowPlace, Row]]:
    for number, line in read_lines(source):
        if line and not line.isspace():
            place = RowPlace(source, number)
            yield place, parse_row(line, place)


def _parquet_rows(source: Source, settings: TextSettings) -> Iterator[tuple[RowPlace, Row]]:
    for number, row in enumerate(read_rows(source, settings.column), 1):
        yield RowPlace(source, number), row
