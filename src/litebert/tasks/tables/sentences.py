"""Tables with a word in each row, which become tables with a sentence in each row.

The sentences are told apart by a column that is filled in their first rows only, or
that is the same in all of their rows; or by blank lines between them.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice, pairwise

from litebert.errors import LitebertError, RequestError
from litebert.reading.tables import Row, Scanned
from litebert.reading.words import are_entities
from litebert.tasks.tables.cells import is_number, name_of, text_of
from litebert.tasks.tables.columns import NAMES, normalize_name
from litebert.tasks.tables.table import SAMPLE_ROWS, TableFile

FEWEST_ROWS = 4  # fewer say nothing about sentences
_SINGLE = 0.95  # the share of cells with one word, at least, in a column of words


def join_words(table: TableFile, sentence: str | None) -> TableFile:
    """Return a table of sentences if each row is a word, otherwise the table.

    `sentence` names the column that tells sentences apart; None: it is looked for.
    """
    if sentence is None and not _may_have_words(table):
        return table
    if sentence is not None and sentence not in table.columns:
        return table  # another file, which has sentences
    layout = WordRows.find(table, sentence)
    if layout is None:
        return table
    others = [name for name in table.columns if name not in layout.columns]
    return replace(
        table,
        writing=f"{table.writing}; {layout}",
        columns=(*layout.columns, *others),
        scan=partial(layout.scan, table),
        spare=tuple(others),
    )


def _may_have_words(table: TableFile) -> bool:
    """Return whether the first rows are worth a look: a .json file is not read once
    more unless a column is called like words.
    """
    names = map(normalize_name, table.columns)
    has_cells = table.has_header is not None
    return has_cells or any(name in NAMES["word"] for name in names)


@dataclass(frozen=True)
class WordRows:
    """The columns of a table with a word in each row."""

    word: str
    tag: str | None
    sentence: str | None  # tells sentences apart; None: blank lines do

    @classmethod
    def find(cls, table: TableFile, sentence: str | None) -> "WordRows | None":
        """Find the columns of a table with a word in each row; None for any other
        table. `sentence` is the column of sentences, if the user named it.
        """
        sample = WordRowSample.of(table)
        word = sample.word_column(but=sentence)
        if word is None:
            return None
        tag = sample.tag_column(word)
        if sentence is not None:
            return cls(word, tag, sentence)
        separating = sample.sentence_column(but=(word, tag))
        if separating is not None:
            return cls(word, tag, separating)
        if sample.has_gaps:
            is_called_so = normalize_name(word) in NAMES["word"]
            if tag is not None or is_called_so:
                return cls(word, tag, None)
            return None  # texts of a word each, between blank lines
        if tag is not None and are_entities(sample.texts(tag)):
            raise _endless(table, word)
        return None

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that a sentence has beside those of the table."""
        return ("tokens",) if self.tag is None else ("tokens", "tags")

    def __str__(self) -> str:
        if self.sentence is None:
            return "a word per row, blank lines between sentences"
        return f"a word per row, sentences by column {self.sentence}"

    def scan(self, table: TableFile) -> Iterator[Scanned]:
        """Yield each sentence as a row of lists, numbered by its first word.

        A damaged row is yielded as its error, and does not end its sentence.
        """
        first = 0  # the numbers of the first and last row of the sentence so far
        last = 0
        rows = list[Row]()
        name = ""  # what the column of sentences says
        for number, row in table.scan():
            follows = number == last + 1
            last = number
            if isinstance(row, LitebertError):
                yield number, row
                continue
            if self.sentence is not None:
                cell = name_of(row.get(self.sentence)) or name
                follows = cell == name
                name = cell
            if rows and not follows:
                yield first, self._join(rows)
                rows = []
            if not rows:
                first = number
            rows.append(row)
        if rows:
            yield first, self._join(rows)

    def _join(self, rows: Sequence[Row]) -> Row:
        """Return the rows of a sentence as one row, with a list in each column."""
        columns: dict[str, object] = {}
        for name in rows[0]:
            columns[name] = [row.get(name) for row in rows]
        columns["tokens"] = columns[self.word]
        if self.tag is not None:
            columns["tags"] = [row.get(self.tag) for row in rows]
        return columns


@dataclass(frozen=True)
class WordRowSample:
    """The first rows of a table that may have a word in each row, with their
    numbers.
    """

    columns: Sequence[str]
    numbers: Sequence[int]
    rows: Sequence[Row]

    @classmethod
    def of(cls, table: TableFile) -> "WordRowSample":
        """Read the first rows that are valid."""
        numbers = list[int]()
        rows = list[Row]()
        for number, row in islice(table.scan(), SAMPLE_ROWS):
            if isinstance(row, Mapping):
                numbers.append(number)
                rows.append(row)
        return cls(table.columns, numbers, rows)

    def texts(self, column: str) -> list[str]:
        """Return the cells of a column; "" for an empty one."""
        return [text_of(row.get(column)) or "" for row in self.rows]

    @property
    def has_gaps(self) -> bool:
        """Whether blank lines divide the rows into sentences of several words."""
        num_gaps = 0
        for before, after in pairwise(self.numbers):
            if after > before + 1:
                num_gaps += 1
        return 0 < num_gaps * 2 <= len(self.numbers)

    def word_column(self, *, but: str | None) -> str | None:
        """Return the column of words: the one with a usual name or, beside a column
        that marks entities, the first with words.
        """
        if len(self.rows) < FEWEST_ROWS:
            return None
        candidates = list[str]()
        for name in self.columns:
            if name == but or not self._has_words(name):
                continue
            if normalize_name(name) in NAMES["word"]:
                return name
            candidates.append(name)
        marking = self._marking_columns(self.columns)
        if not marking:
            return None
        for name in candidates:
            if name not in marking and not self._separates(name):
                return name
        return None

    def _has_words(self, column: str) -> bool:
        """Return whether nearly all cells are one word, and not all are numbers."""
        words = [text for text in self.texts(column) if len(text.split()) == 1]
        are_numbers = all(map(is_number, words))
        return not are_numbers and len(words) >= _SINGLE * len(self.rows)

    def _marking_columns(self, columns: Iterable[str]) -> list[str]:
        return [name for name in columns if are_entities(self.texts(name))]

    def tag_column(self, word: str) -> str | None:
        """Return the column of tags: the last that marks entities, or the first with a
        usual name.
        """
        others = [name for name in self.columns if name != word]
        marking = self._marking_columns(others)
        if marking:
            return marking[-1]
        usual = {normalize_name(name): name for name in reversed(others)}
        for name in NAMES["tags"]:
            if name in usual:
                return usual[name]
        return None

    def sentence_column(self, *, but: Sequence[str | None]) -> str | None:
        """Return the column that tells sentences apart: of those that do, the one with a
        usual name, or else the one with the most sentences.
        """
        separating = list[str]()
        for name in self.columns:
            if name in but:
                continue
            is_usual = normalize_name(name) in NAMES["sentence"]
            if is_usual and self._num_sentences(name) < len(self.rows):
                return name
            if self._separates(name):
                separating.append(name)
        return max(separating, key=self._num_sentences, default=None)

    def _num_sentences(self, column: str) -> int:
        """Count the runs of one value; an empty cell is like the one above it."""
        number = 0
        last = None
        for cell in self.texts(column):
            if cell and cell != last:
                number += 1
                last = cell
        return number

    def _separates(self, column: str) -> bool:
        """Return whether a column may number sentences: no value returns after another
        one, and a value stands for two rows or more on average (the empty cells below
        it count).
        """
        cells = self.texts(column)
        values = {cell for cell in cells if cell}
        num_sentences = self._num_sentences(column)
        has_each_once = bool(cells[0]) and num_sentences == len(values)
        return has_each_once and 1 < num_sentences <= len(cells) / 2


def _endless(table: TableFile, word: str) -> LitebertError:
    return RequestError(
        "LB-866",
        f"each row of {table.source.name} is a word, and nothing says which words make a"
        " sentence",
        received=f"columns {', '.join(table.columns)}; words in {word}",
        expected="a column with the number of the sentence, or blank lines between them",
        next="--column sentence=NAME",
    )
