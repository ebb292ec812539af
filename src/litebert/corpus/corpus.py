"""A corpus on disk, memory-mapped: tokens with the start of each sentence and document, checked for damage.

Files that were verified are listed in the user's cache folder, so that opening a corpus again need not read them. A
file counts as verified while its size, times and inode are those that it had when it was hashed.
"""

from __future__ import annotations

import os
import resource
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from hashlib import blake2b
from pathlib import Path
from shlex import quote
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from litebert.corpus.manifest import (
    HELD_OUT,
    MANIFEST,
    PLAN,
    SHARD,
    TOKENIZER,
    CorpusPlan,
    Manifest,
    ShardRecord,
    StoredFile,
    read_record,
)
from litebert.corpus.pool import num_cores
from litebert.corpus.remote import cache_folder, fetch_shards
from litebert.corpus.write import HEADER_BYTES, npy_header
from litebert.errors import DamagedError, LitebertError, ResourceError
from litebert.files import Json, hash_file, read_json, write_json
from litebert.rng import Ints
from litebert.tokenizer import Tokenizer

Tokens = NDArray[np.uint16 | np.uint32]

RECENT_SECONDS = 2.0
"""A file changed this recently is not listed as verified: another change might not change its time."""
SPARE_FILES = 1_024
VERIFY_AT_ONCE = 1 << 20


class Stamp(NamedTuple):
    """Size, times and inode of a file: one of them changes whenever the file does."""

    size: int
    modified: int
    changed: int
    inode: int

    @classmethod
    def of(cls, path: Path) -> Stamp:
        """Read the stamp of a file."""
        found = path.stat()
        return cls(found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino)


class StampedFile:
    """A mapped file, which must not be read after it has changed.

    Reading beyond the end of a truncated file would kill the process (SIGBUS), and training on other bytes would go
    unnoticed.
    """

    def __init__(self, path: Path, stored: StoredFile, *, command: str) -> None:
        self.path, self.stored, self.stamp = path, stored, Stamp.of(path)
        self._command = command

    @property
    def entry(self) -> Json:
        """What the list of verified files says of it."""
        return [*self.stamp, self.stored.blake2b]

    def require_unchanged(self) -> None:
        """Compare the stamp; if it differs, compare the content."""
        try:
            now = Stamp.of(self.path)
        except FileNotFoundError:
            raise self._changed("it was deleted") from None
        if now == self.stamp:
            return
        if now.size != self.stored.size:
            raise self._changed(f"{now.size:,} bytes, {self.stored.size:,} before")
        if hash_file(self.path) != self.stored.blake2b:
            raise self._changed("other bytes")
        self.stamp = now

    def _changed(self, received: str) -> DamagedError:
        expected = "a corpus that stays as it was built"
        what = f"{self.path} changed while it was in use"
        return DamagedError("LB-340", what, received=received, expected=expected, next=self._command)


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


def open_shard(folder: Path, record: ShardRecord, plan: CorpusPlan, *, command: str) -> Shard:
    """Map the files of a shard; errors name `command`, which builds them again."""
    path, counts = folder / record.name, record.counts
    arrays, files = [], []
    for name, dtype, length, total in (
        ("tokens", plan.token_dtype, counts.tokens, None),
        ("sentences", "<i8", counts.sentences + 1, counts.tokens),
        ("documents", "<i8", counts.documents + 1, counts.sentences),
    ):
        place, whole = path / f"{name}.npy", HEADER_BYTES + length * np.dtype(dtype).itemsize
        if not place.is_file():
            raise DamagedError("LB-324", f"{place} is missing", expected=f"{whole:,} bytes", next=command)
        file = StampedFile(place, record.files.get(place.name, StoredFile(size=0, blake2b="")), command=command)
        if not file.stamp.size == file.stored.size == whole:
            raise DamagedError(
                "LB-325",
                f"{place} was cut off or replaced",
                received=f"{file.stamp.size:,} bytes",
                expected=f"{whole:,} bytes",
                next=command,
            )
        with place.open("rb") as opened:
            if opened.read(HEADER_BYTES) != npy_header(dtype, length):
                raise DamagedError(
                    "LB-326",
                    f"{place} is damaged in its first {HEADER_BYTES} bytes",
                    expected=f"the header of {length:,} numbers of type {dtype}",
                    next=command,
                )
        # A plain array indexes faster than a memory map; nothing is copied.
        array = np.asarray(np.memmap(place, dtype, mode="r", offset=HEADER_BYTES, shape=(length,)))
        if total is not None and (array[0] != 0 or array[-1] != total):
            raise DamagedError(
                "LB-327",
                f"{place} is damaged",
                received=f"offsets from {array[0]:,} to {array[-1]:,}",
                expected=f"offsets from 0 to {total:,}",
                next=command,
            )
        arrays.append(array)
        files.append(file)
    return Shard(arrays[0], arrays[1], arrays[2], path, tuple(files))


def verify_shard(shard: Shard, plan: CorpusPlan, *, command: str) -> None:
    """Read and check every byte of a shard's arrays: offsets, ids, then hashes."""
    for file, array in zip(shard.files, (shard.tokens, shard.sentences, shard.documents), strict=True):
        is_tokens = array is shard.tokens
        for start in range(0, len(array), VERIFY_AT_ONCE):
            block = array[start : start + VERIFY_AT_ONCE + 1]
            wrong = np.flatnonzero(block >= plan.vocab_size if is_tokens else block[1:] <= block[:-1])
            if not wrong.size:
                continue
            at = start + int(wrong[0]) + (not is_tokens)
            received = f"token {at:,} is {array[at]:,}"
            if not is_tokens:
                received = f"offset {at:,} is {array[at]:,}, after {array[at - 1]:,}"
            raise DamagedError(
                "LB-329" if is_tokens else "LB-328",
                f"{file.path} is damaged at byte {HEADER_BYTES + array.itemsize * at:,}",
                received=received,
                expected=f"ids below {plan.vocab_size:,}" if is_tokens else "offsets that grow",
                next=command,
            )
    for file in shard.files:
        if (found := hash_file(file.path)) != file.stored.blake2b:
            raise DamagedError(
                "LB-330",
                f"{file.path} is not what was written",
                received=f"blake2b {found[:16]}…",
                expected=f"blake2b {file.stored.blake2b[:16]}…",
                next=command,
            )


@dataclass(frozen=True)
class Corpus:
    """A finished corpus; see `Shard` for its arrays."""

    path: Path
    shards: tuple[Shard, ...]
    manifest: Manifest

    @classmethod
    def open(cls, path: str | Path, *, verify: bool = False) -> Self:
        """Map a corpus folder; hashes, offsets and ids are verified.

        Files that were verified before and have not changed since are not read again, unless `verify` is set.
        """
        corpus = cls.without_shards(path)
        return cls(corpus.path, corpus._opened(corpus.manifest.shards, verify=verify), corpus.manifest)

    @classmethod
    def without_shards(cls, path: str | Path) -> Self:
        """Read only the manifest of a corpus; `open_shards` opens some of its shards."""
        path = Path(path)
        folder = quote(str(path))
        if not (path / MANIFEST).exists():
            is_unfinished = (path / PLAN).exists()
            rebuild = f"litebert corpus build INPUT… --tokenizer TOKENIZER --output {folder}"
            raise LitebertError(
                "LB-322",
                f"{path} is not a finished corpus",
                received="a build that was stopped" if is_unfinished else f"no {MANIFEST}",
                expected="a folder made by litebert corpus build",
                next="rerun the command that began it to resume" if is_unfinished else rebuild,
            )
        command = f"rm -r {folder}, then litebert corpus build INPUT… --output {folder}"
        return cls(path, (), read_record(path / MANIFEST, Manifest, command=command))

    def open_shards(self, numbers: Iterable[int]) -> tuple[Shard, ...]:
        """Map and verify some shards; those of a streamed corpus are fetched first."""
        records = [self.manifest.shards[number] for number in numbers]
        fetch_shards(self.path, records)
        return self._opened(records)

    def _opened(self, records: Sequence[ShardRecord], *, verify: bool = False) -> tuple[Shard, ...]:
        _allow_open_files(3 * len(records))
        shards = tuple(open_shard(self.path, each, self.manifest.plan, command=self.command) for each in records)
        listing = cache_folder() / "verified" / f"{_name_of(self.path)}.json"
        known: dict[str, Json] = {}
        with suppress(LitebertError):  # none yet, or unusable: then nothing counts as verified
            known = read_json(listing, command=f"rm {listing}")
        unknown = [
            shard
            for shard in shards
            if verify or any(known.get(str(file.path.absolute())) != file.entry for file in shard.files)
        ]
        with ThreadPoolExecutor(num_cores()) as threads:  # hashing releases the GIL
            list(threads.map(partial(verify_shard, plan=self.manifest.plan, command=self.command), unknown))
        limit = time.time_ns() - int(RECENT_SECONDS * 1e9)
        added = {
            str(file.path.absolute()): file.entry
            for shard in unknown
            for file in shard.files
            if max(file.stamp.modified, file.stamp.changed) < limit
        }
        if added:
            with suppress(LitebertError):  # no writable cache folder: the next opening hashes again
                write_json(listing, known | added)
        return shards

    def held_out(self, *, verify: bool = False) -> Self | None:
        """Open the held-out part; None if the corpus was built without one."""
        if self.manifest.part == HELD_OUT or not self.manifest.plan.held_out:
            return None
        return self.open(self.path / HELD_OUT, verify=verify)

    def verify_records(self) -> Iterator[Path]:
        """Check the files beside the arrays: each shard's record and the tokenizer's; yield them."""
        for record in self.manifest.shards:
            path = self.path / record.name / SHARD
            if not path.is_file() or read_record(path, ShardRecord, command=self.command) != record:
                raise self._not_written(path)
            yield path
        with tempfile.TemporaryDirectory() as folder:
            self.tokenizer().save(folder)
            for written in sorted(Path(folder).iterdir()):
                path = self.tokenizer_path / written.name
                if not path.is_file() or path.read_bytes() != written.read_bytes():
                    raise self._not_written(path)
                yield path

    def _not_written(self, path: Path) -> DamagedError:
        received = "another file" if path.is_file() else "no such file"
        expected = "the file that corpus build wrote"
        what = f"{path} is not what was written"
        return DamagedError("LB-330", what, received=received, expected=expected, next=self.command)

    def tokenizer(self) -> Tokenizer:
        """Load the tokenizer that made the ids; LB-341 if the copy in the corpus is another one, or is missing."""
        try:
            tokenizer = Tokenizer.load(self.tokenizer_path)
            found = f"hash {tokenizer.hash[:16]}…"
        except LitebertError as error:
            tokenizer, found = None, f"{error.what}: {error.received}"
        if tokenizer is None or tokenizer.hash != self.tokenizer_hash:
            raise DamagedError(
                "LB-341",
                f"{self.tokenizer_path} is not the tokenizer that made this corpus",
                received=found,
                expected=f"hash {self.tokenizer_hash[:16]}…",
                next=f"restore the former tokenizer, or {self.command}",
            )
        return tokenizer

    @property
    def command(self) -> str:
        """The command that builds this corpus again."""
        return self.manifest.plan.command(self.path)

    @property
    def vocab_size(self) -> int:
        """The number of pieces in the vocabulary that made the ids."""
        return self.manifest.plan.vocab_size

    @property
    def tokenizer_hash(self) -> str:
        """The hash of the tokenizer that made the ids."""
        return self.manifest.plan.tokenizer_hash

    @property
    def tokenizer_path(self) -> Path:
        """The folder of the corpus's copy of the tokenizer."""
        return self.path / TOKENIZER

    @property
    def num_tokens(self) -> int:
        """The number of tokens in all shards."""
        return self.manifest.counts.tokens

    @property
    def num_sentences(self) -> int:
        """The number of sentences in all shards."""
        return self.manifest.counts.sentences

    @property
    def num_documents(self) -> int:
        """The number of documents in all shards."""
        return self.manifest.counts.documents


def _name_of(corpus: Path) -> str:
    return blake2b(os.fsencode(corpus.absolute()), digest_size=16).hexdigest()


def _allow_open_files(num_mapped: int) -> None:
    """Raise this process's soft limit on open files if needed: a mapped file stays open."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = num_mapped + SPARE_FILES
    if soft != resource.RLIM_INFINITY and wanted > soft:
        if hard != resource.RLIM_INFINITY and wanted > hard:
            raise ResourceError(
                "LB-331",
                "the corpus has more files than may be open at once",
                received=f"{num_mapped:,} files, {hard:,} allowed",
                expected="a limit above the number of files",
                next=f"ulimit -Hn {wanted}, or build again from fewer and larger inputs",
            )
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
