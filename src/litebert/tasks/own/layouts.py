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
from itertools import islice
from pathlib import Path

from litebert.errors import LitebertError, RequestError, say
from litebert.files import hash_file
from litebert.reading import encoding, tables
from litebert.reading.parquet import read_class_names, read_parquet
from litebert.reading.source import (
    FOLDER,
    JSON_LINES,
    SPREADSHEETS,
    Source,
    find_input,
    no_content,
    read_lines,
    recognize_encoding,
)
from litebert.reading.spreadsheet import read_sheet
from litebert.reading.tables import Row, Scanned
from litebert.reading.word_layouts import looks_like_words, recognize
from litebert.reading.words import scan_words
from litebert.tasks.own.columns import is_usual_name
from litebert.tasks.own.delimited import are_delimited, open_delimited, open_sheet
from litebert.tasks.own.folders import TextFolder, find_folder
from litebert.tasks.own.labelled_lines import MARK, are_labelled, scan_labelled
from litebert.tasks.own.sentences import join_words
from litebert.tasks.own.table import SAMPLE_CHARACTERS, SAMPLE_ROWS, TableFile

DELIMITED = (".csv", ".tsv", ".tab")
TAGGED = (".conll", ".conllu", ".conllup", ".v4_gold_conll", ".bio", ".iob", ".iob2")
# files of lines, in which rows are recognized by their shape; "" is a name without an
# extension
PLAIN = (".txt", ".text", ".train", ".valid", ".dev", ".test", ".dat", ".data", "")


@dataclass(frozen=True)
class Opening:
    """A file and its first lines, by which its layout is recognized; a file that is not
    read by lines has none.
    """

    source: Source
    lines: tuple[str, ...]

    @classmethod
    def of(cls, source: Source) -> "Opening":
        """Read the first lines of a file."""
        if source.kind in (".parquet", FOLDER, *SPREADSHEETS):
            return cls(source, ())
        readable = recognize_encoding(source)
        lines = list[str]()
        size = 0
        most = 2 if source.kind == ".json" else SAMPLE_ROWS
        for _, line in islice(read_lines(readable), most):
            lines.append(line)
            size += len(line)
            if size > SAMPLE_CHARACTERS:
                break
        if not any(lines):
            raise no_content(source.name)
        return cls(readable, tuple(lines))


@dataclass(frozen=True)
class Layout:
    """A layout of files: what it is called, the names that only such files have, how it
    is recognized and read.
    """

    name: str
    suffixes: tuple[str, ...]
    # of a file whose name leaves a choice
    recognizes: Callable[[Opening], bool]
    # with a header, without one, or with what is guessed
    open: Callable[[Opening, bool | None], TableFile]

    def __str__(self) -> str:
        suffixes = [suffix for suffix in self.suffixes if suffix != FOLDER]
        return f"{self.name} ({', '.join(suffixes)})" if suffixes else self.name

    def has(self, opening: Opening) -> bool:
        """Return whether a file has this layout."""
        return opening.source.kind in self.suffixes or self.recognizes(opening)


def find_table(path: str | Path) -> Source:
    """Look up a file, or a folder of texts, that may be a table."""
    if Path(path).is_dir():
        return find_folder(Path(path))
    return find_input(str(path), (*SUFFIXES, *PLAIN))


def is_labelled_table(path: str | Path) -> bool:
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


def _are_words(opening: Opening) -> bool:
    """Return whether a file has a word and its tag per line, by its shape."""
    if opening.source.kind not in (*PLAIN, ".tsv"):
        return False
    if _has_header(opening.lines):
        return False  # its rows are joined to sentences, if they are words
    return looks_like_words(opening.lines, recognize(opening.lines))


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
    source = opening.source
    columns = tuple(next(read_parquet(source, ()), {}))
    names_of = read_class_names(source)

    def scan() -> Iterator[Scanned]:
        rows = enumerate(read_parquet(source, columns), 1)
        if not names_of:
            return rows
        return ((number, _with_names(row, names_of)) for number, row in rows)

    writing = "parquet"
    if names_of:
        writing += f", names of labels in it: {', '.join(names_of)}"
    return TableFile(source, writing, columns, scan)


def _with_names(row: Row, names_of: Mapping[str, Sequence[str]]) -> Row:
    """Return a row with names for the numbers of labels."""
    named = {**row}
    for column, names in names_of.items():
        named[column] = _named(row[column], names)
    return named


def _named(cell: object, names: Sequence[str]) -> object:
    """Return the name of a number, or those of a list of them; None for -1, which stands
    for no label.
    """
    if isinstance(cell, list):
        return [_named(member, names) for member in cell]
    if isinstance(cell, int):
        return names[cell] if 0 <= cell < len(names) else None
    return cell


def _are_objects(opening: Opening) -> bool:
    """Return whether a .json file has an object per line; other files of text have, if
    their lines look like it.
    """
    if opening.source.kind not in (".json", *PLAIN) or len(opening.lines) < 2:
        return False
    first, second = (line.strip() for line in opening.lines[:2])
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


def _are_labelled(opening: Opening) -> bool:
    return opening.source.kind in PLAIN and are_labelled(opening.lines)


def _open_labelled(opening: Opening, _: bool | None) -> TableFile:
    has_marks = MARK in opening.lines[0]
    scan = partial(scan_labelled, opening.source, has_marks=has_marks)
    return TableFile(opening.source, "labels before texts", ("label", "text"), scan)


def _open_folder(opening: Opening, _: bool | None) -> TableFile:
    return TextFolder.of(opening.source).open()


# ---- cells ---------------------------------------------------------------------------


def _are_delimited(opening: Opening) -> bool:
    return opening.source.kind in PLAIN and are_delimited(opening.lines)


def _open_delimited(opening: Opening, has_header: bool | None) -> TableFile:
    return open_delimited(opening.source, opening.lines, has_header)


def _open_sheet(opening: Opening, has_header: bool | None) -> TableFile:
    return open_sheet(opening.source, read_sheet(opening.source), has_header)


# ---- the registry --------------------------------------------------------------------


def _never(_: Opening) -> bool:
    return False


LAYOUTS: Sequence[Layout] = (
    Layout(
        "a folder of .txt files: in folders of labels, or beside .ann files of brat",
        (FOLDER,),
        _never,
        _open_folder,
    ),
    Layout("Parquet", (".parquet",), _never, _open_parquet),
    Layout("a spreadsheet", SPREADSHEETS, _never, _open_sheet),
    Layout("an object per line", JSON_LINES, _are_objects, _open_json_lines),
    Layout("a list of objects", (".json",), _never, _open_json),
    Layout("a word and its tag per line", TAGGED, _are_words, _open_words),
    Layout(
        "a label before each text, as in fastText", (), _are_labelled, _open_labelled
    ),
    Layout("cells between delimiters", DELIMITED, _are_delimited, _open_delimited),
)
SUFFIXES: tuple[str, ...] = tuple(
    suffix for layout in LAYOUTS for suffix in layout.suffixes if suffix != FOLDER
)
