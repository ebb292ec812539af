"""A corpus that is opened: its shards, mapped and checked for damage, its tokenizer, what it holds out.

Files that were verified are listed in the user's cache folder, so that opening a corpus again need not read them. A
file counts as verified while its size, times and inode are those that it had when it was hashed.
"""

from __future__ import annotations

import os
import resource
import tempfile
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from shlex import quote
from typing import Self

from litebert.corpus.remote import cache_folder, fetch_shards
from litebert.corpus.shards import (
    HELD_OUT,
    MANIFEST,
    PLAN,
    SHARD,
    TOKENIZER,
    Manifest,
    Shard,
    ShardRecord,
    StampedFile,
    build_again,
    damaged,
    open_shard,
    read_record,
)
from litebert.errors import DamagedError, LitebertError
from litebert.files import Json, read_json, write_json
from litebert.tokenizer import Tokenizer

RECENT_SECONDS = 2.0  # a file changed this recently is not listed as verified: another change might not change its time
SPARE_FILES = 1_024  # that may be open besides those of corpora


def num_cores() -> int:
    """Return the number of processor cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@dataclass(frozen=True)
class Corpus:
    """A finished corpus; see `Shard` for its arrays."""

    path: Path
    shards: tuple[Shard, ...]
    manifest: Manifest

    @classmethod
    def open(cls, path: str | Path, *, verify: bool = False) -> Self:
        """Map a corpus folder; every file is verified by its hash.

        Files that were verified before and have not changed since are not read again, unless `verify` is set.
        """
        corpus = cls.without_shards(path)
        shards = corpus.open_shards(range(len(corpus.manifest.shards)), verify=verify)
        return cls(corpus.path, shards, corpus.manifest)

    @classmethod
    def without_shards(cls, path: str | Path) -> Self:
        """Read only the manifest of a corpus; `open_shards` opens some of its shards."""
        path = Path(path)
        build = f"litebert corpus build INPUT… --tokenizer TOKENIZER --output {quote(str(path))}"
        if not (path / MANIFEST).exists():
            is_begun = (path / PLAN).exists()
            raise LitebertError(
                "LB-322",
                f"{path} is not a finished corpus",
                received="a build that was stopped" if is_begun else f"no {MANIFEST}",
                next="rerun the command that began it to resume" if is_begun else build,
            )
        return cls(path, (), read_record(path / MANIFEST, Manifest))

    def open_shards(self, numbers: Iterable[int], *, windows: int = 1, verify: bool = False) -> tuple[Shard, ...]:
        """Map and verify some shards; a streamed corpus fetches them, with room in the cache for `windows` as many."""
        records = [self.manifest.shards[number] for number in numbers]
        fetch_shards(self.path, records, windows=windows)
        # A mapped file stays open: raise the soft limit of this process, as far as the hard one allows.
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        wanted = 3 * len(records) + SPARE_FILES
        wanted = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        if soft != resource.RLIM_INFINITY and soft < wanted:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        shards = tuple(open_shard(self.path, each, self.manifest.plan) for each in records)
        name = blake2b(os.fsencode(self.path.absolute()), digest_size=16).hexdigest()
        listing = cache_folder() / "verified" / f"{name}.json"
        known: dict[str, Json] = {}
        with suppress(LitebertError):  # none yet, or unusable: then nothing counts as verified
            known = read_json(listing, command=f"rm {listing}")
        files = {str(file.path.absolute()): file for shard in shards for file in shard.files}
        unknown = {name: file for name, file in files.items() if verify or known.get(name) != file.entry}
        with ThreadPoolExecutor(num_cores()) as threads:  # hashing releases the GIL
            list(threads.map(StampedFile.verify, unknown.values()))
        limit = time.time_ns() - int(RECENT_SECONDS * 1e9)
        added = {name: file.entry for name, file in unknown.items() if max(file.stamp[1:3]) < limit}
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
        with tempfile.TemporaryDirectory() as folder:
            self.tokenizer().save(folder)
            written = {self.path / TOKENIZER / path.name: path.read_bytes() for path in sorted(Path(folder).iterdir())}
        shards = {self.path / record.name / SHARD: record for record in self.manifest.shards}
        for path in (*shards, *written):
            is_file = path.is_file()
            is_same = is_file and (
                read_record(path, ShardRecord) == shards[path] if path in shards else path.read_bytes() == written[path]
            )
            if not is_same:
                raise damaged(path, received="another file, or none", next=build_again(self.path))
            yield path

    def tokenizer(self) -> Tokenizer:
        """Load the tokenizer that made the ids; LB-341 if the copy in the corpus is another one, or is missing."""
        path = self.path / TOKENIZER
        try:
            tokenizer = Tokenizer.load(path)
            found = f"hash {tokenizer.hash[:16]}…"
        except LitebertError as error:
            tokenizer, found = None, f"{error.what}: {error.received}"
        if tokenizer is None or tokenizer.hash != self.tokenizer_hash:
            raise DamagedError(
                "LB-341",
                f"{path} is not the tokenizer that made this corpus",
                received=found,
                expected=f"hash {self.tokenizer_hash[:16]}…",
                next=f"restore the former tokenizer, or {build_again(self.path)}",
            )
        return tokenizer

    @property
    def tokenizer_hash(self) -> str:
        """The hash of the tokenizer that made the ids."""
        return self.manifest.plan.tokenizer_hash

    @property
    def num_tokens(self) -> int:
        """The number of tokens in all shards."""
        return self.manifest.counts.tokens

    @property
    def num_documents(self) -> int:
        """The number of documents in all shards."""
        return self.manifest.counts.documents
