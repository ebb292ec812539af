"""Text for a corpus: split inputs into documents, in passages of bounded size, and
passages into sentences.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, islice, pairwise
from operator import attrgetter
from typing import IO, NamedTuple

import sentencex

from litebert.errors import LitebertError, did_you_mean
from litebert.reading.lines import read_lines
from litebert.reading.parquet import open_parquet, split_row_groups
from litebert.reading.pieces import open_source
from litebert.reading.remote import is_url
from litebert.reading.source import Names, Source, find_texts, no_content
from litebert.reading.tables import Row, Scanned, scan_json_lines
from litebert.tokenizer.text import replace_surrogates

# From this size on, a passage of a .txt file ends at the next blank line.
PASSAGE_CHARACTERS = 1 << 16
# From this size on, it ends at the next line end. No text is in memory as a whole.
LONGEST_PASSAGE = 1 << 20
CHUNK_CHARACTERS = 1 << 16  # of a list of sentences
# Characters passed to sentencex at once: in a text with many quotation marks and no
# spaces, such as Chinese, its time grows with the square of their number.
LONGEST_BLOCK = 8_192
# Sentences that are longer than this are split again without their quotation marks.
LONG_SENTENCE = 600
# The languages that sentencex has rules for; for another code it would silently use those of a
# related language, or of English.
LANGUAGES = (
    "am ar bg bn ca da de el en es fi fr gu hi hy it ja kk kn ml mr my nl pa pl pt ru"
    " sk ta te uk"
)


@dataclass(frozen=True)
class TextSettings:
    """Where documents and sentences end.

    `sentences` are detected in free text (`segment`) or one per line (`line`, the
    official format). `documents` of a .txt file end at blank lines (`blank-line`), as
    upstream, or only with the `file`; in .jsonl and .parquet every row is a document.
    `column` has the text of a row; each element of a list is a document. `language` is
    for `segment`.
    """

    sentences: str = "segment"
    documents: str = "blank-line"
    column: str = "text"
    language: str = "en"

    def __post_init__(self) -> None:
        _require_choice("sentences", self.sentences, ("segment", "line"))
        _require_choice("documents", self.documents, ("blank-line", "file"))
        if self.language not in LANGUAGES.split():
            raise wrong_value(
                "language",
                self.language or "nothing",
                f"the code of the language or the nearest: {LANGUAGES}",
                advice="--language de",
            )


def _require_choice(name: str, value: str, choices: Sequence[str]) -> None:
    if value not in choices:
        raise wrong_value(name, value or "nothing", " or ".join(choices))


def wrong_value(
    name: str,
    received: object,
    expected: str,
    *,
    command: str = "build",
    advice: str | None = None,
) -> LitebertError:
    """Return the error for an option of a `litebert corpus` command with an invalid
    value.
    """
    return LitebertError(
        "LB-300",
        f"--{name} cannot have this value",
        received=received,
        expected=expected,
        next=advice or f"litebert corpus {command} --help",
    )


# ---- documents -----------------------------------------------------------------------


class Passage(NamedTuple):
    """Some text of a document, the line or row where it starts, and the number of the
    document in its input, from 0.
    """

    text: str
    line: int
    document: int


def read_passages(source: Source, settings: TextSettings) -> Iterator[Passage]:
    """Yield the documents of one input in order; the end of the file ends a
    document.
    """
    if source.kind == ".txt":
        ends_at_blank = settings.documents == "blank-line"
        passages = _text_passages(read_lines(source), ends_at_blank=ends_at_blank)
    else:
        passages = _row_passages(source, settings.column)
    has_text = False
    for passage in passages:
        has_text = has_text or bool(passage.text.strip())
        yield passage
    # a part of a large file may be nothing but white space
    if not has_text and source.part is None:
        raise no_content(source.name)


def read_documents(
    source: Source, settings: TextSettings
) -> Iterator[Iterator[Passage]]:
    """Yield the passages of each document of one input; they must be read before the
    next document.
    """
    passages = read_passages(source, settings)
    for _, passages_of_document in groupby(passages, key=attrgetter("document")):
        yield passages_of_document


# ---- parts of a large file -----------------------------------------------------------


def split_source(
    source: Source, settings: TextSettings, part_bytes: int
) -> list[Source]:
    """Divide a large file between documents, into parts of about this many bytes that
    can be read at the same time; their documents are those of the file.

    These stay whole: compressed files, which can only be read from their beginning;
    URLs, which would be fetched for each part; and a .txt file that is one document.
    """
    if source.size <= part_bytes or source.compression or is_url(source.location):
        return [source]
    if source.kind == ".parquet":
        return split_row_groups(source, part_bytes)
    if source.kind == ".txt" and settings.documents == "file":
        return [source]
    num_parts = -(-source.size // part_bytes)
    starts = [0]  # of the parts, in bytes
    # Equal places, each moved to the next beginning of a document: only a few lines of
    # the file are read.
    with open_source(source) as file:
        for number in range(1, num_parts):
            place = source.size * number // num_parts
            if place < starts[-1]:  # a document is longer than a part
                continue
            start = _next_document(file, place, source.kind)
            if start < source.size:
                starts.append(start)
    if len(starts) == 1:
        return [source]
    parts = list[Source]()
    for start, end in pairwise([*starts, source.size]):
        parts.append(replace(source, size=end - start, part=range(start, end)))
    return parts


def _next_document(file: IO[bytes], place: int, kind: str) -> int:
    """Return where a document begins, at or after a place that may be anywhere in a
    line: in JSON lines the next line, in a .txt file the line after the next blank one.
    """
    file.seek(place)
    _is_blank_line(file)  # it may have begun before the place
    if kind == ".txt":
        while not _is_blank_line(file):
            pass
    return file.tell()


def _is_blank_line(file: IO[bytes]) -> bool:
    """Read to the end of a line of any length; return whether it is blank, which the
    end of the file is, too.
    """
    is_blank = True
    while True:
        piece = file.readline(LONGEST_PASSAGE)
        is_blank = is_blank and not piece.strip()
        is_last = piece.endswith(b"\n") or len(piece) < LONGEST_PASSAGE
        if is_last:
            return is_blank


def _text_passages(
    lines: Iterable[tuple[int, str]], *, ends_at_blank: bool
) -> Iterator[Passage]:
    """Yield the passages of a .txt file, with the number of their document.

    A document that ends at blank lines has one passage, or several if it is long; a
    file that is one document is divided at blank lines, too, once a passage is long
    enough.
    """
    passage: list[str] = []  # its lines so far
    size = 0  # of these lines, in characters
    first = 1  # the number of the first of them
    document = 0
    has_passages = False  # whether a passage of this document was yielded
    for number, line in lines:
        is_blank = not line or line.isspace()
        may_end = is_blank and (ends_at_blank or size >= PASSAGE_CHARACTERS)
        if passage and (may_end or size >= LONGEST_PASSAGE):
            yield Passage("\n".join(passage), first, document)
            passage = []
            size = 0
            has_passages = True
        # One of several blank lines ends the document; the others end nothing.
        if is_blank and ends_at_blank and has_passages:
            document += 1
            has_passages = False
        if not passage:
            if is_blank:
                continue  # it is in no passage
            first = number
        passage.append(line)
        size += len(line) + 1
    if passage:
        yield Passage("\n".join(passage), first, document)


def _row_passages(source: Source, column: str) -> Iterator[Passage]:
    """Yield the texts of a column; each is a document."""
    document = 0
    for number, row in _scan_column(source, column):
        # A damaged row comes as its error, for checks that go on after it.
        if isinstance(row, LitebertError):
            raise row
        for text in texts_of(row, column, source, number):
            yield Passage(text, number, document)
            document += 1


def _scan_column(source: Source, column: str) -> Iterator[Scanned]:
    """Yield the rows of a file; of a Parquet file, with only this column."""
    if source.kind != ".parquet":
        yield from scan_json_lines(source)
        return
    with open_parquet(source) as parquet:
        if column not in parquet.columns:
            raise _no_column(parquet.columns, column, source.place(1))
        yield from enumerate(parquet.rows([column]), 1)


def texts_of(row: Row, column: str, source: Source, number: int) -> Iterator[str]:
    """Yield the text of a column, or each text of a list, which may be nested."""
    if column not in row:
        raise _no_column(row, column, source.place(number))
    # A stack of the values that are left, the next one at its end; no recursion, which a
    # deeply nested row would end.
    values = [row[column]]
    while values:
        value = values.pop()
        if isinstance(value, list):
            values += reversed(value)
        elif isinstance(value, str):
            yield replace_surrogates(value)
        else:
            raise LitebertError(
                "LB-315",
                f"{source.place(number)}: column {column} is not text",
                received="null" if value is None else type(value).__name__,
                next="name another --column, or remove such rows",
            )


def _no_column(columns: Iterable[object], column: str, place: str) -> LitebertError:
    present = list(map(str, columns))
    expected = "an object that is not empty"
    advice = "correct this row"
    if present:
        expected = f"one of {', '.join(present)}"
        advice = f"--column with another name: {did_you_mean(column, present)}"
    return LitebertError(
        "LB-314",
        f"{place}: there is no column {column}",
        received=f"--column {column}",
        expected=expected,
        next=advice,
    )


def read_texts(inputs: Names, *, column: str = "text") -> Iterator[str]:
    """Yield the text of all inputs in passages of bounded size."""
    settings = TextSettings(documents="file", column=column)
    for source in find_texts(inputs):
        for passage in read_passages(source, settings):
            yield passage.text


def require_text(sources: Sequence[Source], settings: TextSettings) -> None:
    """Refuse, before any work, inputs of a single sentence: they cannot be both trained
    on and held out.
    """
    num_sentences = 0
    for source in sources:
        for passage in read_passages(source, settings):
            sentences = split_sentences(passage.text, settings)
            num_sentences += len(list(islice(sentences, 2)))
            if num_sentences >= 2:
                return
    raise too_little_text()


def too_little_text() -> LitebertError:
    """Return the error for inputs without a sentence to train on, or without another
    one to evaluate on.
    """
    return LitebertError(
        "LB-343",
        "there is too little text",
        expected="a sentence to train on, and with --held-out another to evaluate on",
        next="rerun the command with more text",
    )


# ---- sentences -----------------------------------------------------------------------

_BLANK_LINE = re.compile(r"\n\s*\n")
_SENTENCE_END = re.compile(r"[.!?…][\"'”’»)\]]*\s|[。！？][”’」』）]*")
_QUOTATION_MARK = re.compile(r"[\"“”„«»]")
_OPENING_MARK = re.compile(r"(?<!\S)[\"“”„«»]")


def split_sentences(text: str, settings: TextSettings) -> Iterator[str]:
    """Yield the sentences of a passage without surrounding white space.

    >>> list(split_sentences("Dr. Smith came. He\\nleft.\\n\\nEnd", TextSettings()))
    ['Dr. Smith came.', 'He\\nleft.', 'End']
    """
    if settings.sentences == "line":
        sentences: Iterable[str] = text.split("\n")
    else:
        sentences = _segment(text, settings.language)
    for sentence in sentences:
        stripped = sentence.strip()
        if stripped:
            yield stripped


def sentence_chunks(text: str, settings: TextSettings) -> Iterator[list[str]]:
    """Yield the sentences of a passage in lists of about 65,536 characters, at least
    one list.
    """
    chunk: list[str] = []
    size = 0
    for sentence in split_sentences(text, settings):
        chunk.append(sentence)
        size += len(sentence)
        if size >= CHUNK_CHARACTERS:
            yield chunk
            chunk = []
            size = 0
    yield chunk


def _segment(text: str, language: str) -> Iterator[str]:
    """Yield the sentences of free text, by the rules of sentencex for a language."""
    # A blank line ends a sentence, whatever sentencex says; a block bounds its time.
    for paragraph in _BLANK_LINE.split(text):
        for block in _blocks(paragraph):
            for sentence in sentencex.segment(language, block):
                if len(sentence) <= LONG_SENTENCE:
                    yield sentence
                else:
                    yield from _split_quotation(sentence, language)


def _split_quotation(sentence: str, language: str) -> Iterator[str]:
    """Yield the sentences of a long quotation, which sentencex keeps whole.

    Its marks are hidden from sentencex, and the original is cut where the copy is. An
    opening mark becomes a capital letter, a closing one a space, so that each stays
    with the sentence that it opens or closes.
    """
    without_opening = _OPENING_MARK.sub("A", sentence)
    without_marks = _QUOTATION_MARK.sub(" ", without_opening)
    start = 0
    for piece in sentencex.segment(language, without_marks):
        end = start + len(piece)
        yield sentence[start:end]
        start = end


def _blocks(paragraph: str) -> Iterator[str]:
    """Yield a paragraph in blocks of at most LONGEST_BLOCK characters."""
    start = 0
    while len(paragraph) - start > LONGEST_BLOCK:
        end = _end_of_block(paragraph, start)
        yield paragraph[start:end]
        start = end
    yield paragraph[start:]


def _end_of_block(paragraph: str, start: int) -> int:
    """Return where a block ends: after its last sentence; without one, after its last
    white space; without any, where it is as long as may be.
    """
    limit = start + LONGEST_BLOCK
    end = start
    for match in _SENTENCE_END.finditer(paragraph, start, limit):
        end = match.end()
    if end > start:
        return end
    last_space = paragraph.rfind(" ", start, limit)
    last_line_end = paragraph.rfind("\n", start, limit)
    last = max(last_space, last_line_end)  # -1 if there is neither
    return last + 1 if last >= start else limit
