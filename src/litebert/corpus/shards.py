"""A shard on disk: the records of a corpus, the arrays that are written, and the same arrays mapped and checked.

A corpus folder has `corpus.json`, shards with `shard.json` each and, during a build, `build.json`.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from hashlib import blake2b
from itertools import chain, pairwise
from pathlib import Path
from shlex import quote
from typing import Annotated, Literal, Self, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, ValidationError

from litebert.config import Section, refused
from litebert.corpus.text import TextSettings
from litebert.errors import DamagedError
from litebert.files import Json, hash_file, read_json, staged_folder, write_json
from litebert.rng import Hashes, Ints

FORMAT: Literal[1] = 1
MANIFEST, PLAN, SHARD, PARTS = "corpus.json", "build.json", "shard.json", "parts"
HELD_OUT, TOKENIZER = "held-out", "tokenizer"
MANIFEST_BYTES = 256 << 20  # the most that is read of a record
HEADER_BYTES = 128  # of a .npy file, in front of its numbers
FLUSH_TOKENS = 1 << 16  # that a shard holds before it writes them

Tokens = NDArray[np.uint16 | np.uint32]
Ids = Sequence[int]
Side: TypeAlias = Literal["train", "held-out"]
Wanted = TypeVar("Wanted", bound=Section)
Count = Annotated[int, Field(ge=0)]


# ---- records --------------------------------------------------------------------------------------------------------


class Counts(Section):
    """The contents of a shard or a corpus in numbers, and what was left out of it."""

    documents: Count = 0
    sentences: Count = 0
    tokens: Count = 0
    unknown_tokens: Count = 0
    single_sentence_documents: Count = 0
    empty_documents: Count = 0
    empty_sentences: Count = 0

    def length(self, array: str) -> int:
        """The length of an array of a shard, of which sentences and documents have their end, too."""
        return int(getattr(self, array)) + (array != "tokens")

    def __add__(self, other: Self) -> Self:
        return type(self)(**{name: value + getattr(other, name) for name, value in self})

    def __sub__(self, other: Self) -> Self:
        return type(self)(**{name: value - getattr(other, name) for name, value in self})


class StoredFile(Section):
    """The size of a file in bytes, and its blake2b-256."""

    size: Count
    blake2b: str


class ShardRecord(Section):
    """A finished shard; `consumed` is the number of input documents read until its end."""

    name: str = Field(pattern=r"^shard-\d{5,}-\d{4,}$")
    consumed: Count
    counts: Counts
    files: dict[str, StoredFile]


class InputRecord(Section):
    """The name of an input, and its size in bytes as stored."""

    name: str
    size: int


class CorpusPlan(Section):
    """Everything that the bytes of a corpus depend on."""

    format: Literal[1] = FORMAT
    tokenizer_hash: str
    vocab_size: int
    sentences: str
    documents: str
    column: str
    language: str
    held_out: float
    shard_tokens: int
    inputs: tuple[InputRecord, ...]

    @property
    def text(self) -> TextSettings:
        """Where documents and sentences end."""
        return TextSettings(self.sentences, self.documents, self.column, self.language)

    @property
    def dtypes(self) -> dict[str, str]:
        """The dtype of each array of a shard; that of token ids has 16 bits if they fit."""
        return {"tokens": "<u2" if self.vocab_size <= 65_536 else "<u4", "sentences": "<i8", "documents": "<i8"}


class Manifest(Section):
    """A finished corpus, or its held-out part."""

    part: Side
    plan: CorpusPlan
    counts: Counts
    shards: tuple[ShardRecord, ...]


def joined(manifests: Sequence[Manifest], plan: CorpusPlan) -> Manifest:
    """Return the manifest of the shards of all manifests, in order."""
    shards = tuple(shard for manifest in manifests for shard in manifest.shards)
    counts = sum((manifest.counts for manifest in manifests), Counts())
    return Manifest(part=manifests[0].part, plan=plan, counts=counts, shards=shards)


def read_record(path: Path, model: type[Wanted]) -> Wanted:
    """Read one of these files."""
    advice = "delete the corpus that it belongs to, then rerun the command that built it"
    value = read_json(path, command=advice, limit=MANIFEST_BYTES)
    try:
        return model.model_validate(value)
    except ValidationError as error:
        what, expected = f"{path} is damaged or of another version", f"what litebert writes in format {FORMAT}"
        raise DamagedError("LB-323", what, received=refused(error), expected=expected, next=advice) from error


def write_record(path: Path, record: Section) -> None:
    """Write one of these files, atomically."""
    write_json(path, record.model_dump(mode="json"))


def build_again(folder: Path) -> str:
    """Return the advice to build a corpus again."""
    return f"litebert corpus build, with the inputs and settings in {quote(str(folder / MANIFEST))}"


def damaged(path: Path | str, *, received: str, expected: str = "", next: str) -> DamagedError:
    """Return the error for a file of a corpus that is not what the build wrote."""
    return DamagedError("LB-330", f"{path} is not what was written", received=received, expected=expected, next=next)


# ---- written --------------------------------------------------------------------------------------------------------


class ShardWriter:
    """Stream the documents of one shard into a folder that gets its name, `path`, when it is complete."""

    def __init__(self, path: Path, plan: CorpusPlan, unknown_id: int) -> None:
        self._path, self._unknown_id = path, unknown_id
        self.num_tokens = self._num_sentences = self._num_documents = 0
        self._num_unknown = self._num_single = 0  # unknown tokens, documents of one sentence
        self._start = 0  # the first sentence of the current document
        self._held, self._num_held = list[Ids](), 0  # sentences that are not written yet, and their tokens
        self.stack = ExitStack()  # of the folder and, within it, of its open files
        self._folder = self.stack.enter_context(staged_folder(path))
        self._files = {}
        for name, dtype in plan.dtypes.items():
            # The header, with the length that nobody knows yet (numpy's `open_memmap` must be told), comes last.
            file = open(self._folder / f"{name}.npy", "wb")  # noqa: SIM115
            self.stack.callback(file.close)
            file.write(bytes(HEADER_BYTES if name == "tokens" else HEADER_BYTES + 8))  # the others begin with a 0
            self._files[name] = file, dtype

    def _write(self, name: str, values: Ints) -> None:
        file, dtype = self._files[name]
        file.write(values.astype(dtype).data)

    def append(self, sentences: Sequence[Ids]) -> None:
        """Add sentences, none of them empty, to the current document."""
        size = sum(map(len, sentences))
        self._held.extend(sentences)
        self._num_held += size
        self.num_tokens += size
        self._num_sentences += len(sentences)
        if self._num_held >= FLUSH_TOKENS:
            self._flush()

    def _flush(self) -> None:
        lengths = np.fromiter(map(len, self._held), np.int64, len(self._held))
        ids = np.fromiter(chain.from_iterable(self._held), np.int64, self._num_held)
        self._write("sentences", self.num_tokens - self._num_held + np.cumsum(lengths))
        self._write("tokens", ids)
        self._num_unknown += int(np.count_nonzero(ids == self._unknown_id))
        self._held, self._num_held = [], 0

    def end_document(self) -> bool:
        """End the current document, so that the next sentence starts another one; tell whether it has sentences."""
        if self._start == self._num_sentences:
            return False
        self._write("documents", np.array([self._num_sentences]))
        self._num_documents += 1
        self._num_single += self._num_sentences - self._start == 1
        self._start = self._num_sentences
        return True

    def finish(self, consumed: int, left_out: Counts) -> ShardRecord:
        """Give the shard its final name; `left_out` counts what only the caller knows."""
        self._flush()
        counts = left_out + Counts(
            documents=self._num_documents,
            sentences=self._num_sentences,
            tokens=self.num_tokens,
            unknown_tokens=self._num_unknown,
            single_sentence_documents=self._num_single,
        )
        stored = {}
        for name, (file, dtype) in sorted(self._files.items()):
            file.seek(0)
            described = {"descr": dtype, "fortran_order": False, "shape": (counts.length(name),)}
            np.lib.format.write_array_header_1_0(file, described)
            file.close()
            path = Path(file.name)
            stored[path.name] = StoredFile(size=path.stat().st_size, blake2b=hash_file(path))
        record = ShardRecord(name=self._path.name, consumed=consumed, counts=counts, files=stored)
        write_record(self._folder / SHARD, record)
        self.stack.close()
        return record


# ---- mapped ---------------------------------------------------------------------------------------------------------


def _stamp(path: Path) -> tuple[int, int, int, int]:
    """Return size, times and inode of a file: one of them changes whenever the file does."""
    found = path.stat()
    return found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino


@dataclass
class StampedFile:
    """A mapped file, which must not be read after it has changed.

    Reading beyond the end of a truncated file would kill the process (SIGBUS), and training on other bytes would go
    unnoticed.
    """

    path: Path
    stored: StoredFile
    stamp: tuple[int, int, int, int] = field(init=False)

    def __post_init__(self) -> None:
        self.stamp = _stamp(self.path)

    def verify(self) -> None:
        """Read every byte, and compare the hash with that of what was written."""
        if (found := hash_file(self.path)) != self.stored.blake2b:
            expected = f"blake2b {self.stored.blake2b[:16]}…"
            raise damaged(self.path, received=f"blake2b {found[:16]}…", expected=expected, next=self.advice)

    @property
    def advice(self) -> str:
        """What to do about damage: the file is in a shard, and the shard in its corpus."""
        return build_again(self.path.parent.parent)

    @property
    def entry(self) -> Json:
        """What the list of verified files says of it."""
        return [*self.stamp, self.stored.blake2b]

    def require_unchanged(self) -> None:
        """Compare the stamp; if it differs, compare the content."""
        received = ""
        try:
            now = _stamp(self.path)
            if now == self.stamp:
                return
            if now[0] != self.stored.size:
                received = f"{now[0]:,} bytes, {self.stored.size:,} before"
            elif hash_file(self.path) != self.stored.blake2b:
                received = "other bytes"
        except FileNotFoundError:
            received = "it was deleted"
        if received:
            what = f"{self.path} changed while it was in use"
            raise DamagedError("LB-340", what, received=received, next=self.advice)
        self.stamp = now


@dataclass(frozen=True)
class Shard:
    """One shard of a corpus; no sentence and no document is empty.

    `tokens` has all ids end to end; `sentences` (n + 1,) is where each sentence starts in `tokens`, `documents`
    (m + 1,) where each document starts in `sentences`; the last entry of each is the total. `files` are those that
    the arrays are mapped from.
    """

    tokens: Tokens
    sentences: Ints
    documents: Ints
    path: Path = Path()
    files: tuple[StampedFile, ...] = ()

    def require_unchanged(self) -> None:
        """Check that the files have not changed since they were mapped (LB-340); takes microseconds."""
        for file in self.files:
            file.require_unchanged()

    def between(self, start: int, stop: int) -> Tokens:
        """Return the tokens of sentences start, start + 1, ... stop - 1."""
        self.require_unchanged()
        return self.tokens[self.sentences[start] : self.sentences[stop]].copy()


def open_shard(folder: Path, record: ShardRecord, plan: CorpusPlan) -> Shard:
    """Map the files of a shard, which have the sizes that were written."""
    path, arrays, files = folder / record.name, [], []
    for name, dtype in plan.dtypes.items():
        length = record.counts.length(name)
        place, size = path / f"{name}.npy", HEADER_BYTES + length * np.dtype(dtype).itemsize
        stored = record.files.get(place.name)
        found = place.stat().st_size if place.is_file() else 0
        if stored is None or not found == stored.size == size:
            received = f"{found:,} bytes" if found else "no such file"
            raise damaged(place, received=received, expected=f"{size:,} bytes", next=build_again(folder))
        # A plain array indexes faster than a memory map; nothing is copied.
        arrays.append(np.asarray(np.memmap(place, dtype, mode="r", offset=HEADER_BYTES, shape=(length,))))
        files.append(StampedFile(place, stored))
    return Shard(arrays[0], arrays[1], arrays[2], path, tuple(files))


def hash_runs(tokens: Tokens, starts: Ints) -> Hashes:
    """Hash every run of tokens from one start to the next, shape (starts - 1,)."""
    runs = (tokens[start:stop].tobytes() for start, stop in pairwise(starts.tolist()))
    return np.frombuffer(b"".join(blake2b(run, digest_size=8).digest() for run in runs), np.uint64)
