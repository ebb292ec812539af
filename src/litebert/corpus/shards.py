"""Shards on disk: the records of a corpus, how its arrays are written, and how they are
mapped and checked.

A corpus folder has `corpus.json`, shards with `shard.json` each and, during a build,
`build.json`.
"""

from array import array
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from hashlib import blake2b
from itertools import pairwise
from pathlib import Path
from shlex import quote
from typing import Annotated, Any, Literal, NamedTuple, Self, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray
from pydantic import (
    Field,
    SerializerFunctionWrapHandler,
    ValidationError,
    model_serializer,
)

from litebert.config import Section
from litebert.corpus.text import TextSettings
from litebert.errors import DamagedError, LitebertError
from litebert.files import Json, hash_file, read_json, staged_folder, write_json
from litebert.rng import Hashes, Ints
from litebert.settings import describe_invalid

MANIFEST = "corpus.json"
PLAN = "build.json"
SHARD = "shard.json"
SHARD_FILES = (SHARD, "tokens.npy", "sentences.npy", "documents.npy")
PARTS = "parts"
HELD_OUT = "held-out"
TOKENIZER = "tokenizer"
MANIFEST_BYTES = 256 << 20  # the largest record that is read
# Of a .npy file, before its numbers: numpy pads the header to a multiple of 64 bytes, in
# which there is room for any length.
HEADER_BYTES = 128
FLUSH_TOKENS = 1 << 16  # held in memory before they are written

Tokens = NDArray[np.uint16 | np.uint32]
Side: TypeAlias = Literal["train", "held-out"]
Wanted = TypeVar("Wanted", bound=Section)
Count = Annotated[int, Field(ge=0)]


# ---- records -------------------------------------------------------------------------


class Counts(Section):
    """The contents of a shard or a corpus, and how much was left out because it was
    empty.
    """

    documents: Count = 0
    sentences: Count = 0
    tokens: Count = 0
    unknown_tokens: Count = 0
    single_sentence_documents: Count = 0
    empty_documents: Count = 0
    empty_sentences: Count = 0

    def length(self, array: str) -> int:
        """Return the length of an array of a shard; those of sentences and documents
        also have the final end.
        """
        number = int(getattr(self, array))
        return number if array == "tokens" else number + 1

    def __add__(self, other: Self) -> Self:
        sums = {name: count + getattr(other, name) for name, count in self}
        return type(self)(**sums)

    def __sub__(self, other: Self) -> Self:
        differences = {name: count - getattr(other, name) for name, count in self}
        return type(self)(**differences)


class StoredFile(Section):
    """A file as it was written."""

    size: Count  # in bytes
    blake2b: str


class ShardRecord(Section):
    """A finished shard."""

    name: str = Field(pattern=r"^shard-\d{5,}-\d{4,}$")
    consumed: Count  # how many documents of the input had been read at its end
    counts: Counts
    files: dict[str, StoredFile]


class InputRecord(Section):
    """An input as it was found."""

    name: str
    size: int  # in bytes, as stored
    # where the parts of a large file begin, in bytes or row groups; none if it is whole
    starts: tuple[int, ...] = ()

    @model_serializer(mode="wrap")
    def _without_nothing(
        self, serialize: SerializerFunctionWrapHandler
    ) -> dict[str, Any]:
        """Leave `starts` out for a whole file, as before version 0.3."""
        record: dict[str, Any] = serialize(self)
        if not self.starts:
            del record["starts"]
        return record


class CorpusPlan(Section):
    """Everything that the bytes of a corpus depend on."""

    format: Literal[1] = 1
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
        """The dtype of each array of a shard."""
        # Little-endian, so that a corpus is the same bytes on every machine.
        tokens = "<u2" if self.vocab_size <= 65_536 else "<u4"
        return {"tokens": tokens, "sentences": "<i8", "documents": "<i8"}


class Manifest(Section):
    """A finished corpus, or its held-out part."""

    part: Side
    plan: CorpusPlan
    counts: Counts
    shards: tuple[ShardRecord, ...]


def sides_of(folder: Path, plan: CorpusPlan) -> dict[Side, Path]:
    """Return the folders of the corpus: of what is trained on, and of what is held
    out.
    """
    sides: dict[Side, Path] = {"train": folder}
    if plan.held_out:
        sides["held-out"] = folder / HELD_OUT
    return sides


def read_record(path: Path, model: type[Wanted]) -> Wanted:
    """Read and validate a record."""
    advice = (
        "delete the corpus that it belongs to, then rerun the command that built it"
    )
    value = read_json(path, command=advice, limit=MANIFEST_BYTES)
    try:
        return model.model_validate(value)
    except ValidationError as error:
        raise DamagedError(
            "LB-323",
            f"{path} is damaged or from another version",
            received=describe_invalid(error),
            next=advice,
        ) from error


def write_record(path: Path, record: Section) -> None:
    """Write a record, atomically."""
    write_json(path, record.model_dump(mode="json"))


def read_manifest(folder: Path) -> Manifest:
    """Read the manifest of a finished corpus."""
    if (folder / MANIFEST).exists():
        return read_record(folder / MANIFEST, Manifest)
    received = f"no {MANIFEST}"
    advice = (
        "litebert corpus build INPUT… --tokenizer TOKENIZER --output"
        f" {quote(str(folder))}"
    )
    if (folder / PLAN).exists():
        received = "a build that was stopped"
        advice = "rerun the command that began it to resume"
    raise LitebertError(
        "LB-322", f"{folder} is not a finished corpus", received=received, next=advice
    )


def build_again(folder: Path) -> str:
    """Return the advice to build a corpus again."""
    return (
        "litebert corpus build, with the inputs and settings in"
        f" {quote(str(folder / MANIFEST))}"
    )


def damaged(
    path: Path | str, *, received: str, expected: str = "", next: str
) -> DamagedError:
    """Return the error for a file of a corpus that is not what the build wrote."""
    return DamagedError(
        "LB-330",
        f"{path} is not what was written",
        received=received,
        expected=expected,
        next=next,
    )


# ---- writing -------------------------------------------------------------------------


class _ArrayFile:
    """An array that is written to a .npy file part by part; its length, which the
    header has, is known only at the end.
    """

    def __init__(self, path: Path, dtype: str) -> None:
        self.path = path
        self.dtype = dtype
        self.held = array("q")  # numbers that are not written yet
        self._file = open(path, "wb")  # noqa: SIM115
        self._file.write(bytes(HEADER_BYTES))  # the place of the header

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._file.close()

    def flush(self) -> None:
        """Write the numbers that are held."""
        self._file.write(np.array(self.held).astype(self.dtype).data)
        del self.held[:]

    def finish(self, length: int) -> StoredFile:
        """Write the header of an array of this length, and close the file."""
        header = {"descr": self.dtype, "fortran_order": False, "shape": (length,)}
        self._file.seek(0)
        np.lib.format.write_array_header_1_0(self._file, header)
        self._file.close()
        return StoredFile(size=self.path.stat().st_size, blake2b=hash_file(self.path))


class ShardWriter:
    """Stream documents into `shard-PART-0000`, 0001, …: the first one after
    `shard_tokens` tokens begins a new shard.

    A shard gets its name when it is complete; `shards` are the complete ones, including
    those of a killed build.
    """

    def __init__(
        self,
        folder: Path,
        part: str,
        plan: CorpusPlan,
        unknown_id: int,
        shards: Iterable[ShardRecord] = (),
    ) -> None:
        self._folder = folder
        self._part = part
        self._plan = plan
        self._unknown_id = unknown_id
        self.shards = list(shards)
        # since the last complete shard, by the names of `Counts`
        self.counts = Counter[str]()
        self._document = -1  # the number of the current document, in the input
        self._first_sentence = 0  # of the current document, in the shard
        # of the current shard, by name; none before its first sentence
        self._arrays: dict[str, _ArrayFile] = {}
        self._stack = ExitStack()  # closes the arrays of the shard, then its folder

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: Any) -> None:
        self._stack.__exit__(*error)  # removes a shard that is not complete

    @property
    def consumed(self) -> int:
        """How many documents of the input the complete shards account for; some may be
        on the other side.
        """
        return self.shards[-1].consumed if self.shards else 0

    @property
    def num_tokens(self) -> int:
        """How many tokens were added, including those of complete shards."""
        of_shards = sum(shard.counts.tokens for shard in self.shards)
        return of_shards + self.counts["tokens"]

    def add(self, document: int, sentences: Sequence[Sequence[int]]) -> None:
        """Append the sentences that are not empty to a document; document numbers only
        grow.
        """
        if document != self._document:
            self._end_document()
            self._document = document
            # Only here, so that no document is in two shards.
            if self._arrays and self.counts["tokens"] >= self._plan.shard_tokens:
                self._finish_shard(document)

        # A sentence may have no token: of control characters, for instance.
        kept = [ids for ids in sentences if ids]
        self.counts["empty_sentences"] += len(sentences) - len(kept)
        if not kept:
            return
        if not self._arrays:
            self._begin_shard()
        tokens = self._arrays["tokens"].held
        ends = self._arrays["sentences"].held
        end = self.counts["tokens"]  # of the last sentence, on the token axis
        for ids in kept:
            end += len(ids)
            tokens.extend(ids)
            ends.append(end)
        self.counts["tokens"] = end
        self.counts["sentences"] += len(kept)
        if len(tokens) >= FLUSH_TOKENS:
            self._flush()

    def finish(self, consumed: int) -> Counts:
        """Finish the last shard, after `consumed` documents of the input; return the
        counts of all shards.
        """
        self._end_document()
        if self._arrays:
            self._finish_shard(consumed)
        # Empty documents may follow the last shard: only these are in `self.counts`.
        return sum((shard.counts for shard in self.shards), Counts(**self.counts))

    @property
    def _name(self) -> str:
        """The name of the current shard."""
        return f"shard-{self._part}-{len(self.shards):04d}"

    def _begin_shard(self) -> None:
        staged = self._stack.enter_context(
            staged_folder(self._folder / self._name, known_files=SHARD_FILES)
        )
        for name, dtype in self._plan.dtypes.items():
            array_file = _ArrayFile(staged / f"{name}.npy", dtype)
            self._arrays[name] = self._stack.enter_context(array_file)
        # where the first sentence and the first document start
        self._arrays["sentences"].held.append(0)
        self._arrays["documents"].held.append(0)

    def _end_document(self) -> None:
        """Count the current document; if it has sentences, add its end, in sentences."""
        num_sentences = self.counts["sentences"] - self._first_sentence
        if num_sentences:
            self._first_sentence += num_sentences
            self._arrays["documents"].held.append(self._first_sentence)
            self.counts["documents"] += 1
            if num_sentences == 1:
                self.counts["single_sentence_documents"] += 1
        elif self._document >= 0:
            self.counts["empty_documents"] += 1
        self._document = -1

    def _flush(self) -> None:
        """Write what the arrays hold, and count its unknown tokens."""
        tokens = self._arrays["tokens"].held
        self.counts["unknown_tokens"] += tokens.count(self._unknown_id)
        for array_file in self._arrays.values():
            array_file.flush()

    def _finish_shard(self, consumed: int) -> None:
        """Write the record of the current shard, which gives the shard its name."""
        self._flush()
        counts = Counts(**self.counts)
        stored = dict[str, StoredFile]()
        for name, array_file in sorted(self._arrays.items()):
            stored[array_file.path.name] = array_file.finish(counts.length(name))
        record = ShardRecord(
            name=self._name, consumed=consumed, counts=counts, files=stored
        )
        staged = self._arrays["tokens"].path.parent
        write_record(staged / SHARD, record)
        self._stack.close()  # renames the folder, now that everything is in it
        self.shards.append(record)
        self.counts.clear()
        self._arrays = {}
        self._first_sentence = 0


# ---- mapping -------------------------------------------------------------------------


class Stamp(NamedTuple):
    """What the system says of a file; one of these changes whenever the file does."""

    size: int
    modified: int  # in nanoseconds
    changed: int
    inode: int

    @classmethod
    def of(cls, path: Path) -> "Stamp":
        status = path.stat()
        return cls(
            status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino
        )

    def changed_before(self, nanoseconds: int) -> bool:
        return max(self.modified, self.changed) < nanoseconds


class StampedFile:
    """A mapped file, which must not be read after it has changed.

    Reading beyond the end of a truncated file would kill the process (SIGBUS); other
    bytes would be trained on.
    """

    def __init__(self, path: Path, stored: StoredFile) -> None:
        self.path = path
        self.stored = stored
        self.stamp = Stamp.of(path)
        # the file is in a shard, and the shard in its corpus
        self.advice = build_again(path.parent.parent)

    @property
    def entry(self) -> Json:
        """Its entry in the list of verified files."""
        return [*self.stamp, self.stored.blake2b]

    def verify(self) -> None:
        """Read every byte, and compare the hash with that of the bytes that were
        written.
        """
        digest = hash_file(self.path)
        if digest != self.stored.blake2b:
            raise damaged(
                self.path,
                received=f"blake2b {digest[:16]}…",
                expected=f"blake2b {self.stored.blake2b[:16]}…",
                next=self.advice,
            )

    def require_unchanged(self) -> None:
        """Compare the stamp; if it differs, compare the content."""
        received = "other bytes"
        try:
            stamp = Stamp.of(self.path)
            if stamp == self.stamp:
                return
            # Touched, or copied over itself: the bytes may be the same.
            has_same_size = stamp.size == self.stored.size
            if has_same_size and hash_file(self.path) == self.stored.blake2b:
                self.stamp = stamp
                return
        except FileNotFoundError:
            received = "it was deleted"
        raise DamagedError(
            "LB-340",
            f"{self.path} changed while it was in use",
            received=received,
            next=self.advice,
        )


@dataclass(frozen=True)
class Shard:
    """One shard of a corpus; no sentence and no document is empty."""

    tokens: Tokens  # all ids, concatenated
    sentences: Ints  # (sentences + 1,): where each starts in `tokens`, and the total
    documents: Ints  # (documents + 1,): where each starts in `sentences`, and the total
    path: Path = Path()
    files: tuple[StampedFile, ...] = ()  # that the arrays are mapped from

    def require_unchanged(self) -> None:
        """Check that the files have not changed since they were mapped (LB-340); takes
        microseconds.
        """
        for file in self.files:
            file.require_unchanged()

    def between(self, start: int, stop: int) -> Tokens:
        """Return the tokens of sentences start, start + 1, ... stop - 1."""
        self.require_unchanged()
        # A copy, because the file may change once this has returned.
        return self.tokens[self.sentences[start] : self.sentences[stop]].copy()

    def hash_documents(self) -> Hashes:
        """Hash the tokens of each document, shape (documents,)."""
        # (documents + 1,): where each document starts on the token axis, and the end
        starts = self.sentences[self.documents]
        digests = bytearray()
        for start, stop in pairwise(starts.tolist()):
            content = self.tokens[start:stop].tobytes()  # ids, not text
            digests += blake2b(content, digest_size=8).digest()
        return np.frombuffer(bytes(digests), np.uint64)


def open_shard(folder: Path, record: ShardRecord, plan: CorpusPlan) -> Shard:
    """Map the files of a shard, which must have the sizes that were written."""
    path = folder / record.name
    arrays = list[NDArray[Any]]()
    files = list[StampedFile]()
    for name, dtype in plan.dtypes.items():
        length = record.counts.length(name)
        file = path / f"{name}.npy"
        # Known from the record, and compared before mapping: reading beyond the end of a
        # file would kill the process.
        size = HEADER_BYTES + length * np.dtype(dtype).itemsize
        stored = record.files.get(file.name)
        present = file.stat().st_size if file.is_file() else 0
        if stored is None or stored.size != size or present != size:
            received = f"{present:,} bytes" if present else "no such file"
            raise damaged(
                file,
                received=received,
                expected=f"{size:,} bytes",
                next=build_again(folder),
            )
        mapped = np.memmap(file, dtype, mode="r", offset=HEADER_BYTES, shape=(length,))
        # A plain array indexes faster than a memory map; nothing is copied.
        arrays.append(np.asarray(mapped))
        files.append(StampedFile(file, stored))
    return Shard(arrays[0], arrays[1], arrays[2], path, tuple(files))
