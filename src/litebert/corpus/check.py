"""Check texts before a build, and corpora, for what would harm training."""

import hashlib
import re
from array import array
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from typing import NamedTuple

import numpy as np

from litebert.corpus.corpus import Corpus
from litebert.corpus.shards import HELD_OUT, Shard
from litebert.corpus.text import Passage, TextSettings, read_passages, sentence_chunks
from litebert.errors import DamagedError, LitebertError
from litebert.reading.findings import Advice, CheckReport, Findings
from litebert.reading.source import Names, Source, find_texts
from litebert.rng import Hashes, Ints
from litebert.tokenizer import Tokenizer
from litebert.tokenizer.unknown import OTHER_VOCABULARY, UnknownPieces

# Sentences that are longer or not longer than these are findings, in characters.
LONG_CHARACTERS = 2_000
SHORT_CHARACTERS = 3
# Boilerplate repeats line by line; lines that are longer than this are running text.
LINE_CHARACTERS = 200
MOST_LINES = 1 << 17  # in memory
# A line is common from so many times on, and from this share of the sentences.
REPEATED_TIMES = 20
REPEATED_SHARE = 1e-4
# With fewer documents, the held-out part is one document or two: too little to measure
# well.
FEW_DOCUMENTS = 50
LONG_TOKENS = 512  # the longest sequence of the published networks
EXAMPLE_TOKENS = 40  # the length of an example, enough to recognize a text

ADVICE: Advice = {
    "unreadable": (
        "error",
        "correct this place: what follows it in the file was not read",
    ),
    "damaged": ("error", "build the corpus again"),
    "held-out overlap": (
        "error",
        "remove duplicates (litebert corpus filter), then build again",
    ),
    "mojibake": (
        "warning",
        "text was decoded wrongly before; repair it, for instance with ftfy",
    ),
    "replacement character": (
        "warning",
        "U+FFFD marks lost bytes; convert the text again",
    ),
    "control character": (
        "warning",
        "remove them; a NUL in every other position means UTF-16",
    ),
    "duplicate document": (
        "warning",
        "remove all but one: training would see them more often",
    ),
    "repeated line": (
        "warning",
        "probably boilerplate, such as a header or a license; remove it",
    ),
    "few documents": (
        "warning",
        "held-out metrics are imprecise: add text, or blank lines between documents",
    ),
    "unknown token": ("warning", OTHER_VOCABULARY),
    "empty document": ("note", "omitted from a corpus"),
    "single-sentence document": (
        "note",
        "teaches no sentence order; join such documents, or see --language",
    ),
    "long sentence": ("note", "cut in training; does --sentences suit this text?"),
    "short sentence": (
        "note",
        "often a heading or a number; does --sentences suit this text?",
    ),
}
"""The severity of each kind of finding and what to do, in the order in which they are
reported.
"""

DAMAGE = (
    # UTF-8 read as Latin-1 or Windows-1252: é becomes Ã©, ’ becomes â€™
    ("mojibake", re.compile("[ÃÂ][\u0080-\u00bf€‚ƒ„…†‡ˆ‰Š‹ŒŽ‘’“”•–—˜™š›œžŸ]|â€|ï»¿")),
    ("replacement character", re.compile("\ufffd")),
    ("control character", re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")),
)


# ---- texts ---------------------------------------------------------------------------


def check_text(
    inputs: Names, settings: TextSettings, *, tokenizer: str | Path | None = None
) -> CheckReport:
    """Read texts as `build_corpus` would, and report what would harm training.

    With a tokenizer, unknown tokens are counted, too. An input that cannot be read to
    its end becomes a finding.
    """
    sources = find_texts(inputs)
    unknown = None if tokenizer is None else UnknownPieces(Tokenizer.load(tokenizer))
    check = _TextCheck(settings, unknown)
    for source in sources:
        check.read(source)
    return check.report(sources)


class _TextCheck:
    """The findings in texts that are read one after another, and what is needed to tell
    what repeats.
    """

    def __init__(self, settings: TextSettings, unknown: UnknownPieces | None) -> None:
        self.settings = settings
        self.unknown = unknown
        self.findings = Findings(ADVICE)
        self.counts = Counter(inputs=0, documents=0, sentences=0, characters=0)
        self.documents = SeenDocuments()
        self.lines = SeenLines()
        self.first_unknown = ""  # where the first unknown token was found

    def read(self, source: Source) -> None:
        """Check all documents of an input."""
        self.counts["inputs"] += 1
        passages = _readable_passages(source, self.settings, self.findings)
        for _, document in groupby(passages, key=attrgetter("document")):
            self._read_document(source, document)

    def _read_document(self, source: Source, passages: Iterator[Passage]) -> None:
        """Check the sentences of a document, and remember it, to compare it with the
        others.
        """
        first_line = 0
        num_sentences = 0
        beginning = ""  # the first sentence
        # Of the text without white space, passage by passage: a document need not fit
        # in memory.
        digest = hashlib.blake2b(digest_size=8)
        for passage in passages:
            first_line = first_line or passage.line
            self.counts["characters"] += len(passage.text)
            digest.update("".join(passage.text.split()).encode())
            _find_damage(source, passage, self.findings)
            self.lines.add(source, passage)
            for sentences in sentence_chunks(passage.text, self.settings):
                num_sentences += len(sentences)
                if sentences and not beginning:
                    beginning = sentences[0]
                self._check_lengths(source, passage, sentences)
                self._count_unknown(source, passage, sentences)
        self.counts.update(documents=1, sentences=num_sentences)
        where = f"{source.name}:{first_line}"
        # Empty documents are not compared: they would all be duplicates.
        if num_sentences == 0:
            self.findings.add("empty document", where)
            return
        hashed = int.from_bytes(digest.digest(), "little")
        self.documents.add(hashed, source.name, first_line)
        if num_sentences == 1:
            self.findings.add("single-sentence document", where, beginning)

    def _check_lengths(
        self, source: Source, passage: Passage, sentences: Sequence[str]
    ) -> None:
        for sentence in sentences:
            if len(sentence) <= SHORT_CHARACTERS:
                kind = "short sentence"
            elif len(sentence) > LONG_CHARACTERS:
                kind = "long sentence"
            else:
                continue
            where = ""
            if kind not in self.findings:  # only the first place is shown
                where = _place(source, passage, passage.text.find(sentence))
            self.findings.add(kind, where, sentence)

    def _count_unknown(
        self, source: Source, passage: Passage, sentences: Sequence[str]
    ) -> None:
        if self.unknown is None:
            return
        encoded = self.unknown.tokenizer.encode_ids(sentences)
        for sentence, ids in zip(sentences, encoded, strict=True):
            has_unknown = self.unknown.add(sentence, ids)
            if has_unknown and not self.first_unknown:
                position = passage.text.find(sentence)
                self.first_unknown = _place(source, passage, position)

    def report(self, sources: Sequence[Source]) -> CheckReport:
        """Add what shows only in all inputs together, and return the findings."""
        findings = self.findings
        self.documents.report_repeated(findings)
        num_documents = self.counts["documents"]
        if 0 < num_documents < FEW_DOCUMENTS:
            findings.add("few documents", sources[0].name, times=num_documents)
        self.lines.report_repeated(findings, self.counts["sentences"])
        if self.unknown is not None:
            self.counts["tokens"] = self.unknown.num_pieces
            if self.unknown.num_unknown:
                findings.add(
                    "unknown token",
                    self.first_unknown,
                    str(self.unknown),
                    times=self.unknown.num_unknown,
                )
        return CheckReport(findings.report(), dict(self.counts))


def _readable_passages(
    source: Source, settings: TextSettings, findings: Findings
) -> Iterator[Passage]:
    """Yield the passages of an input as far as it can be read; the error that ends them
    becomes a finding.
    """
    try:
        yield from read_passages(source, settings)
    except LitebertError as error:
        parts = [part for part in (error.what, error.received) if part]
        message = ": ".join(str(part) for part in parts)
        findings.add("unreadable", source.name, message, advice=error.next)


def _find_damage(source: Source, passage: Passage, findings: Findings) -> None:
    text = passage.text
    for kind, pattern in DAMAGE:
        first = pattern.search(text)
        if first is None:
            continue
        around = text[max(0, first.start() - 30) : first.end() + 30]
        line = " ".join(around.split())
        # A control character would be invisible, or move the cursor of a terminal.
        example = line if line.isprintable() else ascii(line)
        where = _place(source, passage, first.start())
        findings.add(kind, where, example, times=len(pattern.findall(text)))


def _place(source: Source, passage: Passage, position: int) -> str:
    """Name the line of a character: a row is one line, a passage of a .txt file as many
    as its text.
    """
    lines_before = 0
    if source.kind == ".txt":
        lines_before = passage.text.count("\n", 0, max(0, position))
    return f"{source.name}:{passage.line + lines_before}"


class _SeenLine(NamedTuple):
    times: int
    first: str  # the place where it was seen first, NAME:LINE


class SeenLines:
    """How often each line was seen, and where first.

    Of very many lines, the rarer half is forgotten now and then, so that counts are
    lower bounds.
    """

    def __init__(self) -> None:
        self._seen = dict[str, _SeenLine]()

    def add(self, source: Source, passage: Passage) -> None:
        for number, line in enumerate(passage.text.split("\n"), passage.line):
            # lengths count the blanks around a line
            has_usual_length = SHORT_CHARACTERS < len(line) <= LINE_CHARACTERS
            if not has_usual_length or line.isspace():
                continue
            key = line.strip()
            seen = self._seen.get(key)
            if seen is None:
                # a row is one line
                place = number if source.kind == ".txt" else passage.line
                seen = _SeenLine(0, f"{source.name}:{place}")
            self._seen[key] = seen._replace(times=seen.times + 1)
        if len(self._seen) > MOST_LINES:
            self._forget_rare_lines()

    def _forget_rare_lines(self) -> None:
        by_times = sorted(self._seen, key=self._times, reverse=True)
        self._seen = {line: self._seen[line] for line in by_times[: MOST_LINES // 2]}

    def _times(self, line: str) -> int:
        return self._seen[line].times

    def report_repeated(self, findings: Findings, num_sentences: int) -> None:
        """Add a finding if the commonest line is suspiciously common."""
        if not self._seen:
            return
        line = max(self._seen, key=self._times)
        seen = self._seen[line]
        if seen.times > max(REPEATED_TIMES, REPEATED_SHARE * num_sentences):
            findings.add("repeated line", seen.first, line, times=seen.times)


class SeenDocuments:
    """The hash and the place of every document, in 16 bytes each."""

    def __init__(self) -> None:
        self._hashes = array("Q")
        self._places = array("Q")  # the number of the input, and the line in it
        self._inputs = dict[str, int]()  # numbers by name

    def add(self, hashed: int, name: str, line: int) -> None:
        number = self._inputs.setdefault(name, len(self._inputs))
        # 32 bits each, which is enough for four billion lines
        self._hashes.append(hashed)
        self._places.append(number << 32 | line)

    @property
    def hashes(self) -> Hashes:
        """The hashes in order, shape (documents,)."""
        return np.frombuffer(self._hashes, np.uint64)

    def place(self, document: int) -> str:
        number, line = divmod(self._places[document], 1 << 32)
        return f"{list(self._inputs)[number]}:{line}"

    def report_repeated(self, findings: Findings) -> None:
        """Add a finding if documents repeat others."""
        # (distinct hashes,): the first document with each; (documents,): which of these
        # hashes each document has
        _, firsts, group_of = np.unique(
            self.hashes, return_index=True, return_inverse=True
        )
        original = firsts[group_of]  # (documents,): the first document with this hash
        repeated = np.flatnonzero(original != np.arange(len(original)))
        if not len(repeated):
            return
        document = int(repeated[0])
        example = f"repeats {self.place(int(original[document]))}"
        where = self.place(document)
        findings.add("duplicate document", where, example, times=len(repeated))


# ---- corpora -------------------------------------------------------------------------


def check_corpus(path: str | Path, *, verify_only: bool = False) -> CheckReport:
    """Verify the files of a corpus and of its held-out part; unless `verify_only`,
    report what would harm training.
    """
    findings = Findings(ADVICE)
    try:
        corpus = Corpus.open(path, verify=True)
        held_out = corpus.held_out(verify=True)
        sizes = _file_sizes(corpus)
        if held_out:
            sizes += _file_sizes(held_out)
    except DamagedError as error:
        message = f"{error.what}: {error.received}"
        message = message.replace(f"{path}/", "")  # the finding already names the path
        findings.add("damaged", str(path), message, advice=error.next)
        return CheckReport(findings.report(), {})
    if verify_only:
        return CheckReport((), {"files": len(sizes), "bytes": sum(sizes)})
    # Copies within the held-out part are no finding: nothing is trained on them.
    documents = _check_shards(corpus, findings)
    documents.report_repeated(findings)
    if held_out:
        _find_overlap(documents, _check_shards(held_out, findings), findings)
    return CheckReport(findings.report(), corpus.manifest.counts.model_dump())


def _file_sizes(corpus: Corpus) -> list[int]:
    """Verify the records of a corpus, and return the sizes of all its files."""
    sizes = list[int]()
    for shard in corpus.shards:
        sizes += [file.stored.size for file in shard.files]
    return sizes + [file.stat().st_size for file in corpus.verify_records()]


def _find_overlap(
    documents: SeenDocuments, held_out: SeenDocuments, findings: Findings
) -> None:
    """Add a finding if documents of the held-out part are trained on, too."""
    shared = np.flatnonzero(np.isin(held_out.hashes, documents.hashes))
    if not len(shared):
        return
    document = int(shared[0])
    trained = int((documents.hashes == held_out.hashes[document]).argmax())
    where = f"{HELD_OUT}/{held_out.place(document)}"
    example = f"also {documents.place(trained)}"
    findings.add("held-out overlap", where, example, times=len(shared))


def _check_shards(corpus: Corpus, findings: Findings) -> SeenDocuments:
    """Add findings in all shards; return their documents."""
    documents = SeenDocuments()
    tokenizer = corpus.tokenizer()
    for shard in corpus.shards:
        for number, hashed in enumerate(shard.hash_documents().tolist()):
            documents.add(hashed, shard.path.name, number)
        _ShardCheck(shard, tokenizer, findings).run()
    return documents


@dataclass(frozen=True)
class _ShardCheck:
    """Finds long sentences, documents of one sentence, and unknown tokens."""

    shard: Shard
    tokenizer: Tokenizer
    findings: Findings

    def run(self) -> None:
        shard = self.shard
        is_long = np.diff(shard.sentences) > LONG_TOKENS  # (sentences,)
        self._add("long sentence", shard.sentences[:-1][is_long])
        starts = shard.sentences[shard.documents]  # (documents + 1,), in tokens
        has_one_sentence = np.diff(shard.documents) == 1  # (documents,)
        self._add("single-sentence document", starts[:-1][has_one_sentence])

        unknown = np.flatnonzero(shard.tokens == self.tokenizer.unk_id)
        share = len(unknown) / len(shard.tokens)
        label = f"{share:.2%} of {shard.path.name}: "
        # the example has some of the words before the unknown one
        self._add("unknown token", unknown, label, num_before=EXAMPLE_TOKENS // 4)

    def _add(
        self, kind: str, tokens: Ints, label: str = "", *, num_before: int = 0
    ) -> None:
        """Add a finding for the tokens at these places, with the first as its example,
        and `num_before` tokens before it.
        """
        if not len(tokens):
            return
        shard = self.shard
        first = int(tokens[0])
        starts = shard.sentences[shard.documents]
        document = np.searchsorted(starts, first, side="right") - 1
        begin = max(0, first - num_before)
        ids = shard.tokens[begin : begin + EXAMPLE_TOKENS].tolist()
        example = f"{label}{self.tokenizer.decode(ids)}"
        where = f"{shard.path.name}:{document}"
        self.findings.add(kind, where, example, times=len(tokens))
