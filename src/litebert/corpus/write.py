"""Shards being written: arrays in blocks, shards that get their name when complete, and the shards of one part."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from itertools import chain
from pathlib import Path
from shlex import quote
from types import TracebackType
from typing import Self

import numpy as np
from numpy.typing import NDArray

from litebert.corpus.manifest import SHARD, Counts, ShardRecord, StoredFile, read_record, write_record
from litebert.files import hash_file, staged_folder

HEADER_BYTES = 128
FLUSH_TOKENS = 1 << 16

Ids = Sequence[int]


def npy_header(dtype: str, length: int) -> bytes:
    """Return the .npy header of format 1.0 for `length` values: always 128 bytes, so that it can be filled in last.

    >>> len(npy_header("<u2", 0)) == len(npy_header("<i8", 10**18)) == HEADER_BYTES
    True
    """
    text = f"{{'descr': '{dtype}', 'fortran_order': False, 'shape': ({length},), }}"
    start = b"\x93NUMPY\x01\x00" + (HEADER_BYTES - 10).to_bytes(2, "little")
    return start + text.encode().ljust(HEADER_BYTES - 11) + b"\n"


class ArrayWriter:
    """Append to a new .npy file, whose length nobody knows yet (numpy's `open_memmap` must be told).

    Use it in a staged folder, so that an unfinished file is never found.
    """

    def __init__(self, path: Path, dtype: str) -> None:
        self.length = 0
        self._dtype = dtype
        self._file = open(path, "wb")  # noqa: SIM115  closed by __exit__
        self._file.write(npy_header(dtype, 0))

    def append(self, values: NDArray[np.integer]) -> None:
        """Append values, cast to the dtype of the file."""
        self._file.write(values.astype(self._dtype).data)
        self.length += len(values)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        with self._file:
            if kind is None:
                self._file.seek(0)
                self._file.write(npy_header(self._dtype, self.length))


class ShardWriter:
    """Stream the documents of one shard into a folder that gets its name, `path`, when it is complete."""

    def __init__(self, path: Path, dtype: str, unknown_id: int) -> None:
        self.num_tokens = self._num_unknown = self._num_sentences = self._num_documents = 0
        self._path, self._unknown_id = path, unknown_id
        self._held: list[Ids] = []
        self._held_tokens = 0
        self._stack, self._open_arrays = ExitStack(), ExitStack()
        self._folder = self._stack.enter_context(staged_folder(path))
        self._stack.push(self._open_arrays)
        self._tokens, self._sentences, self._documents = (
            self._open_arrays.enter_context(ArrayWriter(self._folder / f"{name}.npy", kind))
            for name, kind in (("tokens", dtype), ("sentences", "<i8"), ("documents", "<i8"))
        )
        self._sentences.append(np.zeros(1, np.int64))
        self._documents.append(np.zeros(1, np.int64))

    def append(self, sentences: Sequence[Ids]) -> None:
        """Add sentences, none of them empty, to the current document."""
        num_tokens = sum(map(len, sentences))
        self._held.extend(sentences)
        self._held_tokens += num_tokens
        self.num_tokens += num_tokens
        self._num_sentences += len(sentences)
        if self._held_tokens >= FLUSH_TOKENS:
            self._flush()

    def end_document(self) -> None:
        """End the current document: the next sentence starts another one."""
        self._documents.append(np.array([self._num_sentences]))
        self._num_documents += 1

    def finish(self, consumed: int, counts: Counts) -> ShardRecord:
        """Give the shard its final name; `counts` are those that only the caller knows."""
        self._flush()
        self._open_arrays.close()
        counts += Counts(
            documents=self._num_documents,
            sentences=self._num_sentences,
            tokens=self.num_tokens,
            unknown_tokens=self._num_unknown,
        )
        stored = {
            path.name: StoredFile(size=path.stat().st_size, blake2b=hash_file(path))
            for path in sorted(self._folder.glob("*.npy"))
        }
        record = ShardRecord(name=self._path.name, consumed=consumed, counts=counts, files=stored)
        write_record(self._folder / SHARD, record)
        self._stack.close()
        return record

    def abandon(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Remove the unfinished shard after an error."""
        self._stack.__exit__(kind, error, trace)

    def _flush(self) -> None:
        lengths = np.fromiter(map(len, self._held), np.int64, len(self._held))
        ids = np.fromiter(chain.from_iterable(self._held), np.int64, self._held_tokens)
        self._sentences.append(self._tokens.length + np.cumsum(lengths))
        self._tokens.append(ids)
        self._num_unknown += int(np.count_nonzero(ids == self._unknown_id))
        self._held, self._held_tokens = [], 0


class ShardSeries:
    """Write the shards IIIII-JJJJ of part IIIII one after the other, resuming after the last complete one.

    The first document after `shard_tokens` tokens begins a new shard. Shards of an earlier, killed build are kept:
    the first `consumed` documents must not be added again.
    """

    def __init__(self, folder: Path, part: int, *, dtype: str, unknown_id: int, shard_tokens: int) -> None:
        self._folder, self._part, self._shard_tokens = folder, part, shard_tokens
        self._dtype, self._unknown_id = dtype, unknown_id
        self.shards: list[ShardRecord] = []
        while (path := self._next_path() / SHARD).exists():
            command = f"rm -r {quote(str(path.parent))}, then rerun the command"
            self.shards.append(read_record(path, ShardRecord, command=command))
        self.consumed = self.shards[-1].consumed if self.shards else 0
        self._writer: ShardWriter | None = None
        self._document: int | None = None
        self._sentences = 0
        self._tally = Counter[str]()

    def _next_path(self) -> Path:
        return self._folder / f"shard-{self._part:05d}-{len(self.shards):04d}"

    def add(self, document: int, sentences: Sequence[Ids]) -> None:
        """Append the sentences that are not empty to a document; document numbers only grow."""
        if document != self._document:
            self._end_document()
            self._document = document
            if self._writer and self._writer.num_tokens >= self._shard_tokens:
                self._finish(self._writer, consumed=document)
        kept = [ids for ids in sentences if ids]
        self._tally["empty_sentences"] += len(sentences) - len(kept)
        if kept:
            self._writer = self._writer or ShardWriter(self._next_path(), self._dtype, self._unknown_id)
            self._writer.append(kept)
            self._sentences += len(kept)

    def close(self, *, consumed: int) -> Counts:
        """Finish the last shard; return the counts of the empty documents after it."""
        self._end_document()
        if self._writer:
            self._finish(self._writer, consumed=consumed)
        return self._counted()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._writer:
            self._writer.abandon(kind, error, trace)

    def _end_document(self) -> None:
        if self._document is None:
            return
        if self._writer and self._sentences:
            self._writer.end_document()
        self._tally["empty_documents"] += self._sentences == 0
        self._tally["single_sentence_documents"] += self._sentences == 1
        self._document, self._sentences = None, 0

    def _finish(self, writer: ShardWriter, *, consumed: int) -> None:
        self.shards.append(writer.finish(consumed, self._counted()))
        self._writer = None

    def _counted(self) -> Counts:
        counts = Counts.model_validate(self._tally)
        self._tally.clear()
        return counts
