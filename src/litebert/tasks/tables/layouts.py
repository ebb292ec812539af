"""The layouts of files that people have, and which one a file has.

A layout says how it is recognized from the name and the first lines of a file and how it
is read; `LAYOUTS` lists them, and the first that recognizes a file reads it. A name such
as reviews.txt leaves a choice, which the lines decide. After that, a table whose rows
are words becomes one of sentences, whatever it was written in (`sentences`). Messages,
help and docs list the formats from here.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from pathlib import Path

from litebert.errors import LitebertError, RequestError, say
from litebert.files import hash_file
from litebert.reading import encoding, tables
from litebert.reading.parquet import open_parquet, require_distinct
from litebert.reading.source import (
    FOLDER,
    JSON_LINES,
    SPREADSHEETS,
    Source,
    find_input,
)
from litebert.reading.tables import Row, Scanned
from litebert.reading.word_layouts import looks_like_words, recognize
from litebert.reading.words import scan_words
from litebert.tasks.tables.columns import is_usual_name
from litebert.tasks.tables.delimited import are_delimited, open_delimited, open_sheet
from litebert.tasks.tables.folders import TextFolder, find_folder
from litebert.tasks.tables.labeled_lines import MARK, are_labeled, scan_labeled
from litebert.tasks.tables.sentences import join_words
from litebert.tasks.tables.table import Opening, TableFile

DELIMITED = (".csv", ".tsv", ".tab")
TAGGED = (".conll", ".conllu", ".conllup", ".v4_gold_conll", ".bio", ".iob", ".iob2")
# files of lines, in which rows are recognized by their shape; "" is a name without an
# extension
PLAIN = (
    ".txt",
    ".text",
    ".md",
    ".train",
    ".valid",
    ".dev",
    ".test",
    ".dat",
    ".data",
    "",
)


@dataclass(frozen=True)
class Layout:
    """A layout of files: what it is called, the names that only such files have, how it
    is read and recognized.
    """

    name: str
    suffixes: tuple[str, ...]
    # opens a file that has a header, has none, or (None) where this is guessed
    open: Callable[[Opening, bool | None], TableFile]
    # names that leave a choice, and the test of the first lines that decides
    possible: tuple[str, ...] = ()
    recognizes: Callable[[Sequence[str]], bool] = bool

    def __str__(self) -> str:
        suffixes = [suffix for suffix in self.suffixes if suffix != FOLDER]
        return f"{self.name} ({', '.join(suffixes)})" if suffixes else self.name

    def has(self, opening: Opening) -> bool:
        """Return whether a file has this layout."""
        kind = opening.source.kind
        if kind in self.suffixes:
            return True
        return kind in self.possible and self.recognizes(opening.lines)


def find_table(path: str | Path) -> Source:
    """Look up a file, or a folder of texts, that may be a table."""
    if Path(path).is_dir():
        return find_folder(Path(path))
    return find_input(str(path), (*SUFFIXES, *PLAIN))


def is_labeled_table(path: str | Path) -> bool:
    """Return whether a path is a file, or a folder of texts with labels or entities."""
    if Path(path).is_file():
        return True
    try:
        folder = TextFolder.of(find_folder(Path(path)))
    except LitebertError:
        return False
    return folder.has_labels or folder.has_entities


def hash_table(path: Path) -> str:
    """Return the hash of a table's bytes, by which it is known again."""
    source = find_table(path)
    if source.kind == FOLDER:
        return TextFolder.of(source).hash
    return hash_file(Path(source.location))


def open_table(
    path: str | Path, *, has_header: bool | None = None, sentence: str | None = None
) -> TableFile:
    """Determine the layout and the columns of a file.

    `has_header` says whether a delimited file names its columns in the first line
    (None: guess); without a header, columns are called 1, 2, 3, … `sentence` is the
    column that says to which sentence a word belongs, if each row is a word.
    """
    opening = Opening.of(find_table(path))
    for layout in LAYOUTS:
        if layout.has(opening):
            table = join_words(layout.open(opening, has_header), sentence)
            return replace(table, writing=f"{table.writing}{_not_utf8(opening.source)}")
    raise RequestError(
        "LB-304",
        f"{path} does not look like a table",
        received=f"lines of text, such as {next(filter(None, opening.lines))[:60]!r}",
        expected=f"one of these: {'; '.join(map(str, LAYOUTS))}",
        next="write a .csv file with the columns text and label; text without labels is"
        " for litebert pretrain, and for litebert classify",
    )


def _not_utf8(source: Source) -> str:
    if source.encoding == "utf-8":
        return ""
    return f", in {encoding.NAMES[source.encoding]}"


def note_encoding(source: Source) -> None:
    """Print a note on a file that is not UTF-8, where no other note tells its layout."""
    if source.encoding != "utf-8":
        say(f"note: {source.name} is read as {encoding.NAMES[source.encoding]}")


# ---- words ---------------------------------------------------------------------------


def _are_words(lines: Sequence[str]) -> bool:
    """Return whether lines have a word and its tag each, by their shape."""
    if _has_header(lines):
        return False  # its rows are joined to sentences, if they are words
    return looks_like_words(lines, recognize(lines))


def _has_header(lines: Sequence[str]) -> bool:
    """Return whether the first line of what may be words and tags has a usual name of a
    column, and no tag that other lines have.
    """
    rows = [line.split() for line in lines if line.strip() and not line.startswith("#")]
    if not rows:
        return False
    first, *others = rows
    tags = {row[-1] for row in others}
    return any(map(is_usual_name, first)) and first[-1] not in tags


def _open_words(opening: Opening, _: bool | None) -> TableFile:
    layout = recognize(opening.lines)
    return TableFile(
        opening.source,
        str(layout),
        layout.columns,
        partial(scan_words, opening.source, layout),
        spare=layout.details,
    )


# ---- objects -------------------------------------------------------------------------


def _open_parquet(opening: Opening, _: bool | None) -> TableFile:
    """Open a Parquet file; numbers of labels become names if its metadata have them."""
    source = opening.source
    with open_parquet(source) as parquet:
        columns = tuple(parquet.columns)
        require_distinct(parquet, columns)
        names_of = parquet.class_names()

    def scan() -> Iterator[Scanned]:
        with open_parquet(source) as parquet:
            for number, row in enumerate(parquet.rows(columns), 1):
                yield number, _with_names(row, names_of)

    writing = "parquet"
    if names_of:
        writing += f", names of labels in it: {', '.join(names_of)}"
    return TableFile(source, writing, columns, scan)


def _with_names(row: Row, names_of: Mapping[str, Sequence[str]]) -> Row:
    """Return a row with names for the numbers of labels."""
    if not names_of:
        return row
    named = {**row}
    for column, names in names_of.items():
        named[column] = _named(row[column], names)
    return named


def _named(cell: object, names: Sequence[str]) -> object:
    """Return the name of a number, or the names of a list of numbers; None for -1,
    which stands for no label.
    """
    if isinstance(cell, list):
        return [_named(member, names) for member in cell]
    if isinstance(cell, int):
        return names[cell] if 0 <= cell < len(names) else None
    return cell


def _are_objects(lines: Sequence[str]) -> bool:
    """Return whether lines have an object each, as those of a .json file may."""
    if len(lines) < 2:
        return False
    first, second = (line.strip() for line in lines[:2])
    is_whole = first.startswith("{") and first.endswith("}")
    return is_whole and second.startswith("{")


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


# ---- texts with labels before them, and folders of texts -----------------------------


def _open_labeled(opening: Opening, _: bool | None) -> TableFile:
    has_marks = MARK in opening.lines[0]
    scan = partial(scan_labeled, opening.source, has_marks=has_marks)
    return TableFile(opening.source, "labels before texts", ("label", "text"), scan)


def _open_folder(opening: Opening, _: bool | None) -> TableFile:
    return TextFolder.of(opening.source).open()


# ---- the registry --------------------------------------------------------------------

LAYOUTS: Sequence[Layout] = (
    Layout(
        "a folder of .txt files: in folders of labels, or beside .ann files of brat",
        (FOLDER,),
        _open_folder,
    ),
    Layout("Parquet", (".parquet",), _open_parquet),
    Layout("a spreadsheet", SPREADSHEETS, open_sheet),
    Layout(
        "an object per line",
        JSON_LINES,
        _open_json_lines,
        possible=(".json", *PLAIN),
        recognizes=_are_objects,
    ),
    Layout("a list of objects", (".json",), _open_json),
    Layout(
        "a word and its tag per line",
        TAGGED,
        _open_words,
        possible=(".tsv", *PLAIN),
        recognizes=_are_words,
    ),
    Layout(
        "a label before each text, as in fastText",
        (),
        _open_labeled,
        possible=PLAIN,
        recognizes=are_labeled,
    ),
    Layout(
        "cells between delimiters",
        DELIMITED,
        open_delimited,
        possible=PLAIN,
        recognizes=are_delimited,
    ),
)
_ALL_SUFFIXES = chain.from_iterable(layout.suffixes for layout in LAYOUTS)
SUFFIXES = tuple(suffix for suffix in _ALL_SUFFIXES if suffix != FOLDER)
