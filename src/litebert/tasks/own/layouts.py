"""The layouts of files that people have, and which one a file has.

A layout says how it is recognised from the first lines of a file and how it is read;
`LAYOUTS` lists them, and the first that recognises a file reads it. The name of a file
decides only where its content leaves a choice. After that, a table whose rows are words
becomes one of sentences, whatever it was written in (`sentences`).
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path

from litebert.errors import RequestError
from litebert.reading import tables
from litebert.reading.parquet import read_parquet
from litebert.reading.source import (
    DELIMITED,
    JSON_LINES,
    TABLES,
    TAGGED,
    Source,
    find_input,
    no_content,
    read_lines,
)
from litebert.reading.tables import Scanned
from litebert.reading.words import looks_like_words, recognize, scan_words
from litebert.tasks.own.columns import KNOWN_NAMES, normalize_name
from litebert.tasks.own.delimited import open_delimited
from litebert.tasks.own.sentences import join_words
from litebert.tasks.own.table import SAMPLE_CHARACTERS, SAMPLE_ROWS, TableFile

# files of lines, in which rows are recognised by their shape
PLAIN = (".txt",)


@dataclass(frozen=True)
class Opening:
    """A file and its first lines, by which its layout is recognised; a file that is not
    read by lines has none.
    """

    source: Source
    lines: tuple[str, ...]

    @classmethod
    def of(cls, source: Source) -> "Opening":
        """Read the first lines of a file."""
        if source.kind in (".parquet", ".json"):
            return cls(source, ())
        lines = list[str]()
        size = 0
        for _, line in islice(read_lines(source), SAMPLE_ROWS):
            lines.append(line)
            size += len(line)
            if size > SAMPLE_CHARACTERS:
                break
        if not any(lines):
            raise no_content(source.name)
        return cls(source, tuple(lines))


@dataclass(frozen=True)
class Layout:
    """A layout of files: what it is called, how it is recognised, how it is read."""

    name: str
    recognizes: Callable[[Opening], bool]
    # with a header, without one, or with what is guessed
    open: Callable[[Opening, bool | None], TableFile]


def open_table(
    path: str | Path, *, has_header: bool | None = None, sentence: str | None = None
) -> TableFile:
    """Determine the layout and the columns of a file.

    `has_header` says whether a delimited file names its columns in the first line
    (None: guess); without a header, columns are called 1, 2, 3, … `sentence` is the
    column that says to which sentence a word belongs, if each row is a word.
    """
    opening = Opening.of(find_input(str(path), (*TABLES, *PLAIN)))
    for layout in LAYOUTS:
        if layout.recognizes(opening):
            return join_words(layout.open(opening, has_header), sentence)
    raise RequestError(
        "LB-304",
        f"{path} does not look like a table",
        received=f"lines of text, such as {next(filter(None, opening.lines))[:60]!r}",
        expected=f"one of {', '.join(layout.name for layout in LAYOUTS)}",
        next="rename it to .csv, .tsv, .jsonl or .conll, whichever it is",
    )


# ---- words ---------------------------------------------------------------------------


def _is_words(opening: Opening) -> bool:
    """Return whether a file has a word a line, by its name or by its shape."""
    if opening.source.kind in TAGGED:
        return True
    if opening.source.kind not in (".txt", ".tsv"):
        return False
    if _has_header(
        opening.lines
    ):  # its rows are joined to sentences, if they are words
        return False
    return looks_like_words(opening.lines, recognize(opening.lines))


def _has_header(lines: Sequence[str]) -> bool:
    """Return whether the first line of what may be words and tags has a usual name of a
    column, and no tag that other lines have.
    """
    rows = [line.split() for line in lines if line.strip() and not line.startswith("#")]
    if not rows:
        return False
    has_name = any(normalize_name(cell) in KNOWN_NAMES for cell in rows[0])
    return has_name and rows[0][-1] not in {row[-1] for row in rows[1:]}


def _open_words(opening: Opening, _: bool | None) -> TableFile:
    layout = recognize(opening.lines)
    return TableFile(
        opening.source,
        str(layout),
        layout.columns,
        partial(scan_words, opening.source, layout),
        spare=(*layout.names, *layout.keys),
    )


# ---- objects -------------------------------------------------------------------------


def _open_parquet(opening: Opening, _: bool | None) -> TableFile:
    source = opening.source
    columns = tuple(next(read_parquet(source, ()), {}))

    def scan() -> Iterator[Scanned]:
        return enumerate(read_parquet(source, columns), 1)

    return TableFile(source, "parquet", columns, scan)


def _open_json_lines(opening: Opening, _: bool | None) -> TableFile:
    scan = partial(tables.scan_json_lines, opening.source)
    return _with_keys(TableFile(opening.source, "an object per line", (), scan))


def _open_json(opening: Opening, _: bool | None) -> TableFile:
    scan = partial(tables.scan_json, opening.source)
    return _with_keys(TableFile(opening.source, "a list of objects", (), scan))


def _with_keys(table: TableFile) -> TableFile:
    """Return a table of objects with the keys of the first ones, in order of
    appearance.
    """
    keys: dict[str, None] = {}
    for row in table.sample():
        keys.update(dict.fromkeys(row))
    return TableFile(table.source, table.writing, tuple(keys), table.scan)


# ---- delimited -----------------------------------------------------------------------


def _open_delimited(opening: Opening, has_header: bool | None) -> TableFile:
    return open_delimited(opening.source, opening.lines, has_header)


def _of_kind(*kinds: str) -> Callable[[Opening], bool]:
    return lambda opening: opening.source.kind in kinds


LAYOUTS: Sequence[Layout] = (
    Layout("Parquet", _of_kind(".parquet"), _open_parquet),
    Layout("a list of objects (.json)", _of_kind(".json"), _open_json),
    Layout("an object per line (.jsonl)", _of_kind(*JSON_LINES), _open_json_lines),
    Layout("a word and its tag per line (.conll)", _is_words, _open_words),
    Layout("delimited (.csv, .tsv)", _of_kind(*DELIMITED), _open_delimited),
)
