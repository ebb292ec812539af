"""Check texts before a corpus is built, and corpora: encoding, duplicates, boilerplate, length, damage."""

from __future__ import annotations

import hashlib
import re
from array import array
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from litebert.corpus.corpus import Corpus, Shard
from litebert.corpus.manifest import HELD_OUT
from litebert.corpus.text import Passage, TextSettings, read_passages, sentence_chunks, text_settings
from litebert.errors import DamagedError, LitebertError
from litebert.reading.findings import Advice, CheckReport, Findings
from litebert.reading.source import Source, find_texts
from litebert.tokenizer import Tokenizer
from litebert.tokenizer.tokenizer import UnknownPieces

LONG_CHARACTERS, SHORT_CHARACTERS = 2_000, 3
LINE_CHARACTERS = 200
REPEATED_TIMES, REPEATED_SHARE = 20, 1e-4
FEW_DOCUMENTS = 50
"""With fewer documents, what is held out is one document or two: too little to measure well."""
LONG_TOKENS = 512
EXAMPLE_TOKENS = 40
"""The length of an example, enough to recognise a text."""

ADVICE: Advice = {
    "unreadable": ("error", "correct this place: the rest of the file was not read"),
    "damaged": ("error", "build the corpus again"),
    "held-out overlap": ("error", "build again with --held-out, which keeps duplicates together"),
    "mojibake": ("warning", "text was decoded wrongly before; repair it, for instance with ftfy"),
    "replacement character": ("warning", "U+FFFD stands for lost bytes; reconvert the text"),
    "control character": ("warning", "remove them; a NUL in every other place means UTF-16"),
    "duplicate document": ("warning", "remove all but one: training would see them more often"),
    "repeated line": ("warning", "probably boilerplate, such as a header or a licence; remove it"),
    "few documents": (
        "warning",
        "what is held out is little, and its measures are rough: add text, set --held-out higher, or name "
        "data.eval_corpus",
    ),
    "unknown token": ("warning", "above 1 % another vocabulary is better: litebert tokenizer train"),
    "empty document": ("note", "omitted from a corpus"),
    "empty sentence": ("note", "omitted from a corpus"),
    "single-sentence document": ("note", "teaches no sentence order; join such documents"),
    "long sentence": ("note", "cut in training; does --sentences suit this text?"),
    "short sentence": ("note", "often a heading or a number; does --sentences suit this text?"),
}
"""The severity of each kind of finding and what to do, in the order in which they are reported."""

DAMAGE = (
    # UTF-8 read as Latin-1 or Windows-1252: é becomes Ã©, ’ becomes â€™
    ("mojibake", re.compile("[ÃÂ][\u0080-\u00bf€‚ƒ„…†‡ˆ‰Š‹ŒŽ‘’“”•–—˜™š›œžŸ]|â€|ï»¿")),
    ("replacement character", re.compile("\ufffd")),
    ("control character", re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")),
)


def check_text(
    inputs: Iterable[str | Path],
    *,
    sentences: str = "segment",
    documents: str = "blank-line",
    column: str = "text",
    language: str = "en",
    tokenizer: str | Path | None = None,
) -> CheckReport:
    """Read texts as `build_corpus` would, and report what would harm training.

    With a tokenizer, unknown tokens are counted, too. An input that cannot be read to its end becomes a finding.
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
        self._settings, self._tokenizer = settings, tokenizer
        self._found = Findings(ADVICE)
        self._first = ""
        self._counts = Counter(inputs=0, documents=0, sentences=0, characters=0)
        self._documents = SeenDocuments()
        self._lines = RepeatedLines()
        self._unknown = None if tokenizer is None else UnknownPieces(tokenizer)
        self._first_unknown = ""
        self._has_blank_lines = False

    def read(self, source: Source) -> None:
        """Check one input."""
        self._counts["inputs"] += 1
        self._first = self._first or source.name
        self._documents.start_input(source.name)
        document: _Document | None = None
        try:
            for passage in read_passages(source, self._settings):
                if passage.is_start or document is None:
                    self._end(document, source)
                    document = _Document(passage.line)
                self._look(source, passage, document)
        except LitebertError as error:
            self._found.add("unreadable", source.name, f"{error.what}: {error.received}", advice=error.next)
        self._end(document, source)

    def report(self) -> CheckReport:
        """Return what was found in all inputs."""
        self._documents.report(self._found)
        if 0 < self._counts["documents"] < FEW_DOCUMENTS:
            advice = "put blank lines between documents (--documents blank-line), or give a file for each"
            if self._has_blank_lines and self._settings.documents == "file":
                advice = "--documents blank-line makes a document of every paragraph"
            self._found.add("few documents", self._first, advice=advice)
        line, times, where = self._lines.most_frequent()
        if times > max(REPEATED_TIMES, REPEATED_SHARE * self._counts["sentences"]):
            self._found.add("repeated line", where, line, times=times)
        if self._unknown:
            self._counts["tokens"] = self._unknown.num_pieces
            if number := self._unknown.num_unknown:
                characters = ", ".join(f"{c!r} {count:,}" for c, count in self._unknown.characters)
                example = f"{number / self._unknown.num_pieces:.2%} of tokens; {characters}"
                self._found.add("unknown token", self._first_unknown, example, times=number)
        return CheckReport(self._found.report(), dict(self._counts))

    def _look(self, source: Source, passage: Passage, document: _Document) -> None:
        text = passage.text
        has_lines = source.kind == ".txt"  # a row has one line, a .txt passage as many as its text

        def at(position: int) -> str:
            lines_before = text.count("\n", 0, position) if has_lines else 0
            return f"{source.name}:{passage.line + lines_before}"

        self._has_blank_lines = self._has_blank_lines or "\n\n" in text
        self._counts["characters"] += len(text)
        document.digest.update("".join(text.split()).encode())
        for kind, pattern in DAMAGE:
            if first := pattern.search(text):
                around = " ".join(text[max(0, first.start() - 30) : first.end() + 30].split())
                example = around if around.isprintable() else ascii(around)
                self._found.add(kind, at(first.start()), example, times=sum(1 for _ in pattern.finditer(text)))
        for index, line in enumerate(text.split("\n")):
            if SHORT_CHARACTERS < len(line) <= LINE_CHARACTERS and not line.isspace():
                self._lines.add(line.strip(), source.name, passage.line + index * has_lines)
        for sentences in sentence_chunks(text, self._settings):
            document.num_sentences += len(sentences)
            document.beginning = document.beginning or (sentences[0] if sentences else "")
            self._counts["sentences"] += len(sentences)
            for sentence in sentences:
                if SHORT_CHARACTERS < len(sentence) <= LONG_CHARACTERS:
                    continue
                kind = "short sentence" if len(sentence) <= SHORT_CHARACTERS else "long sentence"
                where = "" if kind in self._found else at(max(0, text.find(sentence)))
                self._found.add(kind, where, sentence)
            if self._unknown and self._tokenizer:
                encoded = self._tokenizer.encode_ids(sentences, num_threads=1)
                for sentence, ids in zip(sentences, encoded, strict=True):
                    if self._unknown.add(sentence, ids) and not self._first_unknown:
                        self._first_unknown = at(max(0, text.find(sentence)))

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


def check_corpus(path: str | Path, *, verify_only: bool = False) -> CheckReport:
    """Verify every byte of a corpus and of its held-out part; report what would harm training.

    With `verify_only`, the texts themselves are not checked.
    """
    found = Findings(ADVICE)
    try:
        corpus = Corpus.open(path, verify=True)
        held_out = corpus.held_out(verify=True)
        parts = [corpus, held_out] if held_out else [corpus]
        sizes = [file.stored.size for part in parts for shard in part.shards for file in shard.files]
        sizes += [file.stat().st_size for part in parts for file in part.verify_records()]
        tokenizer = corpus.tokenizer()
    except DamagedError as error:
        what = error.what.replace(f"{path}/", "")  # the finding names the path already
        found.add("damaged", str(path), f"{what}: {error.received}", advice=error.next)
        return CheckReport(found.report(), {})
    if verify_only:
        return CheckReport((), {"files": len(sizes), "bytes": sum(sizes)})
    documents = _look_at(corpus, tokenizer, found)
    documents.report(found)
    if held_out and (shared := _look_at(held_out, tokenizer, found).overlap(documents)):
        found.add("held-out overlap", f"{HELD_OUT}/{shared.where}", f"also {shared.original}", times=shared.count)
    return CheckReport(found.report(), corpus.manifest.counts.model_dump())


def _look_at(corpus: Corpus, tokenizer: Tokenizer, found: Findings) -> SeenDocuments:
    """Collect the findings of a corpus; return the hashes of its documents."""
    documents = SeenDocuments()
    for shard in corpus.shards:
        documents.start_input(shard.path.name)
        for number, (start, stop) in enumerate(pairwise(shard.sentences[shard.documents])):
            tokens = shard.tokens[start:stop].tobytes()
            documents.add(hashlib.blake2b(tokens, digest_size=8).digest(), number)
        long = np.flatnonzero(np.diff(shard.sentences) > LONG_TOKENS)
        single = shard.documents[:-1][np.diff(shard.documents) == 1]
        for kind, sentences in (("long sentence", long), ("single-sentence document", single)):
            if len(sentences):
                start = int(shard.sentences[sentences[0]])
                found.add(kind, _place(shard, start), _decoded(shard, start, tokenizer), times=len(sentences))
        unknown = np.flatnonzero(shard.tokens == tokenizer.unk_id)
        if len(unknown):
            first = int(unknown[0])
            example = f"{len(unknown) / len(shard.tokens):.2%} of {shard.path.name}: "
            example += _decoded(shard, max(0, first - EXAMPLE_TOKENS // 4), tokenizer)
            found.add("unknown token", _place(shard, first), example, times=len(unknown))
    return documents


def _place(shard: Shard, token: int) -> str:
    sentence = np.searchsorted(shard.sentences, token, side="right") - 1
    document = np.searchsorted(shard.documents, sentence, side="right") - 1
    return f"{shard.path.name}:{document}"


def _decoded(shard: Shard, start: int, tokenizer: Tokenizer) -> str:
    return tokenizer.decode(shard.tokens[start : start + EXAMPLE_TOKENS].tolist())


@dataclass(frozen=True)
class Repetition:
    """How many documents repeat an earlier one, the place of the first one, and of its original."""

    count: int
    where: str
    original: str


class SeenDocuments:
    """Store a hash of 8 bytes and a line number of 4 bytes for every document."""

    def __init__(self) -> None:
        self._hashes, self._lines = array("Q"), array("I")
        self._names: list[str] = []
        self._starts: list[int] = []

    def start_input(self, name: str) -> None:
        """Note that the next documents come from another input."""
        self._names.append(name)
        self._starts.append(len(self._hashes))

    def add(self, digest: bytes, line: int) -> None:
        """Store a document by the first 8 bytes of its digest."""
        self._hashes.append(int.from_bytes(digest[:8], "little"))
        self._lines.append(min(line, 0xFFFFFFFF))

    def repetition(self) -> Repetition | None:
        """Return the documents that equal an earlier one; None if all differ."""
        hashes = self.hashes
        order = np.argsort(hashes, kind="stable")
        is_repeated = hashes[order][1:] == hashes[order][:-1]
        if not is_repeated.any():
            return None
        at = int(order[1:][is_repeated].min())
        original = int((hashes == hashes[at]).argmax())
        return Repetition(int(is_repeated.sum()), self._place(at), self._place(original))

    def report(self, found: Findings) -> None:
        """Add a finding if documents repeat others."""
        if repetition := self.repetition():
            repeats = f"repeats {repetition.original}"
            found.add("duplicate document", repetition.where, repeats, times=repetition.count)

    def overlap(self, others: SeenDocuments) -> Repetition | None:
        """Return the documents that are also among `others`; None if there are none."""
        is_shared = np.isin(self.hashes, others.hashes)
        if not is_shared.any():
            return None
        at = int(is_shared.argmax())
        original = int((others.hashes == self.hashes[at]).argmax())
        return Repetition(int(is_shared.sum()), self._place(at), others._place(original))

    @property
    def hashes(self) -> NDArray[np.uint64]:
        """The hashes of all documents in order, shape (documents,)."""
        return np.frombuffer(self._hashes, np.uint64)

    def _place(self, document: int) -> str:
        return f"{self._names[bisect_right(self._starts, document) - 1]}:{self._lines[document]}"


class RepeatedLines:
    """Count equal lines in a bounded table; when it is full, rare lines are dropped.

    >>> lines = RepeatedLines(limit=2)
    >>> for number, line in enumerate(["buy", "a", "buy", "b", "buy", "c"], 1):
    ...     lines.add(line, "x.txt", number)
    >>> lines.most_frequent()
    ('buy', 3, 'x.txt:1')
    """

    def __init__(self, limit: int = 1 << 17) -> None:
        self._limit = limit
        self._seen: dict[str, tuple[int, str, int]] = {}

    def add(self, line: str, name: str, number: int) -> None:
        """Count a line, which has this number in the input `name`."""
        count, name, number = self._seen.get(line, (0, name, number))
        self._seen[line] = (count + 1, name, number)
        threshold = 1
        while len(self._seen) > self._limit:
            self._seen = {line: seen for line, seen in self._seen.items() if seen[0] > threshold}
            threshold *= 2

    def most_frequent(self) -> tuple[str, int, str]:
        """Return the commonest line, a lower bound of its count, and its first place."""
        if not self._seen:
            return "", 0, ""
        line, (count, name, number) = max(self._seen.items(), key=lambda item: item[1][0])
        return line, count, f"{name}:{number}"
