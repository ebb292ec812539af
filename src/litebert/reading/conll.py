"""Published forms of files with a word a line: CoNLL-U, CoNLL-2012 (OntoNotes) and
WebAnno TSV 3 (INCEpTION).

The first lines of such a file say which form it has; here is what its columns are
called, which lines have words, and how its cells stand for tags.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from litebert.reading.words import (
    Sentence,
    Values,
    WordLayout,
    WordSample,
    are_entities,
)


@dataclass(frozen=True)
class _NamedLayout(WordLayout):
    """A layout whose columns have names."""

    form = ""

    def __str__(self) -> str:
        return f"{self.form}, words in {self.word}, tags in {self.tag}"


# ---- CoNLL-U -------------------------------------------------------------------------

CONLLU = (
    "id",
    "form",
    "lemma",
    "upos",
    "xpos",
    "feats",
    "head",
    "deprel",
    "deps",
    "misc",
)
"""The columns of CoNLL-U, https://universaldependencies.org/format.html."""


@dataclass(frozen=True)
class ConlluLayout(_NamedLayout):
    """CoNLL-U, or CoNLL-U Plus, whose first line names the columns.

    The last column holds pairs such as SpaceAfter=No; each of their `keys` is read as a
    column of its own.
    """

    keys: tuple[str, ...] = ()

    form = "CoNLL-U"

    @classmethod
    def of(cls, sample: WordSample, names: tuple[str, ...]) -> "ConlluLayout":
        """Choose the tags: a key or column that marks entities, or else the parts of
        speech, or the last column.
        """
        values = dict[str, list[str]]()
        if sample.width == len(names):
            for place, name in enumerate(names):
                values[name] = sample.column(place)
        values_of_keys = _values_of_keys(values.get("misc", ()), names)

        candidates = _names_of_entities(values_of_keys) + _names_of_entities(values)
        for name in ("upos", "xpos"):
            if set(values.get(name, "_")) != {"_"}:  # "_": there is none
                candidates.append(name)
        candidates.append(names[-1])
        word = "form" if "form" in names else names[1]
        return cls(names, word, tag=candidates[0], keys=tuple(values_of_keys))

    @property
    def details(self) -> tuple[str, ...]:
        return (*self.names, *self.keys)

    def _lines_of_words(self, sentence: Sentence) -> Sentence:
        # 3-4 numbers several words that are written together, 3.1 an empty one
        return [cells for cells in sentence if cells[0].isdecimal()]

    def _values(self, lines: Sentence) -> Values:
        values = {**super()._values(lines)}
        pairs_of_lines = [_pairs(cells[-1]) for cells in lines]
        for key in self.keys:
            values[key] = [pairs.get(key, "O") for pairs in pairs_of_lines]
        return values


def _names_of_entities(values: Values) -> list[str]:
    return [name for name, cells in values.items() if are_entities(cells)]


def _values_of_keys(cells: Iterable[str], names: Sequence[str]) -> dict[str, list[str]]:
    """Return all values of each key in cells such as SpaceAfter=No|name=B-LOC, without
    keys that have the name of a column.
    """
    values = dict[str, list[str]]()
    for cell in cells:
        for key, value in _pairs(cell).items():
            if key not in names:
                values.setdefault(key, []).append(value)
    return values


def _pairs(cell: str) -> dict[str, str]:
    """Return the keys and values of a cell such as SpaceAfter=No|name=B-LOC."""
    pairs = (part.partition("=") for part in cell.split("|"))
    return {key: value for key, mark, value in pairs if mark}


# ---- CoNLL-2012 ----------------------------------------------------------------------

# the first columns; after them come as many as a sentence has verbs
_CONLL_2012 = (
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


@dataclass(frozen=True)
class Conll2012Layout(_NamedLayout):
    """CoNLL-2012, the form of OntoNotes, which marks entities with brackets."""

    names: tuple[str, ...] = _CONLL_2012
    word: str = "word"
    tag: str | None = "entity"
    has_tabs: bool = False

    form = "CoNLL-2012"

    def cells(self, line: str) -> list[str]:
        return line.split()[: len(_CONLL_2012)]

    def _tags(self, cells: Sequence[str]) -> list[str]:
        return _tags_in_brackets(cells)


def _tags_in_brackets(cells: Sequence[str]) -> list[str]:
    """Return the tags of (GPE* *) (PERSON) *, as CoNLL-2012 marks entities.

    >>> _tags_in_brackets(["(GPE*", "*)", "(PERSON)", "*"])
    ['B-GPE', 'I-GPE', 'B-PERSON', 'O']
    """
    tags = list[str]()
    kind = ""  # of the entity that is open
    for cell in cells:
        mark = "I"
        if cell.startswith("("):
            mark = "B"
            kind = cell.strip("(*)")
        tag = f"{mark}-{kind}" if kind else "O"
        tags.append(tag)
        if cell.endswith(")"):
            kind = ""
    return tags


# ---- WebAnno TSV ---------------------------------------------------------------------

# the first columns; after them comes each feature
_WEBANNO = ("number", "place", "word")
_WITH_NUMBER = re.compile(r"(.*)\[(\d+)\]").fullmatch


@dataclass(frozen=True)
class WebannoLayout(_NamedLayout):
    """WebAnno TSV 3, which INCEpTION writes."""

    form = "WebAnno TSV"

    @classmethod
    def of(cls, lines: Sequence[str]) -> "WebannoLayout":
        """Choose the tags: the first feature that some words have."""
        sample = WordSample.of(lines, _webanno_cells)
        features = list[str]()
        used = list[str]()
        for place in range(len(_WEBANNO), sample.width):
            feature = f"feature{len(features) + 1}"
            features.append(feature)
            if set(sample.column(place)) != {"_"}:  # "_": the word has none
                used.append(feature)
        tag = used[0] if used else None
        return cls((*_WEBANNO, *features), "word", tag)

    def cells(self, line: str) -> list[str]:
        return _webanno_cells(line)

    def _lines_of_words(self, sentence: Sentence) -> Sentence:
        # 1-2 numbers the second word of the first sentence, 1-2.1 a part of it
        return [cells for cells in sentence if "." not in cells[0]]

    def _tags(self, cells: Sequence[str]) -> list[str]:
        return _tags_of_webanno(cells)


def _webanno_cells(line: str) -> list[str]:
    """Return the cells of a line, each of which ends with a tab."""
    if not line.strip():
        return []
    return line.rstrip("\t").split("\t")


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
        tag = "O" if kind == "_" else f"{mark}-{kind}"
        tags.append(tag)
        before = value
    return tags
