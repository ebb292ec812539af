"""A corpus on disk, memory-mapped: tokens with the start of each sentence and document."""

from __future__ import annotations

import resource
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from shlex import quote
from typing import Self

from litebert.corpus.manifest import HELD_OUT, MANIFEST, PLAN, TOKENIZER, Manifest, ShardRecord, read_record
from litebert.corpus.pool import num_cores
from litebert.corpus.remote import fetch_shards
from litebert.corpus.shard import Shard, open_shard, verify_shard
from litebert.corpus.verified import VerifiedFiles
from litebert.errors import DamagedError, LitebertError, ResourceError
from litebert.tokenizer import Tokenizer

SPARE_FILES = 1_024


@dataclass(frozen=True)
class Corpus:
    """A finished corpus; see `Shard` for its arrays."""

    path: Path
    shards: tuple[Shard, ...]
    manifest: Manifest

    @classmethod
    def open(cls, path: str | Path, *, verify: bool = False) -> Self:
        """Map a corpus folder; hashes, offsets and ids are verified.

        Files that were verified before and have not changed since (by size, times and inode) are
        not read again, unless `verify` is set.

        Raises:
            LitebertError: LB-322, there is no finished corpus.
            DamagedError: A file is not as it was written.
            ResourceError: LB-331, the system allows too few open files.
        """
        path = Path(path)
        manifest = _read_manifest(path)
        return cls(path, _opened(path, manifest, manifest.shards, verify=verify), manifest)

    @classmethod
    def without_shards(cls, path: str | Path) -> Self:
        """Read only the manifest of a corpus; `open_shards` opens some of its shards."""
        return cls(Path(path), (), _read_manifest(Path(path)))

    def open_shards(self, numbers: Iterable[int]) -> tuple[Shard, ...]:
        """Map and verify some shards; those of a streamed corpus are fetched first."""
        records = [self.manifest.shards[number] for number in numbers]
        fetch_shards(self.path, records)
        return _opened(self.path, self.manifest, records)

    def held_out(self, *, verify: bool = False) -> Self | None:
        """Open the held-out part; None if the corpus was built without one."""
        if self.manifest.part == HELD_OUT or not self.manifest.plan.held_out:
            return None
        return self.open(self.path / HELD_OUT, verify=verify)

    @property
    def vocab_size(self) -> int:
        """The number of pieces in the vocabulary that made the ids."""
        return self.manifest.plan.vocab_size

    @property
    def tokenizer_hash(self) -> str:
        """The hash of the tokenizer that made the ids."""
        return self.manifest.plan.tokenizer_hash

    def tokenizer(self) -> Tokenizer:
        """Load the tokenizer that made the ids.

        Raises:
            DamagedError: LB-341, the copy in the corpus is another one, or is missing.
        """
        plan = self.manifest.plan
        try:
            tokenizer = Tokenizer.load(self.tokenizer_path)
        except LitebertError as error:
            raise _another_tokenizer(self, f"{error.what}: {error.received}") from error
        if tokenizer.hash != plan.tokenizer_hash:
            raise _another_tokenizer(self, f"hash {tokenizer.hash[:16]}…")
        return tokenizer

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


def _opened(
    path: Path, manifest: Manifest, records: Sequence[ShardRecord], *, verify: bool = False
) -> tuple[Shard, ...]:
    _allow_open_files(3 * len(records))
    plan, command = manifest.plan, manifest.plan.command(path)
    shards = tuple(open_shard(path, record, plan, command=command) for record in records)
    known = VerifiedFiles(path)
    unknown = [shard for shard in shards if verify or not all(map(known.has, shard.files))]
    with ThreadPoolExecutor(num_cores()) as threads:  # hashing releases the GIL
        check = partial(verify_shard, plan=plan, command=command)
        for _ in threads.map(check, unknown):
            pass
    known.remember(file for shard in unknown for file in shard.files)
    return shards


def _read_manifest(path: Path) -> Manifest:
    if not (path / MANIFEST).exists():
        is_unfinished = (path / PLAN).exists()
        raise LitebertError(
            "LB-322",
            f"{path} is not a finished corpus",
            received="a build that was stopped" if is_unfinished else f"no {MANIFEST}",
            expected="a folder made by litebert corpus build",
            next="rerun the command that began it to resume"
            if is_unfinished
            else f"litebert corpus build INPUT… --tokenizer TOKENIZER --output {quote(str(path))}",
        )
    command = f"rm -r {quote(str(path))}, then litebert corpus build INPUT… --output {quote(str(path))}"
    return read_record(path / MANIFEST, Manifest, command=command)


def _another_tokenizer(corpus: Corpus, received: str) -> DamagedError:
    return DamagedError(
        "LB-341",
        f"{corpus.tokenizer_path} is not the tokenizer that made this corpus",
        received=received,
        expected=f"hash {corpus.tokenizer_hash[:16]}…",
        next="restore the former tokenizer, or " + corpus.manifest.plan.command(corpus.path),
    )


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
