"""Map a shard from disk, and check it for damage."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from litebert.corpus.manifest import CorpusPlan, ShardRecord, StoredFile
from litebert.corpus.npy import HEADER_BYTES, map_array
from litebert.corpus.verified import Stamp, StampedFile
from litebert.errors import DamagedError
from litebert.files import hash_file
from litebert.rng import Ints

VERIFY_AT_ONCE = 1 << 20

Tokens = NDArray[np.uint16 | np.uint32]
Number = TypeVar("Number", bound=np.integer)


@dataclass(frozen=True)
class Shard:
    """One shard, mapped from disk; no sentence and no document is empty.

    `tokens` has all ids end to end; `sentences` (n + 1,) is where each sentence starts in `tokens`,
    `documents` (m + 1,) where each document starts in `sentences`; the last entry of each is the
    total.
    """

    tokens: Tokens
    sentences: Ints
    documents: Ints
    path: Path = Path()
    files: tuple[StampedFile, ...] = ()

    def between(self, start: int, stop: int) -> Tokens:
        """Return the tokens of sentences start, start + 1, ... stop - 1."""
        self.require_unchanged()
        return self.tokens[self.sentences[start] : self.sentences[stop]].copy()

    def require_unchanged(self) -> None:
        """Check that the files have not changed since they were mapped; takes microseconds.

        Raises:
            DamagedError: LB-340, they have.
        """
        for file in self.files:
            file.require_unchanged()


def open_shard(folder: Path, record: ShardRecord, plan: CorpusPlan, *, command: str) -> Shard:
    """Map the files of a shard; errors name `command`, which builds them again.

    Raises:
        DamagedError: LB-324 to LB-327, a file is missing or of another size or type, or its first
            and last offsets do not fit.
    """
    path, counts = folder / record.name, record.counts
    files = tuple(_stored_file(record, path / f"{name}.npy", command) for name in ("tokens", "sentences", "documents"))
    tokens = _map(files[0], plan.token_dtype, counts.tokens, command)
    sentences = _map(files[1], "<i8", counts.sentences + 1, command)
    documents = _map(files[2], "<i8", counts.documents + 1, command)
    for name, offsets, total in (
        ("sentences.npy", sentences, counts.tokens),
        ("documents.npy", documents, counts.sentences),
    ):
        if offsets[0] != 0 or offsets[-1] != total:
            raise DamagedError(
                "LB-327",
                f"{path / name} is damaged",
                received=f"offsets from {offsets[0]:,} to {offsets[-1]:,}",
                expected=f"offsets from 0 to {total:,}",
                next=command,
            )
    # plain arrays index faster than memory maps; nothing is copied
    arrays = (np.asarray(cast(Tokens, tokens)), np.asarray(sentences, np.int64), np.asarray(documents, np.int64))
    return Shard(*arrays, path, files)


def verify_shard(shard: Shard, plan: CorpusPlan, *, command: str) -> None:
    """Read and check every byte of a shard.

    Raises:
        DamagedError: LB-328, offsets do not grow; LB-329, an id is outside the vocabulary; LB-330,
            a hash differs.
    """
    for name, offsets in (("sentences", shard.sentences), ("documents", shard.documents)):
        _verify_growth(shard.path / f"{name}.npy", offsets, command)
    _verify_ids(shard.path / "tokens.npy", shard.tokens, plan.vocab_size, command)
    for file in shard.files:
        if (found := hash_file(file.path)) != file.stored.blake2b:
            raise DamagedError(
                "LB-330",
                f"{file.path} is not what was written",
                received=f"blake2b {found[:16]}…",
                expected=f"blake2b {file.stored.blake2b[:16]}…",
                next=command,
            )


def _stored_file(record: ShardRecord, path: Path, command: str) -> StampedFile:
    stored = record.files.get(path.name, StoredFile(size=0, blake2b=""))
    if not path.is_file():
        raise DamagedError(
            "LB-324", f"{path} is missing", received="no such file", expected=f"{stored.size:,} bytes", next=command
        )
    return StampedFile(path, stored, Stamp.of(path), command=command)


def _map(file: StampedFile, dtype: str, length: int, command: str) -> NDArray[np.integer]:
    path, found = file.path, file.stamp.size
    whole = HEADER_BYTES + length * np.dtype(dtype).itemsize
    if found != file.stored.size or found != whole:
        raise DamagedError(
            "LB-325",
            f"{path} was cut off or replaced",
            received=f"{found:,} bytes",
            expected=f"{whole:,} bytes",
            next=command,
        )
    array = map_array(path, dtype, length)
    if array is None:
        raise DamagedError(
            "LB-326",
            f"{path} is damaged in its first {HEADER_BYTES} bytes",
            received="another header",
            expected=f"the header of {length:,} numbers of type {dtype}",
            next=command,
        )
    return array


def _verify_growth(path: Path, offsets: Ints, command: str) -> None:
    for start, block in _blocks(offsets, overlap=1):
        if (wrong := np.flatnonzero(block[1:] <= block[:-1])).size:
            at = start + int(wrong[0]) + 1
            raise DamagedError(
                "LB-328",
                f"{path} is damaged at byte {HEADER_BYTES + 8 * at:,}",
                received=f"offset {at:,} is {offsets[at]:,}, after {offsets[at - 1]:,}",
                expected="offsets that grow",
                next=command,
            )


def _verify_ids(path: Path, tokens: Tokens, vocab_size: int, command: str) -> None:
    for start, block in _blocks(tokens, overlap=0):
        if (wrong := np.flatnonzero(block >= vocab_size)).size:
            at = start + int(wrong[0])
            raise DamagedError(
                "LB-329",
                f"{path} is damaged at byte {HEADER_BYTES + tokens.itemsize * at:,}",
                received=f"token {at:,} is {tokens[at]:,}",
                expected=f"ids below {vocab_size:,}",
                next=command,
            )


def _blocks(values: NDArray[Number], *, overlap: int) -> Iterator[tuple[int, NDArray[Number]]]:
    for start in range(0, len(values), VERIFY_AT_ONCE):
        yield start, values[start : start + VERIFY_AT_ONCE + overlap]
