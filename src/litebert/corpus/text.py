"""Text as a corpus takes it: inputs, then documents in passages of bounded size, then sentences."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple, cast, get_args

import sentencex

from litebert.errors import LitebertError, did_you_mean
from litebert.reading.lines import read_lines
from litebert.reading.source import Source, find_texts
from litebert.reading.tables import Row, RowPlace, parse_row, read_parquet, texts_of

if TYPE_CHECKING:
    from pathlib import Path

Sentences = Literal["segment", "line"]
Documents = Literal["blank-line", "file"]

PASSAGE_CHARACTERS = 1 << 16
"""From this size on, a passage of a .txt file ends at the next blank line."""
LONGEST_PASSAGE = 1 << 20
"""From this size on, it ends at the next line end."""
CHUNK_CHARACTERS = 1 << 16
LONGEST_BLOCK = 8_192
"""Characters passed to sentencex at once; its time grows with the square of a paragraph."""
LONG_SENTENCE = 600
"""Sentences of this many characters or more are split again without their quotation marks."""


@dataclass(frozen=True)
class TextSettings:
    """Where documents and sentences end.

    `sentences` are detected in free text (`segment`) or one per line (`line`, the official format). `documents` of a
    .txt file end at blank lines, as upstream, or only with the file; in .jsonl and .parquet every row is a document.
    `column` has the text of a row; a dotted name goes into objects, and each element of a list is a document.
    `language` is only for `segment`.
    """

    sentences: Sentences = "segment"
    documents: Documents = "blank-line"
    column: str = "text"
    language: str = "en"


def text_settings(
    *, sentences: str = "segment", documents: str = "blank-line", column: str = "text", language: str = "en"
) -> TextSettings:
    """Check the settings as a user typed them."""
    for flag, value, kind in (("--sentences", sentences, Sentences), ("--documents", documents, Documents)):
        choices = get_args(kind)
        if value not in choices:
            raise LitebertError(
                "LB-300",
                f"{flag} has no such choice",
                received=value,
                expected=" or ".join(choices),
                next=f"litebert corpus build --help ({did_you_mean(value, choices)})",
            )
    if not re.fullmatch(r"[a-z]{2,3}(-[a-z]+)*", language):
        raise LitebertError(
            "LB-301",
            "--language is not a language code",
            received=language,
            expected="an ISO 639 code in small letters, such as en, de or zh-hans",
            next="litebert corpus build --language en …",
        )
    if not all(column.split(".")):
        raise LitebertError(
            "LB-302",
            "--column is not a column name",
            received=column or "nothing",
            expected="a name such as text, or a dotted path such as chapters.text",
            next="litebert corpus build --column text …",
        )
    return TextSettings(cast(Sentences, sentences), cast(Documents, documents), column=column, language=language)


class Passage(NamedTuple):
    """Some text of a document, and the line or row where it starts; `is_start` marks a document's first passage."""

    text: str
    line: int
    is_start: bool


def read_passages(source: Source, settings: TextSettings) -> Iterator[Passage]:
    """Yield the documents of one input in order; the end of the file ends a document."""
    if source.kind == ".txt":
        passages = _text_passages(read_lines(source), ends_at_blank=settings.documents == "blank-line")
    else:
        rows = _parquet_rows(source, settings.column) if source.kind == ".parquet" else _json_rows(source)
        passages = (
            Passage(text, place.number, is_start=True)
            for place, row in rows
            for text in texts_of(row, settings.column, place)
        )
    has_text = False
    for passage in passages:
        has_text = has_text or bool(passage.text.strip())
        yield passage
    if not has_text:
        raise LitebertError(
            "LB-318",
            f"{source.name} contains no text",
            received=f"{source.size:,} bytes",
            expected="text",
            next="omit this file",
        )


def read_texts(inputs: Iterable[str | Path], *, column: str = "text") -> Iterator[str]:
    """Yield the text of all inputs in passages of bounded size."""
    settings = text_settings(documents="file", column=column)
    for source in find_texts(inputs):
        for passage in read_passages(source, settings):
            yield passage.text


def require_text(sources: Sequence[Source], settings: TextSettings) -> None:
    """Refuse, before any work, inputs that cannot give text to train on and text to hold out: a single sentence."""
    num_sentences = 0
    for source in sources:
        for passage in read_passages(source, settings):
            for _ in split_sentences(passage.text, settings):
                num_sentences += 1
                if num_sentences > 1:
                    return
    raise LitebertError(
        "LB-343",
        "there is too little text to train on one part and to evaluate on another",
        received=f"{num_sentences} sentence in {', '.join(source.name for source in sources[:3])}",
        expected="two sentences or more",
        next="give more text",
    )


def _text_passages(lines: Iterable[tuple[int, str]], *, ends_at_blank: bool) -> Iterator[Passage]:
    held: list[str] = []
    size, first, is_start = 0, 1, True
    for number, line in lines:
        is_blank = not line or line.isspace()
        wants_end = ends_at_blank or size >= PASSAGE_CHARACTERS
        if held and ((is_blank and wants_end) or size >= LONGEST_PASSAGE):
            yield Passage("\n".join(held), first, is_start)
            held, size, is_start = [], 0, False
        if is_blank and ends_at_blank:
            is_start = True
        if is_blank and not held:
            continue
        first = first if held else number
        held.append(line)
        size += len(line) + 1
    if held:
        yield Passage("\n".join(held), first, is_start)


def _json_rows(source: Source) -> Iterator[tuple[RowPlace, Row]]:
    for number, line in read_lines(source):
        if line and not line.isspace():
            place = RowPlace(source, number)
            yield place, parse_row(line, place)


def _parquet_rows(source: Source, column: str) -> Iterator[tuple[RowPlace, Row]]:
    for number, row in enumerate(read_parquet(source, column), 1):
        yield RowPlace(source, number), row


# Sentences of a passage.

_BLANK_LINE = re.compile(r"\n\s*\n")
_SENTENCE_END = re.compile(r"[.!?…][\"'”’»)\]]*\s|[。！？][”’」』）]*")
_QUOTATION_MARK = re.compile(r"[\"“”„«»]")


def split_sentences(text: str, settings: TextSettings) -> Iterator[str]:
    """Yield the sentences of a passage without surrounding white space.

    >>> list(split_sentences("Dr. Smith came. He\\nleft.\\n\\nEnd", TextSettings()))
    ['Dr. Smith came.', 'He\\nleft.', 'End']
    """
    found = iter(text.split("\n")) if settings.sentences == "line" else _segmented(text, settings.language)
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

    An opening mark is replaced by a capital letter, a closing one by a space, so each stays with the sentence that it
    opens or closes.
    """

    def hidden(mark: re.Match[str]) -> str:
        opens = mark.start() == 0 or mark.string[mark.start() - 1].isspace()
        return "A" if opens else " "

    start = 0
    for piece in sentencex.segment(language, _QUOTATION_MARK.sub(hidden, sentence)):
        yield sentence[start : start + len(piece)]
        start += len(piece)
