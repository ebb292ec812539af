"""Files with a word a line and a blank line after each sentence, such as CoNLL-2003:

    EU      B-ORG
    rejects O
    ...

A `WordLayout` says which column has the words and which one the tags, and turns the
lines of a sentence into a row. `litebert.reading.conll` has layouts of other forms, and
`litebert.reading.word_layouts` recognizes the layout of a file.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Self, TypeAlias

from litebert.errors import LitebertError
from litebert.reading.lines import read_lines
from litebert.reading.source import Source
from litebert.reading.tables import Row, Scanned

# the most words in a sentence; if no blank line comes in so many, the file is of
# another kind
MAX_WORDS = 10_000

Sentence: TypeAlias = Sequence[Sequence[str]]
"""The cells of each of its lines."""

Values: TypeAlias = Mapping[str, list[str]]
"""A value for each word of a sentence, by the name of the column."""


# ---- how a file is laid out ----------------------------------------------------------


@dataclass(frozen=True)
class WordLayout:
    """A word a line, in columns that tabs or spaces separate.

    `names` are those of the columns: their numbers, unless the form of the file names
    them. `word` is the column of the words and `tag` that of the tags, if there is any.
    """

    names: tuple[str, ...]
    word: str
    tag: str | None
    has_tabs: bool = True
    # the cells of the last column in the first lines, which tell a word # from a comment
    last_cells: frozenset[str] = frozenset()

    @property
    def details(self) -> tuple[str, ...]:
        """All that a line has, as columns beside `tokens` and `tags`."""
        return self.names

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of a row."""
        tags = () if self.tag is None else ("tags",)
        return ("tokens", *tags, *self.details)

    def __str__(self) -> str:
        if len(self.names) < 2 or self.tag is None:
            return "a word per line"
        numbered = f"a word per line, words in column {self.word}"
        return f"{numbered}, tags in column {self.tag} of {len(self.names)}"

    def cells(self, line: str) -> list[str]:
        """Return the cells of a line; those of a blank line are empty."""
        return split_cells(line, has_tabs=self.has_tabs)

    def is_comment(self, line: str, cells: Sequence[str], *, is_first: bool) -> bool:
        """Return whether a line has no word: a document mark, or a comment such as
        `# text` or `# key = value`. `is_first` says whether it begins a sentence.

        A line whose word is # has as many cells as other lines, and a tag.
        """
        if line.startswith("-DOCSTART-"):
            return True
        if not line.startswith("#"):
            return False
        is_note = line.startswith("# ") and ("\t" in line or " = " in line)
        is_tabbed = self.has_tabs and "\t" in line
        if len(cells) != len(self.names) or (is_note and not is_tabbed):
            return True
        return is_first and len(self.names) > 1 and cells[-1] not in self.last_cells

    def row(self, sentence: Sentence) -> dict[str, list[str]]:
        """Return a sentence as a row of columns, each with a value for each word."""
        values = self._values(self._lines_of_words(sentence))
        row = {"tokens": values[self.word]}
        if self.tag is not None:
            row["tags"] = self._tags(values[self.tag])
        return {**row, **values}

    def _lines_of_words(self, sentence: Sentence) -> Sentence:
        """Return the lines that are words of their own."""
        return sentence

    def _values(self, lines: Sentence) -> Values:
        values = dict[str, list[str]]()
        for place, name in enumerate(self.names):
            values[name] = [cells[place] for cells in lines]
        return values

    def _tags(self, cells: Sequence[str]) -> list[str]:
        """Return the tags that the cells of a sentence stand for."""
        return list(cells)


def split_cells(line: str, *, has_tabs: bool) -> list[str]:
    """Return the cells of a line, without space around them."""
    if not has_tabs:
        return line.split()
    return [cell.strip() for cell in line.split("\t")]


# ---- the first lines, from which a layout is recognized ------------------------------


@dataclass(frozen=True)
class WordSample:
    """The first lines of a file, as sentences of lines of one width: of the width that
    most lines have. Comments and lines of other widths are left out.
    """

    width: int  # cells in a line
    sentences: list[list[list[str]]]  # the cells of each line of each sentence

    @classmethod
    def of(cls, lines: Sequence[str], split: Callable[[str], list[str]]) -> Self:
        """Divide lines into sentences, and each line into cells with `split`."""
        widths = Counter(len(split(line)) for line in lines_of_words(lines))
        width = 2
        if widths:
            width = widths.most_common(1)[0][0]

        sentences = list[list[list[str]]]()
        sentence = list[list[str]]()
        for line in [*lines, ""]:  # a blank line ends the last sentence, too
            cells = split(line)
            if any(cells):
                if len(cells) == width and not _is_mark(line):
                    sentence.append(cells)
            elif sentence:
                sentences.append(sentence)
                sentence = []
        return cls(width, sentences)

    def column(self, place: int) -> list[str]:
        """Return the cells of a column in all sentences."""
        cells = list[str]()
        for sentence in self.sentences:
            cells.extend(line[place] for line in sentence)
        return cells


def lines_of_words(lines: Sequence[str]) -> list[str]:
    """Return the lines that are neither blank nor, by their beginnings, comments."""
    return [line for line in lines if line.strip() and not _is_mark(line)]


def _is_mark(line: str) -> bool:
    return line.startswith(("#", "-DOCSTART-"))


# ---- tags ----------------------------------------------------------------------------

# BIO, BIOES, BILOU and BMES
_ENTITY = re.compile(r"[BIESLUM]-\S+").fullmatch
_OUTSIDE = ("O", "_", "")


def are_entities(tags: Iterable[str]) -> bool:
    """Return whether tags mark entities: some are like B-PER, and all others O."""
    kinds = set(tags)
    marks = [kind for kind in kinds if _ENTITY(kind)]
    return bool(marks) and all(_ENTITY(kind) or kind in _OUTSIDE for kind in kinds)


# ---- reading -------------------------------------------------------------------------


@dataclass(frozen=True)
class _Line:
    number: int  # in the file, from 1
    cells: list[str]


def scan_words(source: Source, layout: WordLayout) -> Iterator[Scanned]:
    """Yield each sentence as a row with `tokens`, `tags` and all columns, numbered by
    its first line.
    """
    for sentence in _sentences(source, layout):
        yield sentence[0].number, _row_or_error(source, layout, sentence)


def _sentences(source: Source, layout: WordLayout) -> Iterator[list[_Line]]:
    """Yield the lines of each sentence, without comments; of a sentence that does not
    end, one word more than is allowed.
    """
    sentence = list[_Line]()
    for number, text in read_lines(source):
        cells = layout.cells(text)
        is_blank = not any(cells)
        if is_blank and sentence:
            yield sentence
            sentence = []
        if is_blank or layout.is_comment(text, cells, is_first=not sentence):
            continue
        if len(sentence) <= MAX_WORDS:
            sentence.append(_Line(number, cells))
    if sentence:
        yield sentence


def _row_or_error(
    source: Source, layout: WordLayout, sentence: Sequence[_Line]
) -> Row | LitebertError:
    for line in sentence:
        if len(line.cells) != len(layout.names) or not all(line.cells):
            return _wrong_width(source.place(line.number), line.cells, layout)
    if len(sentence) > MAX_WORDS:
        return _endless(source.place(sentence[-1].number))
    return layout.row([line.cells for line in sentence])


def _wrong_width(place: str, cells: Sequence[str], layout: WordLayout) -> LitebertError:
    return LitebertError(
        "LB-843",
        f"{place}: expected {len(layout.names)} columns, found {len(cells)}",
        received=" | ".join(cells),
        expected="as many as the other lines have",
        next="correct this line: a word and its tag",
    )


def _endless(place: str) -> LitebertError:
    return LitebertError(
        "LB-849",
        f"{place}: the sentence does not end",
        received=f"{MAX_WORDS:,} words without a blank line",
        next=(
            "add blank lines between sentences; if this is a table with a header,"
            " name it .tsv"
        ),
    )
