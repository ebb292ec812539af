"""Rows of files: delimited (.csv, .tsv), JSON, Parquet, and words with tags (.conll).

A `scan_*` function yields each row with its number: a mapping of columns to values, or
the error for a row that is not valid, so that callers decide whether one bad row makes
a file unusable.
"""

import csv
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from shlex import quote
from typing import Any, Literal, TypeAlias

from litebert.errors import DamagedError, LitebertError
from litebert.files import parse_json
from litebert.reading.source import MAX_JSON_BYTES, Source, read_lines

Row: TypeAlias = Mapping[str, object]
Scanned: TypeAlias = tuple[int, Row | LitebertError]
"""The number of a row (that of its first line), and the row or its error."""
Quoting = Literal["none", "doubled", "escaped"]

# the most characters in a cell; csv's default limit is far too low for a long document
MAX_CELL = 1 << 24
# the most words in a sentence; if no blank line comes in so many, the file is of
# another kind
MAX_WORDS = 10_000
NO_DELIMITER = "\x1f"
_DELIMITERS = {
    ",": "commas",
    ";": "semicolons",
    "\t": "tabs",
    "|": "bars",
    NO_DELIMITER: "nothing",
}
_COMMA = re.compile(r"^(\s*[+-]?\d+),(\d+\s*)$")


# ---- delimited files -----------------------------------------------------------------


@dataclass(frozen=True)
class Dialect:
    """The delimiter of cells, and how a cell that contains it is quoted."""

    delimiter: str
    quoting: Quoting
    # the columns of numbers with decimal commas, which are read as points
    decimals: tuple[int, ...] = ()

    def rows(
        self, lines: Iterable[str]
    ) -> Iterator[tuple[int, int, list[str] | csv.Error]]:
        """Parse lines without line ends; yield (first line, number of lines, cells or
        their error) for each row.
        """
        # as in GLUE; csv refuses a carriage return in a cell
        if (self.delimiter, self.quoting) == ("\t", "none"):
            for number, line in enumerate(lines, 1):
                yield (
                    number,
                    1,
                    self._with_points(line.split(self.delimiter)) if line else [],
                )
            return
        csv.field_size_limit(MAX_CELL)  # a global setting, always set to the same value
        reader: Any = csv.reader(
            (f"{line}\n" for line in lines),
            delimiter=self.delimiter,
            quoting=csv.QUOTE_NONE if self.quoting == "none" else csv.QUOTE_MINIMAL,
            doublequote=self.quoting != "escaped",
            escapechar="\\" if self.quoting == "escaped" else None,
            skipinitialspace=self.quoting != "none" and self.delimiter != "\t",
            strict=True,
        )
        while True:
            before = reader.line_num
            try:
                cells: list[str] | csv.Error = self._with_points(next(reader))
            except StopIteration:
                return
            except csv.Error as error:
                cells = error
            yield before + 1, reader.line_num - before, cells

    def _with_points(self, cells: list[str]) -> list[str]:
        return [
            _COMMA.sub(r"\1.\2", cell) if n in self.decimals else cell
            for n, cell in enumerate(cells)
        ]

    def __str__(self) -> str:
        quotes = "" if self.quoting != "none" else ", quotes are literal"
        return (
            f"{_DELIMITERS[self.delimiter]} between"
            f" cells{quotes}{', decimal commas' * bool(self.decimals)}"
        )


def scan_delimited(
    source: Source, dialect: Dialect, columns: Sequence[str], *, has_header: bool
) -> Iterator[Scanned]:
    """Yield each row after the header, with the line that it begins on."""
    rows = dialect.rows(line for _, line in read_lines(source))
    for number, _, cells in islice(rows, int(has_header), None):
        if isinstance(cells, csv.Error):
            reason = (
                "a quote is opened and never closed"
                if "end of data" in str(cells)
                else cells
            )
            what = f"{source.place(number)}: the cells cannot be separated"
            yield (
                number,
                LitebertError(
                    "LB-845",
                    what,
                    received=reason,
                    next="correct this line, or write .jsonl",
                ),
            )
            continue
        if not cells or not (len(columns) == 1 or any(cells)):
            continue
        received = " | ".join(cells)
        if len(cells) != len(columns):
            what = f"{source.place(number)}: {len(cells)} cells, not {len(columns)}"
            expected = f"a cell for each of {', '.join(columns)}"
            advice = "quote cells that contain the delimiter"
            yield (
                number,
                LitebertError(
                    "LB-843", what, received=received, expected=expected, next=advice
                ),
            )
        elif "\0" in received:
            what = f"{source.place(number)}: a NUL byte"
            expected = "text; a NUL in every other place means UTF-16"
            advice = f"tr -d '\\0' < {quote(source.name)} > cleaned{source.kind}"
            yield (
                number,
                LitebertError(
                    "LB-844", what, received=received, expected=expected, next=advice
                ),
            )
        else:
            yield number, dict(zip(columns, cells, strict=True))


# ---- JSON ----------------------------------------------------------------------------


def _no_json(text: str, place: str, error: Exception) -> DamagedError:
    """Return the error for a text that is not JSON; the parser's error is its cause."""
    reason = str(error)
    if isinstance(error, RecursionError):
        reason = "nested too deeply"
    damaged = DamagedError(
        "LB-312",
        f"{place}: not JSON",
        received=f"{reason}: {text[:80]}",
        expected="a complete object per line (.jsonl) or a list (.json), without NaN",
        next="write the file again with a JSON library",
    )
    damaged.__cause__ = error
    return damaged


def _no_object(place: str, value: object) -> LitebertError:
    what = f"{place}: not an object with a value for each column"
    received = f"{type(value).__name__}: {value}"[:120]
    expected = (
        'objects such as {"text": "…", "label": "…"}: a list of them (.json), or one'
        " per line (.jsonl)"
    )
    return LitebertError(
        "LB-848",
        what,
        received=received,
        expected=expected,
        next="write the file again",
    )


def scan_json_lines(source: Source) -> Iterator[Scanned]:
    """Yield the object on each line that is not blank."""
    for number, line in read_lines(source):
        if not line or line.isspace():
            continue
        try:
            row = parse_json(line, distinct_keys=True)
        except (ValueError, RecursionError) as error:
            yield number, _no_json(line, source.place(number), error)
            continue
        if isinstance(row, dict):
            yield number, row
        else:
            yield number, _no_object(source.place(number), row)


def read_json(source: Source) -> object:
    """Read a whole file as one value, without NaN and duplicate keys."""
    lines = []
    size = 0
    for _, line in read_lines(source):
        lines.append(line)
        size += len(line) + 1
        if size > MAX_JSON_BYTES:
            what = f"{source.name} is too long to be read into memory"
            received = f"over {MAX_JSON_BYTES:,} characters"
            advice = f"jq -c '.[]' {quote(source.name)} > rows.jsonl"
            raise LitebertError(
                "LB-846",
                what,
                received=received,
                expected="an object per line (.jsonl)",
                next=advice,
            )
    text = "\n".join(lines)
    try:
        return parse_json(text, distinct_keys=True)
    except (ValueError, RecursionError) as error:
        raise _no_json(text, source.name, error) from error


def scan_json(source: Source) -> Iterator[Scanned]:
    """Yield the objects of a list, numbered from 1; in SQuAD's layout, the questions
    with their contexts.

    The list is the whole value or, if that is an object, the only list in it.
    """
    value = read_json(source)
    if isinstance(value, dict):
        lists = [part for part in value.values() if isinstance(part, list)]
        value = lists[0] if len(lists) == 1 else value
    if not isinstance(value, list):
        raise _no_object(source.name, value)
    for number, row in enumerate(chain.from_iterable(map(_questions, value)), 1):
        yield (
            number,
            (row if isinstance(row, dict) else _no_object(source.place(number), row)),
        )


def _questions(row: Any) -> Iterator[object]:
    paragraphs = row.get("paragraphs") if isinstance(row, dict) else None
    for paragraph in paragraphs if isinstance(paragraphs, list) else [row]:
        questions = paragraph.get("qas") if isinstance(paragraph, dict) else None
        if not isinstance(questions, list):
            yield paragraph
            continue
        for question in questions:
            yield (
                {**question, "context": paragraph.get("context")}
                if isinstance(question, dict)
                else question
            )


def require_distinct(
    columns: Sequence[str], place: str, expected: str = "a name for each column"
) -> None:
    """Check that no two columns have the same name."""
    if twice := [name for name, number in Counter(columns).items() if number > 1]:
        what = f"{place}: two columns have the same name"
        advice = "rename one of them"
        raise LitebertError(
            "LB-842", what, received=", ".join(twice), expected=expected, next=advice
        )


# ---- words with tags -----------------------------------------------------------------


def scan_tagged(source: Source) -> Iterator[Scanned]:
    """Yield each sentence of a .conll, .bio or .iob file as a row with `tokens` and
    `tags`, numbered by its first line.

    A line has a word first and its tag last, with anything in between; files without
    labels may have only words. Blank lines separate sentences. Document marks
    (-DOCSTART-) and comments (# …, # key = value) are skipped; a line whose word begins
    with # has as many cells as other lines.
    """
    # cells in the first line with words, and so in all
    width = 0
    sentence = list[tuple[int, list[str]]]()
    # a blank line ends the last sentence, too
    for number, line in chain(read_lines(source), [(0, "")]):
        cells = line.split("\t") if "\t" in line else line.split()
        # of any number of cells
        is_note = line.startswith("# ") and (not width or "\t" in line or " = " in line)
        if cells and (
            cells[0] == "-DOCSTART-"
            or (cells[0][:1] == "#" and (is_note or len(cells) != (width or 2)))
        ):
            continue
        if any(cells):
            width = width or len(cells)
            # keep no more of a sentence that does not end
            if len(sentence) <= MAX_WORDS:
                sentence.append((number, cells))
        if any(cells) or not sentence:
            continue
        first, _ = sentence[0]
        odd = next(
            (
                (at, cells)
                for at, cells in sentence
                if len(cells) != width or not all(cells)
            ),
            None,
        )
        if odd:
            what = f"{source.place(odd[0])}: {len(odd[1])} cells, not {width}"
            received = " | ".join(odd[1])
            expected = "as many as the first line has"
            advice = "correct this line: the word first, its tag last"
            yield (
                first,
                LitebertError(
                    "LB-843", what, received=received, expected=expected, next=advice
                ),
            )
        elif len(sentence) > MAX_WORDS:
            what = f"{source.place(sentence[-1][0])}: the sentence does not end"
            received = f"{MAX_WORDS:,} words without a blank line"
            advice = (
                "add blank lines between sentences; if this is a table with a header,"
                " name it .tsv"
            )
            yield first, LitebertError("LB-849", what, received=received, next=advice)
        else:
            row = {"tokens": [cells[0] for _, cells in sentence]}
            yield (
                first,
                row
                | ({"tags": [cells[-1] for _, cells in sentence]} if width > 1 else {}),
            )
        sentence = []
