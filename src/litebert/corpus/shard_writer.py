"""Write one shard: tokens stream into a folder that gets its name when it is complete."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from types import TracebackType

import numpy as np

from litebert.corpus.manifest import SHARD, Counts, ShardRecord, StoredFile, write_record
from litebert.corpus.npy import ArrayWriter
from litebert.files import hash_file, staged_folder

FLUSH_TOKENS = 1 << 16

Ids = Sequence[int]


@dataclass(frozen=True)
class TokenType:
    """How token ids are stored, and the id of the unknown piece."""

    dtype: str
    unknown_id: int


class ShardWriter:
    """Stream the documents of one shard to disk."""

    def __init__(self, path: Path, tokens: TokenType) -> None:
        self.num_tokens = 0
        self._path, self._unknown_id = path, tokens.unknown_id
        self._num_unknown = self._num_sentences = self._num_documents = 0
        self._held: list[Ids] = []
        self._held_tokens = 0
        self._stack, self._open_arrays = ExitStack(), ExitStack()
        self._folder = self._stack.enter_context(staged_folder(path))
        self._stack.push(self._open_arrays)
        self._tokens = self._array("tokens", tokens.dtype)
        self._sentences = self._array("sentences", "<i8")
        self._documents = self._array("documents", "<i8")
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
        record = ShardRecord(
            name=self._path.name,
            consumed=consumed,
            counts=counts
            + Counts(
                documents=self._num_documents,
                sentences=self._num_sentences,
                tokens=self.num_tokens,
                unknown_tokens=self._num_unknown,
            ),
            files={path.name: _stored(path) for path in sorted(self._folder.glob("*.npy"))},
        )
        write_record(self._folder / SHARD, record)
        self._stack.close()
        return record

    def abandon(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Remove the unfinished shard after an error."""
        assert error is not None, "a shard without an error is finished, not abandoned"
        self._stack.__exit__(kind, error, trace)

    def _array(self, name: str, dtype: str) -> ArrayWriter:
        return self._open_arrays.enter_context(ArrayWriter(self._folder / f"{name}.npy", dtype))

    def _flush(self) -> None:
        lengths = np.fromiter(map(len, self._held), np.int64, len(self._held))
        ids = np.fromiter(chain.from_iterable(self._held), np.int64, self._held_tokens)
        self._sentences.append(self._tokens.length + np.cumsum(lengths))
        self._tokens.append(ids)
        self._num_unknown += int(np.count_nonzero(ids == self._unknown_id))
        self._held, self._held_tokens = [], 0


def _stored(path: Path) -> StoredFile:
    return StoredFile(size=path.stat().st_size, blake2b=hash_file(path))
