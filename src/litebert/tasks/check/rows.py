"""Rows of a table for a check: a bad row is noted, and the next one is read."""

from __future__ import annotations

from collections.abc import Iterator

from litebert.errors import LitebertError
from litebert.reading.rows import Row
from litebert.reading.source import CorruptStreamError, read_pieces
from litebert.tasks.check.findings import TableFindings
from litebert.tasks.kinds.family import Item
from litebert.tasks.own.rows import Table
from litebert.tasks.own.settle import LEARNT, Settled

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


def rows_of(table: Table, found: TableFindings) -> Iterator[tuple[int, Row]]:
    """Yield the good rows of a table; the others, and where it cannot be read on, are noted."""
    try:
        for number, row in table.scan():
            if isinstance(row, LitebertError):
                found.add_error("unusable row", table.place(number), row)
            else:
                yield number, row
    except LitebertError as error:
        found.add_error("unusable file", table.source.name, error)


def items(
    table: Table, settled: Settled, found: TableFindings, *, has_labels: bool
) -> Iterator[tuple[int, Item]]:
    """Yield what is to be looked at in each row that training could use."""
    _note_mark(table, found)
    family = settled.reading.family
    for number, row in rows_of(table, found):
        try:
            example = settled.example(table, number, row, is_labelled=has_labels)
        except LitebertError as error:
            found.add_error("unusable row", table.place(number), error)
        else:
            yield number, family.item(example)


def is_labelled(table: Table, settled: Settled) -> bool:
    """Whether the first rows of a table say what is right."""
    names = [name for role in LEARNT for name in settled.reading.columns.all(role)]
    return any(row.get(name) not in (None, "") for row in table.sample() for name in names)


def _note_mark(table: Table, found: TableFindings) -> None:
    try:
        first = next(read_pieces(table.source), b"")
    except CorruptStreamError:
        return
    if first.startswith(_BYTE_ORDER_MARK):
        found.add("byte-order mark", table.source.name)
