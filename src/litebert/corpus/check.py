"""Check texts before a corpus is built: encoding, duplicates, boilerplate, length."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from litebert.corpus.findings import ADVICE, PassagePlace, UnknownTokens
from litebert.corpus.read import read_passages
from litebert.corpus.repeats import RepeatedLines, SeenDocuments
from litebert.corpus.sentences import sentence_chunks
from litebert.corpus.settings import TextSettings, text_settings
from litebert.errors import LitebertError
from litebert.reading.find import find_texts
from litebert.reading.findings import CheckReport, Findings
from litebert.reading.source import Source
from litebert.tokenizer import Tokenizer

LONG_CHARACTERS, SHORT_CHARACTERS = 2_000, 3
LINE_CHARACTERS = 200
REPEATED_TIMES, REPEATED_SHARE = 20, 1e-4
FEW_DOCUMENTS = 50
"""With fewer documents, the default share of 2 % often holds out none."""

_DAMAGE = (
    # UTF-8 read as Latin-1 or Windows-1252: é becomes Ã©, ’ becomes â€™
    ("mojibake", re.compile("[ÃÂ][\u0080-\u00bf€‚ƒ„…†‡ˆ‰Š‹ŒŽ‘’“”•–—˜™š›œžŸ]|â€|ï»¿")),
    ("replacement character", re.compile("\ufffd")),
    ("control character", re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")),
)


def check_text(
    inputs: Iterable[str | Path],
    *,
    sentences: str = "segment",
    documents: str | None = None,
    column: str = "text",
    language: str = "en",
    tokenizer: str | Path | None = None,
) -> CheckReport:
    """Read texts as `build_corpus` would, and report what would harm training.

    With a tokenizer, unknown tokens are counted, too. An input that cannot be read to its end
    becomes a finding.

    Raises:
        LitebertError: An input or the tokenizer is missing, or a setting cannot be used.
    """
    settings = text_settings(sentences=sentences, documents=documents, column=column, language=language)
    check = _TextCheck(settings, None if tokenizer is None else Tokenizer.load(tokenizer))
    for source in find_texts(inputs):
        check.read(source)
    return check.report()


@dataclass
class _Document:
    """What is known so far about the document being read."""

    line: int
    digest: hashlib.blake2b = field(default_factory=partial(hashlib.blake2b, digest_size=8))
    num_sentences: int = 0
    beginning: str = ""


class _TextCheck:
    """Read inputs one after the other and collect findings."""

    def __init__(self, settings: TextSettings, tokenizer: Tokenizer | None) -> None:
        self._settings = settings
        self._found = Findings(ADVICE)
        self._first = ""
        self._counts = Counter(inputs=0, documents=0, sentences=0, characters=0)
        self._documents = SeenDocuments()
        self._lines = RepeatedLines()
        self._unknown = None if tokenizer is None else UnknownTokens(tokenizer)
        self._has_blank_lines = False

    def read(self, source: Source) -> None:
        """Check one input."""
        self._counts["inputs"] += 1
        self._first = self._first or source.name
        self._documents.start_input(source.name)
        document: _Document | None = None
        try:
            for passage in read_passages(source, self._settings):
                if passage.is_start:
                    self._end(document, source)
                    document = _Document(passage.line)
                assert document is not None, "an input begins with a document"
                self._look(PassagePlace(source, passage), document)
        except LitebertError as error:
            example = f"{error.what}: {error.received}"
            self._found.add("unreadable", source.name, example, advice=error.next)
        self._end(document, source)

    def report(self) -> CheckReport:
        """Return what was found in all inputs."""
        if repetition := self._documents.repetition():
            repeats = f"repeats {repetition.original}"
            self._found.add("duplicate document", repetition.where, repeats, times=repetition.count)
        if 0 < self._counts["documents"] < FEW_DOCUMENTS:
            self._found.add("few documents", self._first, advice=self._how_to_tell_apart())
        line, times, where = self._lines.most_frequent()
        if times > max(REPEATED_TIMES, REPEATED_SHARE * self._counts["sentences"]):
            self._found.add("repeated line", where, line, times=times)
        if self._unknown:
            self._counts["tokens"] = self._unknown.num_tokens
            self._unknown.report(self._found)
        return CheckReport(self._found.report(), dict(self._counts))

    def _how_to_tell_apart(self) -> str:
        if self._has_blank_lines and self._settings.documents == "file":
            return "--documents blank-line makes a document of every paragraph"
        return "put blank lines between documents (--documents blank-line), or give a file for each"

    def _look(self, place: PassagePlace, document: _Document) -> None:
        text = place.passage.text
        self._has_blank_lines = self._has_blank_lines or "\n\n" in text
        self._counts["characters"] += len(text)
        document.digest.update("".join(text.split()).encode())
        for kind, pattern in _DAMAGE:
            self._look_for(kind, pattern, place)
        for number, line in place.lines():
            if SHORT_CHARACTERS < len(line) <= LINE_CHARACTERS and not line.isspace():
                self._lines.add(line.strip(), place.source.name, number)
        for sentences in sentence_chunks(text, self._settings):
            document.num_sentences += len(sentences)
            document.beginning = document.beginning or (sentences[0] if sentences else "")
            self._look_at_sentences(sentences, place)

    def _look_for(self, kind: str, pattern: re.Pattern[str], place: PassagePlace) -> None:
        if first := pattern.search(place.passage.text):
            times = sum(1 for _ in pattern.finditer(place.passage.text))
            around = place.passage.text[max(0, first.start() - 30) : first.end() + 30]
            example = " ".join(around.split())
            example = example if example.isprintable() else ascii(example)
            self._found.add(kind, place.at(first.start()), example, times=times)

    def _look_at_sentences(self, sentences: list[str], place: PassagePlace) -> None:
        self._counts["sentences"] += len(sentences)
        for sentence in sentences:
            if SHORT_CHARACTERS < len(sentence) <= LONG_CHARACTERS:
                continue
            kind = "short sentence" if len(sentence) <= SHORT_CHARACTERS else "long sentence"
            where = "" if kind in self._found else place.of(sentence)
            self._found.add(kind, where, sentence)
        if self._unknown:
            self._unknown.look(sentences, place)

    def _end(self, document: _Document | None, source: Source) -> None:
        if document is None:
            return
        self._counts["documents"] += 1
        where = f"{source.name}:{document.line}"
        if document.num_sentences == 0:
            self._found.add("empty document", where)
            return
        self._documents.add(document.digest.digest(), document.line)
        if document.num_sentences == 1:
            self._found.add("single-sentence document", where, document.beginning)
