"""The layout of a file with a word a line, recognized from its first lines: which form
it has, which columns only count the words, which one has the words and which one the
tags.
"""

import re
from collections.abc import Sequence
from functools import partial

from litebert.reading.conll import CONLLU, Conll2012Layout, ConlluLayout, WebannoLayout
from litebert.reading.words import (
    WordLayout,
    WordSample,
    are_entities,
    lines_of_words,
    split_cells,
)

# the number of a word, 3, of several that are written together, 3-4, and of an empty
# word, 3.1
_NUMBER = re.compile(r"\d+(?:[-.]\d+)?").fullmatch
_GLOBAL_COLUMNS = "# global.columns ="

# the share of lines, at least, of which a file of another name is known to have words
_SURE = 0.95


def recognize(lines: Sequence[str]) -> WordLayout:
    """Recognize how a file with a word a line is laid out, from its first lines."""
    if lines[0].startswith("#begin document"):
        return Conll2012Layout()
    if lines[0].startswith("#FORMAT=WebAnno TSV"):
        return WebannoLayout.of(lines)

    num_tabbed = sum("\t" in line for line in lines_of_words(lines))
    has_tabs = num_tabbed * 2 > len(lines_of_words(lines))
    sample = WordSample.of(lines, partial(split_cells, has_tabs=has_tabs))
    declared = _declared_names(lines)
    if len(declared) > 1:
        return ConlluLayout.of(sample, declared)
    are_numbered = all(map(_NUMBER, sample.column(0)))
    if has_tabs and sample.width == len(CONLLU) and are_numbered:
        return ConlluLayout.of(sample, CONLLU)

    names = [str(number) for number in range(1, sample.width + 1)]
    word = _place_of_words(sample)
    tag = _place_of_tags(sample, word)
    tag_name = None if tag is None else names[tag]
    last_column = sample.column(sample.width - 1)
    return WordLayout(
        names=tuple(names),
        word=names[word],
        tag=tag_name,
        has_tabs=has_tabs,
        last_cells=frozenset(last_column),
    )


def _declared_names(lines: Sequence[str]) -> tuple[str, ...]:
    """Return the columns that CoNLL-U Plus names in its first line."""
    for line in lines:
        if line.startswith(_GLOBAL_COLUMNS):
            return tuple(line.removeprefix(_GLOBAL_COLUMNS).lower().split())
    return ()


def _place_of_words(sample: WordSample) -> int:
    """Return the first column, from 0, that has words: it neither counts them, nor is
    the same in all of a sentence, as its number or the name of its document is.
    """
    longer = [sentence for sentence in sample.sentences if len(sentence) > 1]
    if not longer:
        return 0
    for place in range(sample.width - 1):
        columns = [_column_of(sentence, place) for sentence in longer]
        names_sentences = len(longer) > 1 and all(map(_is_constant, columns))
        counts_words = all(map(_counts, columns))
        if not names_sentences and not counts_words:
            return place
    return sample.width - 1


def _column_of(sentence: Sequence[Sequence[str]], place: int) -> list[str]:
    return [cells[place] for cells in sentence]


def _is_constant(cells: Sequence[str]) -> bool:
    return len(set(cells)) == 1


def _counts(cells: Sequence[str]) -> bool:
    """Return whether numbers follow one another, 1, 2, 3."""
    if not all(map(_NUMBER, cells)):
        return False
    numbers = [int(cell) for cell in cells if cell.isdecimal()]
    if not numbers:
        return False
    start = numbers[0]
    return numbers == list(range(start, start + len(numbers)))


def _place_of_tags(sample: WordSample, word: int) -> int | None:
    """Return the column of the tags, given the column of the words: the last one, or
    the last one that marks entities.

    If all columns after the word mark entities, the first has the outer ones, as in
    GermEval; a file that does not count its words may have chunks there.
    """
    after = range(word + 1, sample.width)
    if not after:
        return None
    marking = [place for place in after if are_entities(sample.column(place))]
    if word > 0 and len(marking) == len(after):
        return marking[0]
    return marking[-1] if marking else after[-1]


def looks_like_words(lines: Sequence[str], layout: WordLayout) -> bool:
    """Return whether a file of any name has a word and its tag per line: rows of one
    width between blank lines, without spaces in words, with tags that repeat.
    """
    sample = WordSample.of(lines, layout.cells)
    num_lines = len(lines_of_words(lines))
    num_fitting = sum(map(len, sample.sentences))
    if layout.tag is None or sample.width != len(layout.names):
        return False
    if num_fitting < _SURE * num_lines:
        return False

    words = list[str]()
    tags = list[str]()
    for sentence in sample.sentences:
        row = layout.row(sentence)
        words.extend(row["tokens"])
        tags.extend(row["tags"])
    num_sentences = len(sample.sentences)
    num_spaced = sum(" " in word for word in words)
    have_spaces = num_spaced > (1 - _SURE) * len(words)
    if have_spaces or len(words) < 2 * num_sentences:
        return False
    if are_entities(tags):
        return True
    num_tags = len(set(tags))
    return num_sentences > 1 and 1 < num_tags <= len(tags) // 3
