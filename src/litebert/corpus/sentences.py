"""Split a passage into sentences: one per line, or detected in free text by sentencex."""

from __future__ import annotations

import re
from collections.abc import Iterator

import sentencex

from litebert.corpus.settings import TextSettings

CHUNK_CHARACTERS = 1 << 16
LONGEST_BLOCK = 8_192
"""Characters passed to sentencex at once; its time grows with the square of a paragraph."""
LONG_SENTENCE = 600
"""Sentences of this many characters or more are split again without their quotation marks."""

_BLANK_LINE = re.compile(r"\n\s*\n")
_SENTENCE_END = re.compile(r"[.!?…][\"'”’»)\]]*\s|[。！？][”’」』）]*")
_QUOTATION_MARK = re.compile(r"[\"“”„«»]")


def split_sentences(text: str, settings: TextSettings) -> Iterator[str]:
    """Yield the sentences of a passage without surrounding white space.

    >>> list(split_sentences("Dr. Smith came. He\\nleft.\\n\\nEnd", TextSettings()))
    ['Dr. Smith came.', 'He\\nleft.', 'End']
    """
    if settings.sentences == "line":
        found: Iterator[str] = iter(text.split("\n"))
    else:
        found = _segmented(text, settings.language)
    for sentence in found:
        if stripped := sentence.strip():
            yield stripped


def sentence_chunks(text: str, settings: TextSettings) -> Iterator[list[str]]:
    """Yield the sentences of a passage in lists of about 65,536 characters, at least one list."""
    held: list[str] = []
    size = 0
    for sentence in split_sentences(text, settings):
        held.append(sentence)
        size += len(sentence)
        if size >= CHUNK_CHARACTERS:
            yield held
            held, size = [], 0
    yield held


def _segmented(text: str, language: str) -> Iterator[str]:
    for paragraph in _BLANK_LINE.split(text):
        for block in _blocks(paragraph):
            for sentence in sentencex.segment(language, block):
                if len(sentence) > LONG_SENTENCE:
                    yield from _without_quotes(sentence, language)
                else:
                    yield sentence


def _blocks(paragraph: str) -> Iterator[str]:
    """Cut an overlong paragraph, if possible at the end of a sentence, else between words."""
    start = 0
    while len(paragraph) - start > LONGEST_BLOCK:
        limit = start + LONGEST_BLOCK
        ends = [match.end() for match in _SENTENCE_END.finditer(paragraph, start, limit)]
        space = max(paragraph.rfind(" ", start, limit), paragraph.rfind("\n", start, limit)) + 1
        end = ends[-1] if ends else space if space > start else limit
        yield paragraph[start:end]
        start = end
    yield paragraph[start:]


def _without_quotes(sentence: str, language: str) -> Iterator[str]:
    """Split long quotations, which sentencex keeps whole: hide the marks, then cut the original.

    An opening mark is replaced by a capital letter, a closing one by a space, so each stays with
    the sentence that it opens or closes.
    """
    start = 0
    for piece in sentencex.segment(language, _QUOTATION_MARK.sub(_hidden, sentence)):
        yield sentence[start : start + len(piece)]
        start += len(piece)


def _hidden(mark: re.Match[str]) -> str:
    opens = mark.start() == 0 or mark.string[mark.start() - 1].isspace()
    return "A" if opens else " "
