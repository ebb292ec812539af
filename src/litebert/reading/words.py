"""Files with a word a line and a blank line after each sentence: CoNLL in its many
forms, BIO, and CoNLL-U.

How such a file is laid out is recognized from its first lines: which columns only count
the words, which one has the words and which one the tags.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

from litebert.errors import LitebertError
from litebert.reading.source import Source, read_lines
from litebert.reading.tables import Row, Scanned

# the most words in a sentence; if no blank line comes in so many, the file is of
# another kind
MAX_WORDS = 10_000

_CONLLU = ("id", "form", "lemma", "upos", "xpos", "feats", "head", "deprel", "deps")
CONLLU = (*_CONLLU, "misc")
"""The columns of CoNLL-U, https://universaldependencies.org/format.html."""
# CoNLL-U Plus names its columns in its first line
_GLOBAL_COLUMNS = "# global.columns ="
# the number of a word, 3, of several that are written together, 3-4, and of an empty
# word, 3.1
_NUMBER = re.compile(r"\d+(?:[-.]\d+)?").fullmatch
_WORD_NUMBER = re.compile(r"\d+").fullmatch
# BIO, BIOES, BILOU and BMES
_ENTITY = re.compile(r"[BIESLUM]-\S+").fullmatch
_OUTSIDE = ("O", "_", "")

Sentence = Sequence[Sequence[str]]
"""The cells of each of its lines."""


def are_entities(tags: Iterable[str]) -> bool:
    """Return whether tags mark entities: some are like B-PER, and all others O."""
    kinds = set(tags)
    marks = [kind for kind in kinds if _ENTITY(kind)]
    return bool(marks) and all(_ENTITY(kind) or kind in _OUTSIDE for kind in kinds)


@dataclass(frozen=True)
class WordLayout:
    """How a file with a word a line is laid out.

    `names` are those of the columns, `word` and `tag` two of them; in CoNLL-U, `keys`
    are what stands in its last column as key=value, each of which is a column, too.
    """

    names: tuple[str, ...]
    word: str
    tag: str | None
    has_tabs: bool
    # the tags in the first lines, by which a comment is told from a word
    tags: frozenset[str] = frozenset()
    keys: tuple[str, ...] = ()
    is_conllu: bool = False

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of its rows: the words, their tags, and all that a line has."""
        tags = () if self.tag is None else ("tags",)
        return ("tokens", *tags, *self.names, *self.keys)

    def __str__(self) -> str:
        if self.is_conllu:
            return f"CoNLL-U, words in {self.word}, tags in {self.tag}"
        if len(self.names) < 2 or self.tag is None:
            return "a word per line"
        numbered = f"a word per line, words in column {self.word}"
        return f"{numbered}, tags in column {self.tag} of {len(self.names)}"

    def cells(self, line: str) -> list[str]:
        """Return the cells of a line; [] if it is blank."""
        cells = line.split("\t") if self.has_tabs else line.split()
        return [cell.strip() for cell in cells] if line.strip() else []

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
        return is_first and len(self.names) > 1 and cells[-1] not in self.tags

    def row(self, sentence: Sentence) -> Row:
        """Return a sentence as a row of columns, each with a value for each word."""
        lines = sentence
        if self.is_conllu:
            lines = [cells for cells in sentence if _WORD_NUMBER(cells[0])]
        columns: dict[str, list[str]] = {}
        for place, name in enumerate(self.names):
            columns[name] = [cells[place] for cells in lines]
        for key in self.keys:
            columns[key] = [_keyed(cells[-1]).get(key, "O") for cells in lines]
        row: dict[str, list[str]] = {"tokens": columns[self.word]}
        if self.tag is not None:
            row["tags"] = columns[self.tag]
        return row | columns


def _keyed(cell: str) -> dict[str, str]:
    """Return the keys and values of a cell such as SpaceAfter=No|name=B-LOC."""
    pairs = (part.partition("=") for part in cell.split("|"))
    return {key: value for key, mark, value in pairs if mark}


# ---- recognition ---------------------------------------------------------------------


def recognize(lines: Sequence[str]) -> WordLayout:
    """Recognize how a file with a word a line is laid out, from its first lines."""
    written = [line for line in lines if line.strip() and not _is_mark(line)]
    has_tabs = sum("\t" in line for line in written) * 2 > len(written)
    draft = WordLayout((), "", None, has_tabs)
    widths = Counter(len(draft.cells(line)) for line in written)
    width = max(widths, key=lambda size: widths[size], default=2)
    sentences = _sentences(draft, lines, width)
    declared = [line for line in lines if line.startswith(_GLOBAL_COLUMNS)]
    if declared:
        names = declared[0].removeprefix(_GLOBAL_COLUMNS).lower().split()
        return _as_conllu(sentences, tuple(names))
    numbers = [cells[0] for sentence in sentences for cells in sentence]
    if has_tabs and width == len(CONLLU) and all(map(_NUMBER, numbers)):
        return _as_conllu(sentences, CONLLU)

    names = [str(place + 1) for place in range(width)]
    word = _num_counting(sentences, width)
    columns = [
        [cells[place] for sentence in sentences for cells in sentence]
        for place in range(width)
    ]
    tag = _tag_place(columns, word)
    return WordLayout(
        tuple(names),
        names[word],
        None if tag is None else names[tag],
        has_tabs,
        frozenset(columns[-1]),
    )


def _is_mark(line: str) -> bool:
    return line.startswith(("#", "-DOCSTART-"))


def _sentences(
    layout: WordLayout, lines: Sequence[str], width: int
) -> list[list[list[str]]]:
    """Return the sentences of the first lines, without lines of another width."""
    sentences: list[list[list[str]]] = [[]]
    for line in lines:
        cells = layout.cells(line)
        if not any(cells):
            sentences.append([])
        elif len(cells) == width and not _is_mark(line):
            sentences[-1].append(cells)
    return [sentence for sentence in sentences if sentence]


def _num_counting(sentences: Sequence[Sentence], width: int) -> int:
    """Return how many of the first columns have no words: they count the words, or are
    the same in all of a sentence, as its number or the name of its document is.
    """
    longer = [sentence for sentence in sentences if len(sentence) > 1]
    if not longer:
        return 0
    for place in range(width - 1):
        columns = [[cells[place] for cells in sentence] for sentence in longer]
        name_sentences = len(longer) > 1 and all(
            len(set(each)) == 1 for each in columns
        )
        if not name_sentences and not all(map(_counts, columns)):
            return place
    return width - 1


def _counts(cells: Sequence[str]) -> bool:
    """Return whether numbers follow one another, 1, 2, 3."""
    if not all(map(_NUMBER, cells)):
        return False
    numbers = [int(cell) for cell in cells if _WORD_NUMBER(cell)]
    return bool(numbers) and numbers == list(
        range(numbers[0], numbers[0] + len(numbers))
    )


def _tag_place(columns: Sequence[Sequence[str]], word: int) -> int | None:
    """Return the column of the tags: the last one, or the last that marks entities.

    If all columns after the word mark entities, the first has the outer ones, as in
    GermEval; a file that does not count its words may have chunks there.
    """
    after = range(word + 1, len(columns))
    if not after:
        return None
    marking = [place for place in after if are_entities(columns[place])]
    if word > 0 and len(marking) == len(after):
        return marking[0]
    return marking[-1] if marking else after[-1]


def _as_conllu(sentences: Sequence[Sentence], names: tuple[str, ...]) -> WordLayout:
    """Choose the tags of CoNLL-U: a column or key that marks entities, or else the
    parts of speech.
    """
    lines = [cells for sentence in sentences for cells in sentence]
    values: dict[str, list[str]] = {}
    for place, name in enumerate(names):
        values[name] = [cells[place] for cells in lines if len(cells) == len(names)]
    keys: dict[str, list[str]] = {}
    if names[-1] == "misc":
        for cells in lines:
            for key, value in _keyed(cells[-1]).items():
                keys.setdefault(key, []).append(value)
    # a key that has the name of a column is not told from it
    keys = {key: found for key, found in keys.items() if key not in names}
    marking = [name for name, found in keys.items() if are_entities(found)]
    marking += [name for name, found in values.items() if are_entities(found)]
    parts = [name for name in ("upos", "xpos") if {*values.get(name, "_")} > {"_"}]
    tag = next(iter([*marking, *parts]), names[-1])
    word = "form" if "form" in names else names[1]
    return WordLayout(names, word, tag, True, keys=tuple(keys), is_conllu=True)


def looks_like_words(lines: Sequence[str], layout: WordLayout) -> bool:
    """Return whether a file of any name has a word and its tag per line: rows of one
    width between blank lines, without spaces in words, with tags that repeat.
    """
    written = [line for line in lines if line.strip() and not _is_mark(line)]
    fitting = [line for line in written if len(layout.cells(line)) == len(layout.names)]
    if layout.tag is None or len(fitting) * 20 < len(written) * 19:
        return False
    sentences = _sentences(layout, lines, len(layout.names))
    rows = [layout.row(sentence) for sentence in sentences]
    words = list(chain.from_iterable(_texts(row, "tokens") for row in rows))
    tags = list(chain.from_iterable(_texts(row, "tags") for row in rows))
    if len(words) < 2 * len(rows) or sum(" " in word for word in words) * 20 > len(
        words
    ):
        return False
    if are_entities(tags):
        return True
    num_tags = len(set(tags))
    return len(rows) > 1 and 1 < num_tags <= len(tags) // 3


def _texts(row: Row, name: str) -> list[str]:
    cells = row[name]
    return cells if isinstance(cells, list) else []


# ---- reading -------------------------------------------------------------------------


def scan_words(source: Source, layout: WordLayout) -> Iterator[Scanned]:
    """Yield each sentence as a row with `tokens`, `tags` and all columns, numbered by
    its first line.
    """
    sentence = list[tuple[int, list[str]]]()
    # a blank line ends the last sentence, too
    for number, line in chain(read_lines(source), [(0, "")]):
        cells = layout.cells(line)
        if cells and layout.is_comment(line, cells, is_first=not sentence):
            continue
        if any(cells):
            # keep no more of a sentence that does not end
            if len(sentence) <= MAX_WORDS:
                sentence.append((number, cells))
        elif sentence:
            yield sentence[0][0], _row_or_error(source, layout, sentence)
            sentence = []


def _row_or_error(
    source: Source, layout: WordLayout, sentence: Sequence[tuple[int, list[str]]]
) -> Row | LitebertError:
    width = len(layout.names)
    for number, cells in sentence:
        if len(cells) != width or not all(cells):
            return LitebertError(
                "LB-843",
                f"{source.place(number)}: expected {width} columns, found {len(cells)}",
                received=" | ".join(cells),
                expected="as many as the other lines have",
                next="correct this line: a word and its tag",
            )
    if len(sentence) > MAX_WORDS:
        return LitebertError(
            "LB-849",
            f"{source.place(sentence[-1][0])}: the sentence does not end",
            received=f"{MAX_WORDS:,} words without a blank line",
            next=(
                "add blank lines between sentences; if this is a table with a header,"
                " name it .tsv"
            ),
        )
    return layout.row([cells for _, cells in sentence])
