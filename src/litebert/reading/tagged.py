"""Read a .conll, .bio or .iob file: a word and its tag per line, blank lines between sentences.

The word is first on a line and the tag last, with anything between them; files without labels may
have words alone. Document marks (-DOCSTART-) and comments (# …) are skipped.
"""

from __future__ import annotations

from collections.abc import Iterator

from litebert.errors import LitebertError
from litebert.reading.lines import read_rows
from litebert.reading.rows import RowPlace, Scanned
from litebert.reading.source import Source

MAX_WORDS = 10_000
"""The most words in a sentence; without a blank line for longer, the file is of another kind."""


def scan_tagged(source: Source) -> Iterator[Scanned]:
    """Yield each sentence as a row with `tokens` and `tags`, numbered by its first line."""
    words: list[str] = []
    tags: list[str] = []
    number, width = 0, 0
    problem: LitebertError | None = None
    for line_number, line in read_rows(source):
        cells = line.split("\t") if "\t" in line else line.split()
        if _is_aside(cells, width):
            continue
        if cells and any(cells):
            number = number or line_number
            width = width or len(cells)
            problem = problem or _problem(source, line_number, cells, width, len(words))
            words.append(cells[0])
            tags.append(cells[-1])
            if len(words) <= MAX_WORDS:
                continue
        if words:
            yield number, problem or _sentence(words, tags, width)
        number, words, tags, problem = 0, [], [], None
    if words:
        yield number, problem or _sentence(words, tags, width)


def _sentence(words: list[str], tags: list[str], width: int) -> dict[str, object]:
    return {"tokens": words, "tags": tags} if width > 1 else {"tokens": words}


def _is_aside(cells: list[str], width: int) -> bool:
    """Whether this is a mark or a comment; a word # has as many cells as other lines."""
    if not cells:
        return False
    return cells[0] == "-DOCSTART-" or (cells[0].startswith("#") and len(cells) != (width or 2))


def _problem(source: Source, number: int, cells: list[str], width: int, num_words: int) -> LitebertError | None:
    if num_words >= MAX_WORDS:
        return LitebertError(
            "LB-849",
            f"{RowPlace(source, number)}: the sentence does not end",
            received=f"{MAX_WORDS:,} words without a blank line",
            expected="a word and its tag per line, and a blank line between sentences",
            next="add blank lines; if this is a table with a header, name it .tsv",
        )
    if len(cells) != width or not all(cells):
        return LitebertError(
            "LB-852",
            f"{RowPlace(source, number)}: {len(cells)} columns, not {width}",
            received=" | ".join(cells),
            expected="as many as the first line has: the word first, its tag last",
            next="correct this line",
        )
    return None
