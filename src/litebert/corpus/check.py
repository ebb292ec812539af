"""Check texts before a build, and corpora, for what would harm training; filter out
near duplicates.
"""

import hashlib
import json
import re
from array import array
from collections import Counter
from collections.abc import Iterator
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from typing import Annotated, Any, Literal, Required

import numpy as np

from litebert import files
from litebert.corpus.corpus import Corpus
from litebert.corpus.shards import HELD_OUT
from litebert.corpus.text import (
    Passage,
    TextSettings,
    read_documents,
    read_passages,
    sentence_chunks,
    wrong_value,
)
from litebert.errors import DamagedError, LitebertError, missing_package
from litebert.reading.findings import Advice, CheckReport, Findings
from litebert.reading.source import JSON_LINES, Names, Source, find_texts
from litebert.rng import Hashes
from litebert.tokenizer import Tokenizer
from litebert.tokenizer.tokenizer import OTHER_VOCABULARY, UnknownPieces

LONG_CHARACTERS = 2_000
SHORT_CHARACTERS = 3
LINE_CHARACTERS = 200
MOST_LINES = 1 << 17
REPEATED_TIMES = 20
REPEATED_SHARE = 1e-4
# with fewer documents, the held-out part is one document or two: too little to measure
# well
FEW_DOCUMENTS = 50
LONG_TOKENS = 512
EXAMPLE_TOKENS = 40  # the length of an example, enough to recognise a text
SHINGLE_WORDS = 5
# or a Thai, Chinese … letter
_WORD = re.compile("[\u0e00-\u0eff\u3040-\u9fff]|[^\\s\u0e00-\u0eff\u3040-\u9fff]+")
NUM_HASHES = 128

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
        "probably boilerplate, such as a header or a licence; remove it",
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
    unknown = None if tokenizer is None else UnknownPieces(Tokenizer.load(tokenizer))
    sources = find_texts(inputs)
    found = Findings(ADVICE)
    seen = SeenDocuments()
    lines: dict[str, tuple[int, str]] = {}  # how often each was seen, and where first
    counts = Counter(inputs=len(sources), documents=0, sentences=0, characters=0)
    first_unknown = ""
    for source in sources:
        for _, document in groupby(
            _readable_passages(source, settings, found), key=attrgetter("document")
        ):
            first_line = 0
            num_sentences = 0
            beginning = ""
            hashed = hashlib.blake2b(digest_size=8)
            for passage in document:
                text = passage.text
                first_line = first_line or passage.line
                counts["characters"] += len(text)
                hashed.update("".join(text.split()).encode())
                _find_damage(source, passage, found)

                # Lines that repeat; only rare ones are forgotten, so counts are lower
                # bounds.
                for number, line in enumerate(text.split("\n"), passage.line):
                    if (
                        SHORT_CHARACTERS < len(line) <= LINE_CHARACTERS
                        and not line.isspace()
                    ):
                        line = line.strip()
                        at = number if source.kind == ".txt" else passage.line
                        times, first_place = lines.get(line, (0, f"{source.name}:{at}"))
                        lines[line] = times + 1, first_place
                if len(lines) > MOST_LINES:
                    lines = dict(
                        sorted(lines.items(), key=lambda item: -item[1][0])[
                            : MOST_LINES // 2
                        ]
                    )

                # Sentences that are odd in length or have unknown tokens.
                for chunk in sentence_chunks(text, settings):
                    num_sentences += len(chunk)
                    beginning = beginning or (chunk[0] if chunk else "")
                    for sentence in chunk:
                        if not SHORT_CHARACTERS < len(sentence) <= LONG_CHARACTERS:
                            kind = (
                                "short sentence"
                                if len(sentence) <= SHORT_CHARACTERS
                                else "long sentence"
                            )
                            where = (
                                ""
                                if kind in found
                                else _place(source, passage, text.find(sentence))
                            )
                            found.add(kind, where, sentence)
                    if unknown:
                        for sentence, ids in zip(
                            chunk, unknown.tokenizer.encode_ids(chunk), strict=True
                        ):
                            if unknown.add(sentence, ids) and not first_unknown:
                                first_unknown = _place(
                                    source, passage, text.find(sentence)
                                )
            counts.update(documents=1, sentences=num_sentences)
            where = f"{source.name}:{first_line}"
            if num_sentences == 0:
                found.add("empty document", where)
                continue
            seen.add(int.from_bytes(hashed.digest(), "little"), source.name, first_line)
            if num_sentences == 1:
                found.add("single-sentence document", where, beginning)

    # What shows only in all inputs together.
    seen.report_repeated(found)
    if 0 < counts["documents"] < FEW_DOCUMENTS:
        found.add("few documents", sources[0].name, times=counts["documents"])
    if lines:
        line, (times, where) = max(lines.items(), key=lambda item: item[1][0])
        if times > max(REPEATED_TIMES, REPEATED_SHARE * counts["sentences"]):
            found.add("repeated line", where, line, times=times)
    if unknown:
        counts["tokens"] = unknown.num_pieces
        if unknown.num_unknown:
            found.add(
                "unknown token", first_unknown, str(unknown), times=unknown.num_unknown
            )
    return CheckReport(found.report(), dict(counts))


def _readable_passages(
    source: Source, settings: TextSettings, found: Findings
) -> Iterator[Passage]:
    """Yield the passages of an input as far as it can be read; the error that ends them
    becomes a finding.
    """
    try:
        yield from read_passages(source, settings)
    except LitebertError as error:
        said = ": ".join(filter(None, [error.what, error.received]))
        found.add("unreadable", source.name, said, advice=error.next)


def _find_damage(source: Source, passage: Passage, found: Findings) -> None:
    text = passage.text
    for kind, pattern in DAMAGE:
        if first := pattern.search(text):
            around = " ".join(
                text[max(0, first.start() - 30) : first.end() + 30].split()
            )
            example = around if around.isprintable() else ascii(around)
            where = _place(source, passage, first.start())
            times = len(pattern.findall(text))
            found.add(kind, where, example, times=times)


def _place(source: Source, passage: Passage, position: int) -> str:
    """Name the line of a character: a row is one line, a passage of a .txt file as many
    as its text.
    """
    lines_before = (
        passage.text.count("\n", 0, max(0, position)) if source.kind == ".txt" else 0
    )
    return f"{source.name}:{passage.line + lines_before}"


class SeenDocuments:
    """The hash and the place of every document, in 16 bytes each."""

    def __init__(self) -> None:
        # a place is the number of its input and its line
        self._hashes = array("Q")
        self._places = array("Q")
        self._inputs = dict[str, int]()

    def add(self, hashed: int, name: str, line: int) -> None:
        self._hashes.append(hashed)
        self._places.append(
            self._inputs.setdefault(name, len(self._inputs)) << 32 | line
        )

    @property
    def hashes(self) -> Hashes:
        """The hashes in order, shape (documents,)."""
        return np.frombuffer(self._hashes, np.uint64)

    def place(self, document: int) -> str:
        number, line = divmod(self._places[document], 1 << 32)
        return f"{list(self._inputs)[number]}:{line}"

    def report_repeated(self, found: Findings) -> None:
        """Add a finding if documents repeat others."""
        _, firsts, which = np.unique(
            self.hashes, return_index=True, return_inverse=True
        )
        # (documents,): the first document with the hash of each
        original = firsts[which]
        repeated = np.flatnonzero(original != np.arange(len(original)))
        if len(repeated):
            at = int(repeated[0])
            example = f"repeats {self.place(int(original[at]))}"
            found.add(
                "duplicate document", self.place(at), example, times=len(repeated)
            )


# ---- corpora -------------------------------------------------------------------------


def check_corpus(path: str | Path, *, verify_only: bool = False) -> CheckReport:
    """Verify the files of a corpus and of its held-out part; unless `verify_only`,
    report what would harm training.
    """
    found = Findings(ADVICE)
    try:
        corpus = Corpus.open(path, verify=True)
        held_out = corpus.held_out(verify=True)
        parts = [corpus, held_out] if held_out else [corpus]
        sizes = [
            file.stored.size
            for part in parts
            for shard in part.shards
            for file in shard.files
        ]
        sizes += [
            file.stat().st_size for part in parts for file in part.verify_records()
        ]
    except DamagedError as error:
        what = error.what.replace(f"{path}/", "")  # the finding already names the path
        found.add("damaged", str(path), f"{what}: {error.received}", advice=error.next)
        return CheckReport(found.report(), {})
    if verify_only:
        return CheckReport((), {"files": len(sizes), "bytes": sum(sizes)})
    documents = _check_shards(corpus, found)
    documents.report_repeated(found)
    if held_out:
        others = _check_shards(held_out, found)
        shared = np.flatnonzero(np.isin(others.hashes, documents.hashes))
        if len(shared):
            at = int(shared[0])
            trained = int((documents.hashes == others.hashes[at]).argmax())
            where = f"{HELD_OUT}/{others.place(at)}"
            example = f"also {documents.place(trained)}"
            found.add("held-out overlap", where, example, times=len(shared))
    return CheckReport(found.report(), corpus.manifest.counts.model_dump())


def _check_shards(corpus: Corpus, found: Findings) -> SeenDocuments:
    seen = SeenDocuments()
    tokenizer = corpus.tokenizer()
    for shard in corpus.shards:
        name = shard.path.name
        starts = shard.sentences[shard.documents]
        for number, hashed in enumerate(shard.hash_documents().tolist()):
            seen.add(hashed, name, number)
        # where they start, in tokens
        long = shard.sentences[:-1][np.diff(shard.sentences) > LONG_TOKENS]
        single = starts[:-1][np.diff(shard.documents) == 1]
        unknown = np.flatnonzero(shard.tokens == tokenizer.unk_id)
        share = f"{len(unknown) / len(shard.tokens):.2%} of {name}: "
        for kind, places, before, label in (
            ("long sentence", long, 0, ""),
            ("single-sentence document", single, 0, ""),
            ("unknown token", unknown, EXAMPLE_TOKENS // 4, share),
        ):
            if len(places):
                first = max(0, int(places[0]) - before)
                example = label + tokenizer.decode(
                    shard.tokens[first : first + EXAMPLE_TOKENS].tolist()
                )
                document = np.searchsorted(starts, int(places[0]), side="right") - 1
                found.add(kind, f"{name}:{document}", example, times=len(places))
    return seen


# ---- near duplicates, left out before a build ----------------------------------------


def corpus_filter(
    *inputs: Annotated[str, Required],
    output: Annotated[Path, "A .jsonl file."],
    near_duplicates: Annotated[
        float, "Omit documents this near to an earlier one."
    ] = 0.8,
    force: Annotated[bool, "Replace the file if it exists."] = False,
    documents: Annotated[
        Literal["blank-line", "file"], "Where documents of .txt files end."
    ] = "blank-line",
    column: Annotated[str, "Text column of JSONL or Parquet files."] = "text",
) -> str:
    """Write the documents worth keeping to a .jsonl file, which `corpus build` reads.

    Of several near duplicates, the first is kept; they have about this share of their
    word 5-grams in common, or more. In Japanese, Chinese and Thai, which are written
    without spaces, each letter counts as a word.

    litebert corpus filter raw.jsonl --output clean.jsonl
    litebert corpus filter stories.jsonl --near-duplicates 0.5 --output unlike.jsonl
    """
    if output.suffix not in JSON_LINES:
        expected = (
            "a name that ends in .jsonl or .ndjson, because rows of JSON are written"
        )
        raise wrong_value("output", output, expected, command="filter")
    files.require_new(output, force=force)
    try:
        from rensa import RMinHash, RMinHashLSH
    except ImportError as error:
        raise missing_package(
            "rensa", extra="data", needed_for="near duplicates"
        ) from error
    if not 0 < near_duplicates <= 1:
        expected = "above 0, at most 1; 0.8 is 80 % of the word 5-grams"
        raise wrong_value(
            "near-duplicates", near_duplicates, expected, command="filter"
        )
    # MinHash (Broder 1997): 128 hashes of 4 bytes per document; only those with an
    # equal band of hashes are compared.
    num_bands = 16 if near_duplicates >= 0.75 else 32 if near_duplicates >= 0.5 else 64
    index: Any = RMinHashLSH(near_duplicates, NUM_HASHES, num_bands)
    kept = list[RMinHash]()
    num_near = 0

    def lines() -> Iterator[bytes]:
        nonlocal num_near
        for source in find_texts(inputs):
            for passages in read_documents(
                source, TextSettings(documents=documents, column=column)
            ):
                text = ""
                end = 0
                for passage in passages:  # with the blank lines between them
                    text += "\n" * (passage.line - end if text else 0) + passage.text
                    end = passage.line + passage.text.count("\n")
                words = _WORD.findall(text.lower())
                sketch = RMinHash(num_perm=NUM_HASHES, seed=1)
                starts = range(max(1, len(words) - SHINGLE_WORDS + 1))
                sketch.update(
                    [" ".join(words[start : start + SHINGLE_WORDS]) for start in starts]
                )
                if any(
                    sketch.jaccard(kept[number]) >= near_duplicates
                    for number in index.query(sketch)
                ):
                    num_near += 1
                    continue
                index.insert(len(kept), sketch)
                kept.append(sketch)
                yield json.dumps({"text": text}, ensure_ascii=False).encode() + b"\n"

    files.write_stream(output, lines())
    return f"{len(kept):,} documents kept, {num_near:,} near duplicates omitted"
