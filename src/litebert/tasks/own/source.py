"""A file of one's own: which kinds there are, where it lies, and how a row is named in errors."""

from __future__ import annotations

from pathlib import Path
from typing import TypeAlias

from litebert.corpus.rows import Row
from litebert.corpus.source import COMPRESSIONS, Source, unreadable
from litebert.errors import LitebertError, did_you_mean

DELIMITED = (".csv", ".tsv")
JSON_LINES = (".jsonl", ".ndjson")
TAGGED = (".conll", ".bio", ".iob")
KINDS = (*DELIMITED, *JSON_LINES, ".json", ".parquet", *TAGGED)

Scanned: TypeAlias = tuple[int, Row | LitebertError]
"""A row's number (its first line) with the row, or with what is wrong with it."""


def find_table(path: Path) -> Source:
    """Look a file up before anything is read of it.

    Raises:
        LitebertError: LB-840, no kind that can be read; LB-853, an empty file; LB-303, no file.
    """
    suffixes = [suffix.lower() for suffix in path.suffixes]
    packing = suffixes.pop() if suffixes and suffixes[-1] in COMPRESSIONS else ""
    kind = suffixes[-1] if suffixes else ""
    size = _size(path)
    if kind not in KINDS or (kind == ".parquet" and packing):
        near = did_you_mean(kind, KINDS) if kind else "add the extension that it should have"
        raise LitebertError(
            "LB-840",
            f"{path} is of no kind that can be read",
            received=f"{kind}{packing}" or "no extension",
            expected=f"{', '.join(KINDS)}; all but .parquet also with {' or '.join(COMPRESSIONS)}",
            next=f"rename or convert it ({near})",
        )
    if size == 0:
        raise no_rows(str(path), size)
    return Source(str(path), str(path.absolute()), kind, packing, size)


def row_place(source: Source, number: int) -> str:
    """Say where a row stands, as people find it.

    >>> row_place(Source("a.csv", "/a.csv", ".csv", "", 1), 1200)
    'a.csv, line 1,200'
    """
    unit = {".parquet": "row", ".json": "item"}.get(source.kind, "line")
    return f"{source.name}, {unit} {number:,}"


def no_rows(name: str, size: int) -> LitebertError:
    """Return the error for a file in which nothing stands."""
    return LitebertError(
        "LB-853",
        f"{name} has no rows",
        received=f"{size:,} bytes",
        expected="rows",
        next="leave this file out, or write it again",
    )


def _size(path: Path) -> int:
    try:
        if path.is_dir():
            raise IsADirectoryError(0, "it is a folder")
        return path.stat().st_size
    except (OSError, ValueError) as error:
        raise unreadable(str(path), error) from error
