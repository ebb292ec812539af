"""Files with a word a line and a blank line after each sentence: CoNLL in its many
forms, BIO, CoNLL-U, CoNLL-2012 (OntoNotes) and WebAnno TSV 3 (INCEpTION).

How such a file is laid out is recognized from its first lines: which columns only count
the words, which one has the words and which one the tags.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Literal, TypeAlias

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
# the first columns of CoNLL-2012; after them come as many as a sentence has verbs
CONLL_2012 = (
    "document",
    "part",
    "number",
    "word",
    "pos",
    "parse",
    "lemma",
    "frameset",
    "sense",
    "speaker",
    "entity",
)
_BEGINS_2012 = "#begin document"
# the first columns of WebAnno TSV 3; after them comes each feature
_WEBANNO = ("number", "place", "word")
_BEGINS_WEBANNO = "#FORMAT=WebAnno TSV"
Form: TypeAlias = Literal["columns", "CoNLL-U", "CoNLL-2012", "WebAnno TSV"]
# the number of a word, 3, of several that are written together, 3-4, and of an empty
# word, 3.1
_NUMBER = re.compile(r"\d+(?:[-.]\d+)?").fullmatch
_WORD_NUMBER = re.compile(r"\d+").fullmatch
# BIO, BIOES, BILOU and BMES
_ENTITY = re.compile(r"[BIESLUM]-\S+").fullmatch
_OUTSIDE = ("O", "_", "")

# the share of lines, at least, of which a file of another name is known to have words
_SURE = 0.95

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
    form: Form = "columns"

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of its rows: the words, their tags, and all that a line has."""
        tags = () if self.tag is None else ("tags",)
        return ("tokens", *tags, *self.names, *self.keys)

    def __str__(self) -> str:
        if self.form != "columns":
            return f"{self.form}, words in {self.word}, tags in {self.tag}"
        if len(self.names) < 2 or self.tag is None:
            return "a word per line"
        numbered = f"a word per line, words in column {self.word}"
        return f"{numbered}, tags in column {self.tag} of {len(self.names)}"

    def cells(self, line: str) -> list[str]:
        """Return the cells of a line; [] if it is blank."""
        if not line.strip():
            return []
        if self.form == "CoNLL-2012":
            return line.split()[: len(CONLL_2012)]
        if self.form == "WebAnno TSV":  # a line ends with a tab
            return line.rstrip("\t").split("\t")
        cells = line.split("\t") if self.has_tabs else line.split()
        return [cell.strip() for cell in cells]

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

    def row(self, sentence: Sentence) -> dict[str, list[str]]:
        """Return a sentence as a row of columns, each with a value for each word."""
        lines = sentence
        if self.form == "CoNLL-U":
            lines = [cells for cells in sentence if _WORD_NUMBER(cells[0])]
        if self.form == "WebAnno TSV":  # 1-2.1 is a part of word 1-2
            lines = [cells for cells in sentence if "." not in cells[0]]
        columns: dict[str, list[str]] = {}
        for place, name in enumerate(self.names):
            columns[name] = [cells[place] for cells in lines]
        for key in self.keys:
            columns[key] = [_keyed(cells[-1]).get(key, "O") for cells in lines]
        row: dict[str, list[str]] = {"tokens": columns[self.word]}
        if self.tag is not None:
            row["tags"] = columns[self.tag]
        if self.form == "CoNLL-2012":
            row["tags"] = _tags_in_brackets(columns["entity"])
        elif self.form == "WebAnno TSV" and self.tag is not None:
            row["tags"] = _tags_of_webanno(row["tags"])
        return row | columns


def _tags_in_brackets(cells: Sequence[str]) -> list[str]:
    """Return the tags of (GPE* *) (PERSON) *, as CoNLL-2012 marks entities.

    >>> _tags_in_brackets(["(GPE*", "*)", "(PERSON)", "*"])
    ['B-GPE', 'I-GPE', 'B-PERSON', 'O']
    """
    tags = list[str]()
    kind = ""
    for cell in cells:
        begins = cell.startswith("(")
        if begins:
            kind = cell.strip("(*)")
        mark = "B" if begins else "I"
        tags.append(f"{mark}-{kind}" if kind else "O")
        if cell.endswith(")"):
            kind = ""
    return tags


_WITH_NUMBER = re.compile(r"(.*)\[(\d+)\]").fullmatch


def _tags_of_webanno(cells: Sequence[str]) -> list[str]:
    """Return the tags of PER, or PER[1] PER[1] for several words; of stacked
    annotations, PER|LOC[2], the first.

    >>> _tags_of_webanno(["PER", "_", "LOC[1]", "LOC[1]", "LOC[2]"])
    ['B-PER', 'O', 'B-LOC', 'I-LOC', 'B-LOC']
    """
    tags = list[str]()
    before = ""
    for cell in cells:
        value = cell.partition("|")[0]
        numbered = _WITH_NUMBER(value)
        kind = numbered[1] if numbered else value
        goes_on = numbered is not None and value == before
        mark = "I" if goes_on else "B"
        tags.append("O" if kind == "_" else f"{mark}-{kind}")
        before = value
    return tags


def _keyed(cell: str) -> dict[str, str]:
    """Return the keys and values of a cell such as SpaceAfter=No|name=B-LOC."""
    pairs = (part.partition("=") for part in cell.split("|"))
    return {key: value for key, mark, value in pairs if mark}


# ---- recognition ---------------------------------------------------------------------


@dataclass(frozen=True)
class _FirstLines:
    """The first lines of a file, as sentences of lines of one width: of the width that
    most lines have.
    """

    has_tabs: bool
    width: int
    sentences: list[list[list[str]]]

    @classmethod
    def of(cls, lines: Sequence[str]) -> "_FirstLines":
        """Divide lines into cells and sentences; comments and other widths are left
        out.
        """
        written = _written(lines)
        num_tabbed = sum("\t" in line for line in written)
        has_tabs = num_tabbed * 2 > len(written)
        draft = WordLayout((), "", None, has_tabs, form=_form_of(lines))
        widths = Counter(len(draft.cells(line)) for line in written)
        width = 2
        if widths:
            width = widths.most_common(1)[0][0]
        sentences: list[list[list[str]]] = [[]]
        for line in lines:
            cells = draft.cells(line)
            if not any(cells):
                sentences.append([])
            elif len(cells) == width and not _is_mark(line):
                sentences[-1].append(cells)
        return cls(has_tabs, width, [sentence for sentence in sentences if sentence])

    def column(self, place: int) -> list[str]:
        """Return the cells of a column in all sentences."""
        cells = list[str]()
        for sentence in self.sentences:
            cells.extend(line[place] for line in sentence)
        return cells


def _form_of(lines: Sequence[str]) -> Form:
    """Return the form that the first line names."""
    if lines[0].startswith(_BEGINS_2012):
        return "CoNLL-2012"
    if lines[0].startswith(_BEGINS_WEBANNO):
        return "WebAnno TSV"
    return "columns"


def recognize(lines: Sequence[str]) -> WordLayout:
    """Recognize how a file with a word a line is laid out, from its first lines."""
    form = _form_of(lines)
    if form == "CoNLL-2012":
        return WordLayout(CONLL_2012, "word", "entity", False, form=form)
    first = _FirstLines.of(lines)
    if form == "WebAnno TSV":
        return _as_webanno(first)
    declared = [line for line in lines if line.startswith(_GLOBAL_COLUMNS)]
    if declared:
        names = declared[0].removeprefix(_GLOBAL_COLUMNS).lower().split()
        return _as_conllu(first, tuple(names))
    are_numbered = all(map(_NUMBER, first.column(0)))
    if first.has_tabs and first.width == len(CONLLU) and are_numbered:
        return _as_conllu(first, CONLLU)

    names = [str(place) for place in range(1, first.width + 1)]
    word = _num_counting(first)
    tag = _tag_place(first, word)
    return WordLayout(
        names=tuple(names),
        word=names[word],
        tag=None if tag is None else names[tag],
        has_tabs=first.has_tabs,
        tags=frozenset(first.column(first.width - 1)),
    )


def _written(lines: Sequence[str]) -> list[str]:
    return [line for line in lines if line.strip() and not _is_mark(line)]


def _is_mark(line: str) -> bool:
    return line.startswith(("#", "-DOCSTART-"))


def _num_counting(first: _FirstLines) -> int:
    """Return how many of the first columns have no words: they count the words, or are
    the same in all of a sentence, as its number or the name of its document is.
    """
    longer = [sentence for sentence in first.sentences if len(sentence) > 1]
    if not longer:
        return 0
    for place in range(first.width - 1):
        columns = [[cells[place] for cells in sentence] for sentence in longer]
        names_sentences = len(longer) > 1 and all(map(_is_constant, columns))
        if not names_sentences and not all(map(_counts, columns)):
            return place
    return first.width - 1


def _is_constant(cells: Sequence[str]) -> bool:
    return len(set(cells)) == 1


def _counts(cells: Sequence[str]) -> bool:
    """Return whether numbers follow one another, 1, 2, 3."""
    if not all(map(_NUMBER, cells)):
        return False
    numbers = [int(cell) for cell in cells if _WORD_NUMBER(cell)]
    if not numbers:
        return False
    start = numbers[0]
    return numbers == list(range(start, start + len(numbers)))


def _tag_place(first: _FirstLines, word: int) -> int | None:
    """Return the column of the tags: the last one, or the last that marks entities.

    If all columns after the word mark entities, the first has the outer ones, as in
    GermEval; a file that does not count its words may have chunks there.
    """
    after = range(word + 1, first.width)
    if not after:
        return None
    marking = [place for place in after if are_entities(first.column(place))]
    if word > 0 and len(marking) == len(after):
        return marking[0]
    return marking[-1] if marking else after[-1]


def _as_conllu(first: _FirstLines, names: tuple[str, ...]) -> WordLayout:
    """Choose the tags of CoNLL-U: a column or key that marks entities, or else the
    parts of speech.
    """
    values: dict[str, list[str]] = {}
    if first.width == len(names):
        for place, name in enumerate(names):
            values[name] = first.column(place)
    keys: dict[str, list[str]] = {}
    for cell in values.get("misc", ()):
        for key, value in _keyed(cell).items():
            if key not in names:  # one with the name of a column is not told from it
                keys.setdefault(key, []).append(value)
    marking = [name for name, cells in keys.items() if are_entities(cells)]
    marking += [name for name, cells in values.items() if are_entities(cells)]
    parts = [name for name in ("upos", "xpos") if set(values.get(name, "_")) != {"_"}]
    tag = [*marking, *parts, names[-1]][0]
    word = "form" if "form" in names else names[1]
    return WordLayout(names, word, tag, True, keys=tuple(keys), form="CoNLL-U")


def _as_webanno(first: _FirstLines) -> WordLayout:
    """Choose the tags of WebAnno TSV: the first feature that some words have."""
    num_features = first.width - len(_WEBANNO)
    features = tuple(f"feature{number}" for number in range(1, num_features + 1))
    names = (*_WEBANNO, *features)
    used = [name for name in features if {*first.column(names.index(name))} - {"_"}]
    tag = used[0] if used else None
    return WordLayout(names, "word", tag, True, form="WebAnno TSV")


def looks_like_words(lines: Sequence[str], layout: WordLayout) -> bool:
    """Return whether a file of any name has a word and its tag per line: rows of one
    width between blank lines, without spaces in words, with tags that repeat.
    """
    first = _FirstLines.of(lines)
    num_fitting = sum(map(len, first.sentences))
    if layout.tag is None or num_fitting < _SURE * len(_written(lines)):
        return False
    words = list[str]()
    tags = list[str]()
    for sentence in first.sentences:
        row = layout.row(sentence)
        words.extend(row["tokens"])
        tags.extend(row["tags"])
    num_sentences = len(first.sentences)
    num_spaced = sum(" " in word for word in words)
    if len(words) < 2 * num_sentences or num_spaced > (1 - _SURE) * len(words):
        return False
    if are_entities(tags):
        return True
    num_tags = len(set(tags))
    return num_sentences > 1 and 1 < num_tags <= len(tags) // 3


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
