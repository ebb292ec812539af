"""Rows of files: delimited (.csv, .tsv), JSON, Parquet, and words with tags (.conll).

A `scan_*` function yields each row with its number: a mapping of columns to values, or the error for a row that is not
valid, so that callers decide whether one bad row spoils a file.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import chain, islice
from shlex import quote
from typing import Any, Literal, TypeAlias, TypeVar

from pydantic import TypeAdapter, ValidationError

from litebert.errors import DamagedError, LitebertError, did_you_mean, missing_package
from litebert.files import parse_json
from litebert.reading.lines import read_lines, read_rows
from litebert.reading.source import CorruptStreamError, Source, open_source, read_pieces

Wanted = TypeVar("Wanted")
Row: TypeAlias = Mapping[str, object]
Scanned: TypeAlias = tuple[int, Row | LitebertError]
"""The number of a row (that of its first line), and the row or its error."""
Quoting = Literal["none", "doubled", "escaped"]

SAMPLE_LINES, SAMPLE_CHARACTERS = 1_000, 1 << 20
MAX_CELL = 1 << 24
"""The most characters in a cell; csv's default limit is far too low for a long document."""
MAX_CHARACTERS = 1 << 27
"""The most characters in a .json file, which must fit in memory; a .jsonl file may be longer."""
MAX_WORDS = 10_000
"""The most words in a sentence; without a blank line for longer, the file is of another kind."""
NO_DELIMITER = "\x1f"
_DELIMITERS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars", NO_DELIMITER: "nothing"}
_ROWS_AT_ONCE = 16
_UNITS = {".parquet": "row", ".json": "item"}
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")
_EXPECTED = {
    "missing": "this field",
    "model_type": "an object, {...}",
    "dict_type": "an object, {...}",
    "list_type": "a list, [...]",
    "string_type": "a string",
    "int_type": "a whole number",
    "float_type": "a number",
    "bool_type": "true or false",
}


@dataclass(frozen=True)
class RowPlace:
    """The place of a row, for messages.

    >>> print(RowPlace(Source("a.csv", "/a.csv", ".csv", "", 1), 1200))
    a.csv, line 1,200
    """

    source: Source
    number: int

    def __str__(self) -> str:
        return f"{self.source.name}, {_UNITS.get(self.source.kind, 'line')} {self.number:,}"


# Delimited files


@dataclass(frozen=True)
class Dialect:
    """The delimiter of cells, and how a cell that contains it is quoted."""

    delimiter: str
    quoting: Quoting

    def read(self, lines: Iterable[str]) -> Any:
        """Return a csv.reader of lines, which have their line ends; invalid ones raise csv.Error."""
        csv.field_size_limit(MAX_CELL)  # a global setting, always set to the same value
        return csv.reader(
            lines,
            delimiter=self.delimiter,
            quoting=csv.QUOTE_NONE if self.quoting == "none" else csv.QUOTE_MINIMAL,
            doublequote=self.quoting != "escaped",
            escapechar="\\" if self.quoting == "escaped" else None,
            skipinitialspace=self.quoting != "none" and self.delimiter != "\t",
            strict=True,
        )

    def sized(self, lines: Sequence[str]) -> Iterator[tuple[list[str], int]]:
        """Yield the valid rows of some lines without their ends, each with the number of its lines."""
        reader = self.read(f"{line}\n" for line in lines)
        while True:
            before = reader.line_num
            try:
                yield next(reader), reader.line_num - before
            except csv.Error:
                continue
            except StopIteration:
                return

    def __str__(self) -> str:
        quotes = "" if self.quoting != "none" else ", quotes are literal"
        return f"{_DELIMITERS[self.delimiter]} between cells{quotes}"


def first_lines(source: Source) -> list[str]:
    """Return the first lines without their ends, to guess the dialect from."""
    lines, size = [], 0
    for _, line in islice(read_rows(source), SAMPLE_LINES):
        lines.append(line)
        size += len(line)
        if size > SAMPLE_CHARACTERS:
            break
    return lines


def header_names(cells: Sequence[str], source: Source) -> tuple[str, ...]:
    """Return the names in a header, which are distinct; a column without a name is named by its number."""
    names = tuple(cell.strip() or str(place) for place, cell in enumerate(cells, 1))
    if twice := [name for name in dict.fromkeys(names) if names.count(name) > 1]:
        raise LitebertError(
            "LB-842",
            f"{source.name}, line 1: two columns have the same name",
            received=", ".join(twice),
            expected="a name for each column; or, if line 1 is a row: --column header=no",
            next="rename one of them",
        )
    return names


def scan_delimited(source: Source, dialect: Dialect, columns: Sequence[str], *, has_header: bool) -> Iterator[Scanned]:
    """Yield each row after the header, with the line that it begins on."""
    reader = dialect.read(f"{line}\n" for _, line in read_rows(source))
    is_header = has_header
    while True:
        number = reader.line_num + 1
        place = RowPlace(source, number)
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            reason = "a quote is opened and never closed" if "end of data" in str(error) else str(error)
            if not is_header:
                yield (
                    number,
                    LitebertError(
                        "LB-845",
                        f"{place}: the cells cannot be told apart",
                        received=reason,
                        expected='quotes around whole cells, and "" for a quote inside',
                        next="correct this line, or write the file again as .jsonl",
                    ),
                )
            is_header = False
            continue
        if is_header or not cells or not (len(columns) == 1 or any(cells)):
            is_header = False
        elif len(cells) != len(columns):
            yield (
                number,
                LitebertError(
                    "LB-843",
                    f"{place}: {len(cells)} cells, not {len(columns)}",
                    received=" | ".join(cells),
                    expected=f"a cell for each of {', '.join(columns)}",
                    next="quote cells that contain the delimiter, or remove this line",
                ),
            )
        elif "\0" in "".join(cells):
            yield (
                number,
                LitebertError(
                    "LB-844",
                    f"{place}: a NUL byte",
                    received=" | ".join(cells),
                    expected="text; a NUL in every other place means UTF-16",
                    next=f"tr -d '\\0' < {quote(source.name)} > cleaned{source.kind}",
                ),
            )
        else:
            yield number, dict(zip(columns, cells, strict=True))


# JSON


def parse_row(line: str, place: RowPlace) -> Row:
    """Read one line of a .jsonl input: one object, without NaN and duplicate keys."""
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


def scan_json_lines(source: Source) -> Iterator[Scanned]:
    """Yield the object on each line that is not blank."""
    for number, line in read_rows(source):
        if line and not line.isspace():
            try:
                yield number, parse_row(line, RowPlace(source, number))
            except LitebertError as error:
                yield number, error


def scan_json(source: Source) -> Iterator[Scanned]:
    """Yield the objects of a list, numbered from 1; in SQuAD's layout, the questions with their contexts.

    The list is the whole value, or the only list in the object that it is.
    """
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
                next=f"jq -c '.[]' {quote(source.name)} > rows.jsonl",
            )
    try:
        value = parse_json("\n".join(lines), distinct_keys=True)
    except (ValueError, RecursionError) as error:
        raise LitebertError(
            "LB-847",
            f"{source.name} is not JSON",
            received="nested too deeply" if isinstance(error, RecursionError) else str(error),
            expected="one list of objects, without NaN and without duplicate keys",
            next="write the file again with a JSON library; objects on lines belong in a .jsonl",
        ) from error
    if isinstance(value, Mapping):
        lists = [part for part in value.values() if isinstance(part, list)]
        value = lists[0] if len(lists) == 1 else value
    if not isinstance(value, list):
        raise _not_rows(source.name, value)
    for number, row in enumerate(chain.from_iterable(map(_questions, value)), 1):
        yield number, row if isinstance(row, Mapping) else _not_rows(RowPlace(source, number), row)


def _questions(row: object) -> Iterator[object]:
    """Yield the questions of an article of SQuAD with their contexts; anything else as it is."""
    paragraphs = row.get("paragraphs") if isinstance(row, Mapping) else None
    if not isinstance(paragraphs, list):
        yield row
        return
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


def read_layout(source: Source, layout: TypeAdapter[Wanted], *, what: str) -> Wanted:
    """Read a whole JSON file and check its layout, which errors call `what`; they name the place in the file."""
    try:
        value = parse_json(b"".join(read_pieces(source)).decode("utf-8-sig"))
    except (CorruptStreamError, ValueError, RecursionError) as error:
        raise DamagedError(
            "LB-800",
            f"{source.name} is damaged",
            received=str(error),
            expected="a complete JSON file in UTF-8",
            next="get the file again",
        ) from error
    try:
        return layout.validate_python(value)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place, wrong = first["loc"], first["input"]
        if isinstance(wrong, dict):
            received = f"an object with {', '.join(map(str, islice(wrong, 5)))}{', …' if len(wrong) > 5 else ''}"
        else:
            received = f"a list of {len(wrong):,}" if isinstance(wrong, list) else repr(wrong)
        where = ".".join(map(str, place)) or "the whole file"
        raise LitebertError(
            "LB-801",
            f"{source.name}{_question(value, place)} is not laid out as {what}: {where}",
            received=received,
            expected=_EXPECTED.get(first["type"], "a value of another kind"),
            next="correct this place in the file, or choose the file that was meant",
        ) from error


def _question(value: object, place: tuple[str | int, ...]) -> str:
    """Name the innermost question on the way to a place in the file, if there is one."""
    name = ""
    for step in place:
        if isinstance(value, dict) and isinstance(value.get("id"), str) and "paragraphs" not in value:
            name = f", question {value['id']}"
        try:
            value = value[step]  # type: ignore[index]
        except (KeyError, IndexError, TypeError):
            return name
    return name


def texts_of(row: Row, column: str, place: RowPlace) -> Iterator[str]:
    """Yield the texts of a dotted column; each element of a list is a separate text.

    >>> source = Source("a.jsonl", "/a.jsonl", ".jsonl", "", 1)
    >>> row = {"chapters": [{"text": "One."}, {"text": "Two."}]}
    >>> list(texts_of(row, "chapters.text", RowPlace(source, 1)))
    ['One.', 'Two.']
    """
    names = column.split(".")

    def not_text(received: str) -> LitebertError:
        return LitebertError(
            "LB-315",
            f"{place}: column {column} is not text",
            received=received,
            expected="a string, or a list of strings or of objects that lead to one",
            next="name another --column, or remove such rows from the file",
        )

    def walk(value: object, depth: int) -> Iterator[str]:
        if isinstance(value, list):
            for element in value:
                yield from walk(element, depth)
        elif depth < len(names) and isinstance(value, Mapping):
            if names[depth] not in value:
                within = f" in {'.'.join(names[:depth])}" if depth else ""
                raise LitebertError(
                    "LB-314",
                    f"{place}: there is no column {names[depth]}{within}",
                    received=f"--column {column}",
                    expected=f"one of {', '.join(map(str, value)) or '(the object is empty)'}",
                    next=f"--column with another name: {did_you_mean(names[depth], map(str, value))}",
                )
            yield from walk(value[names[depth]], depth + 1)
        elif depth == len(names) and isinstance(value, str):
            yield _LONE_SURROGATE.sub("\ufffd", value)
        else:
            raise not_text("null" if value is None else type(value).__name__)

    try:
        yield from walk(row, 0)
    except RecursionError as error:
        raise not_text("lists in lists without end") from error


# Parquet


def read_parquet(source: Source, column: str) -> Iterator[Row]:
    """Yield each row with only the top-level column of a dotted name, in bounded memory.

    If the file has no such column, yield one row with all names and no values, so that an error can list the names.
    """
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise missing_package("pyarrow", extra="data", needed_for="a .parquet input") from error
    num_rows = 0
    with closing(open_source(source)) as file:
        try:
            parquet: Any = pyarrow.parquet.ParquetFile(file, pre_buffer=False)
            top = column if column in parquet.schema_arrow.names else column.split(".")[0]
            if top not in parquet.schema_arrow.names:
                yield dict.fromkeys(parquet.schema_arrow.names)
                return
            for batch in parquet.iter_batches(batch_size=_ROWS_AT_ONCE, columns=[top], use_threads=False):
                for row in batch.to_pylist():
                    num_rows += 1
                    yield row
                if source.on_read is not None:
                    source.on_read(source.size * num_rows // parquet.metadata.num_rows)
        except UnicodeDecodeError as error:
            raise DamagedError(
                "LB-342",
                f"{source.name}, row {num_rows + 1:,} or one of the next {_ROWS_AT_ONCE}: not UTF-8",
                received=f"byte 0x{error.object[error.start]:02x}",
                expected="strings in UTF-8",
                next="write the file again with a Parquet library, from text that was decoded",
            ) from error
        except (pyarrow.ArrowException, OSError) as error:
            raise DamagedError(
                "LB-317",
                f"{source.name} is damaged after row {num_rows:,}",
                received=str(error),
                expected="a complete parquet file",
                next="copy or write the file again",
            ) from error


def scan_columns(source: Source, columns: Sequence[str]) -> Iterator[tuple[int, Row]]:
    """Yield each row of a .parquet file, numbered from 1, with some top-level columns; each is read separately."""
    cells = [read_parquet(source, name) for name in columns]
    for number, row in enumerate(zip(*cells, strict=True), 1):
        yield number, dict(chain.from_iterable(part.items() for part in row))


# Words with tags


def scan_tagged(source: Source) -> Iterator[Scanned]:
    """Yield each sentence of a .conll, .bio or .iob file as a row with `tokens` and `tags`, numbered by its first line.

    A line has a word first and its tag last, with anything between them; files without labels may have words alone.
    Blank lines are between sentences. Document marks (-DOCSTART-) and comments (# …) are skipped; a word # has as many
    cells as other lines.
    """
    words: list[str] = []
    tags: list[str] = []
    number, width = 0, 0
    problem: LitebertError | None = None
    lines = ((at, line.split("\t") if "\t" in line else line.split()) for at, line in read_rows(source))
    for line_number, cells in chain(lines, [(0, [])]):  # as if a blank line followed the last one
        if cells and (cells[0] == "-DOCSTART-" or (cells[0].startswith("#") and len(cells) != (width or 2))):
            continue
        if any(cells):
            number, width = number or line_number, width or len(cells)
            if len(words) >= MAX_WORDS:
                problem = problem or LitebertError(
                    "LB-849",
                    f"{RowPlace(source, line_number)}: the sentence does not end",
                    received=f"{MAX_WORDS:,} words without a blank line",
                    expected="a word and its tag per line, and a blank line between sentences",
                    next="add blank lines; if this is a table with a header, name it .tsv",
                )
            elif len(cells) != width or not all(cells):
                problem = problem or LitebertError(
                    "LB-852",
                    f"{RowPlace(source, line_number)}: {len(cells)} columns, not {width}",
                    received=" | ".join(cells),
                    expected="as many as the first line has: the word first, its tag last",
                    next="correct this line",
                )
            words.append(cells[0])
            tags.append(cells[-1])
            if len(words) <= MAX_WORDS:
                continue
        if words:
            yield number, problem or ({"tokens": words, "tags": tags} if width > 1 else {"tokens": words})
        number, words, tags, problem = 0, [], [], None
