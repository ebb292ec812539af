"""Read the rows of .jsonl and .json files: an object per line, a list, or SQuAD's layout."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from litebert.errors import LitebertError
from litebert.files import parse_json
from litebert.reading.lines import read_lines, read_rows
from litebert.reading.rows import RowPlace, Scanned, parse_row
from litebert.reading.source import Source

MAX_CHARACTERS = 1 << 27
"""The most characters in a .json file, which must fit in memory; a .jsonl file may be longer."""


def scan_json_lines(source: Source) -> Iterator[Scanned]:
    """Yield the object on each line that is not blank."""
    for number, line in read_rows(source):
        if line and not line.isspace():
            try:
                yield number, parse_row(line, RowPlace(source, number))
            except LitebertError as error:
                yield number, error


def scan_json(source: Source) -> Iterator[Scanned]:
    """Yield the objects of a list, numbered from 1; in SQuAD's layout, the questions.

    Raises:
        LitebertError: LB-846, the file is too long for memory; LB-847, it is not JSON; LB-848, it
            is not a list of rows.
    """
    for number, row in enumerate(_rows(_parsed(source), source), 1):
        if isinstance(row, Mapping):
            yield number, row
        else:
            yield number, _not_rows(RowPlace(source, number), row)


def _parsed(source: Source) -> object:
    lines, size = [], 0
    for _, line in read_lines(source):
        lines.append(line)
        size += len(line) + 1
        if size > MAX_CHARACTERS:
            raise LitebertError(
                "LB-846",
                f"{source.name} is too long to be read into memory",
                received=f"more than {MAX_CHARACTERS:,} characters",
                expected="a shorter list; or an object per line (.jsonl), of any length",
                next=f"jq -c '.[]' {source.name} > rows.jsonl",
            )
    try:
        return parse_json("\n".join(lines), distinct_keys=True)
    except (ValueError, RecursionError) as error:
        reason = "nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise LitebertError(
            "LB-847",
            f"{source.name} is not JSON",
            received=reason,
            expected="one list of objects, without NaN and without duplicate keys",
            next="write the file again with a JSON library; objects on lines belong in a .jsonl",
        ) from error


def _rows(value: object, source: Source) -> Iterator[object]:
    """Find the list of rows: the value, or the only list of objects in it."""
    if isinstance(value, Mapping):
        lists = [part for part in value.values() if isinstance(part, list)]
        value = lists[0] if len(lists) == 1 else value
    if not isinstance(value, list):
        raise _not_rows(source.name, value)
    for row in value:
        if isinstance(row, Mapping) and isinstance(row.get("paragraphs"), list):
            yield from _questions(row["paragraphs"])
        else:
            yield row


def _questions(paragraphs: list[object]) -> Iterator[object]:
    """Yield the questions of an article of SQuAD with their contexts."""
    for paragraph in paragraphs:
        questions = paragraph.get("qas") if isinstance(paragraph, Mapping) else None
        if not isinstance(paragraph, Mapping) or not isinstance(questions, list):
            yield paragraph
            continue
        for question in questions:
            is_row = isinstance(question, Mapping)
            yield {**question, "context": paragraph.get("context")} if is_row else question


def _not_rows(place: RowPlace | str, value: object) -> LitebertError:
    return LitebertError(
        "LB-848",
        f"{place}: not an object with a value for each column",
        received=f"{type(value).__name__}: {value}"[:120],
        expected='a list of objects, such as [{"text": "…", "label": "…"}]',
        next="write the file again; objects on lines belong in a .jsonl file",
    )
