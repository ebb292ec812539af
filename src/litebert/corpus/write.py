"""One part of a build: some consecutive inputs are tokenised into shards, after those that a killed build has left.

Part IIIII writes the shards IIIII-JJJJ one after the other, on two sides: what is trained on, and what is held out.
"""

from __future__ import annotations

import hashlib
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import chain
from pathlib import Path
from shlex import quote
from types import TracebackType
from typing import Self

import numpy as np
from numpy.typing import NDArray

from litebert.config import Section
from litebert.corpus.manifest import (
    HELD_OUT,
    PARTS,
    SHARD,
    CorpusPlan,
    Counts,
    ShardRecord,
    StoredFile,
    read_record,
    write_record,
)
from litebert.corpus.text import TextSettings, read_passages, sentence_chunks
from litebert.errors import LitebertError
from litebert.files import Json, hash_file, staged_folder, write_json
from litebert.reading.source import Source
from litebert.tokenizer import Tokenizer

FLUSH_TOKENS = 1 << 16  # that a shard holds before it writes them
BATCH_CHARACTERS = 1 << 18  # that the tokenizer gets at once
HEAD_CHARACTERS = 1 << 14  # by which it is decided whether a document is held out
SECONDS_BETWEEN = 1.0  # two notes of how much has been read

Ids = Sequence[int]


# ---- a shard --------------------------------------------------------------------------------------------------------


class ArrayWriter:
    """Append to a new .npy file, whose length nobody knows yet (numpy's `open_memmap` must be told)."""

    def __init__(self, path: Path, dtype: str) -> None:
        self.length, self._dtype = 0, dtype
        self.file = open(path, "wb")  # noqa: SIM115  the writer of the shard closes it
        self.write_header()

    def append(self, values: NDArray[np.integer]) -> None:
        self.file.write(values.astype(self._dtype).data)
        self.length += len(values)

    def write_header(self) -> None:
        """Say how many numbers there are: in 128 bytes, however many."""
        self.file.seek(0)
        described = {"descr": self._dtype, "fortran_order": False, "shape": (self.length,)}
        np.lib.format.write_array_header_1_0(self.file, described)


class ShardWriter:
    """Stream the documents of one shard into a folder that gets its name, `path`, when it is complete."""

    def __init__(self, path: Path, dtype: str, unknown_id: int) -> None:
        self._path, self._unknown_id, self._num_unknown = path, unknown_id, 0
        self._held, self._num_held = list[Ids](), 0  # sentences that are not written yet, and their tokens
        self.stack = ExitStack()  # of the folder and, within it, of its open files
        self._folder = self.stack.enter_context(staged_folder(path))
        self._tokens, self._sentences, self._documents = self._arrays = [
            ArrayWriter(self._folder / f"{name}.npy", kind)
            for name, kind in (("tokens", dtype), ("sentences", "<i8"), ("documents", "<i8"))
        ]
        for array in self._arrays:
            self.stack.callback(array.file.close)
        self._sentences.append(np.zeros(1, np.int64))
        self._documents.append(np.zeros(1, np.int64))

    @property
    def num_tokens(self) -> int:
        return self._tokens.length + self._num_held

    def append(self, sentences: Sequence[Ids]) -> None:
        """Add sentences, none of them empty, to the current document."""
        self._held.extend(sentences)
        self._num_held += sum(map(len, sentences))
        if self._num_held >= FLUSH_TOKENS:
            self._flush()

    def _flush(self) -> None:
        lengths = np.fromiter(map(len, self._held), np.int64, len(self._held))
        ids = np.fromiter(chain.from_iterable(self._held), np.int64, self._num_held)
        self._sentences.append(self._tokens.length + np.cumsum(lengths))
        self._tokens.append(ids)
        self._num_unknown += int(np.count_nonzero(ids == self._unknown_id))
        self._held, self._num_held = [], 0

    def end_document(self) -> None:
        """End the current document: the next sentence starts another one."""
        self._documents.append(np.array([self._sentences.length - 1 + len(self._held)]))

    def finish(self, consumed: int, counts: Counts) -> ShardRecord:
        """Give the shard its final name; `counts` are those that only the caller knows."""
        self._flush()
        for array in self._arrays:
            array.write_header()
            array.file.close()
        counts += Counts(
            documents=self._documents.length - 1,
            sentences=self._sentences.length - 1,
            tokens=self._tokens.length,
            unknown_tokens=self._num_unknown,
        )
        stored = {
            path.name: StoredFile(size=path.stat().st_size, blake2b=hash_file(path))
            for path in sorted(self._folder.glob("*.npy"))
        }
        record = ShardRecord(name=self._path.name, consumed=consumed, counts=counts, files=stored)
        write_record(self._folder / SHARD, record)
        self.stack.close()
        return record


# ---- the shards of one side of a part -------------------------------------------------------------------------------


class ShardSeries:
    """Write shards one after the other: the first document after `shard_tokens` tokens begins a new one.

    Shards of an earlier, killed build are kept: the first `consumed` documents must not be added again.
    """

    def __init__(self, folder: Path, part: int, plan: CorpusPlan, unknown_id: int) -> None:
        self._folder, self._part, self._plan, self._unknown_id = folder, part, plan, unknown_id
        self.shards: list[ShardRecord] = []
        while (path := self._next_path() / SHARD).exists():
            command = f"rm -r {quote(str(path.parent))}, then rerun the command"
            self.shards.append(read_record(path, ShardRecord, command=command))
        self.consumed = self.shards[-1].consumed if self.shards else 0
        self._writer: ShardWriter | None = None
        self._document: int | None = None  # the number of the current one, and its sentences so far
        self._num_sentences = 0
        self._left_out = Counter[str]()

    @property
    def num_tokens(self) -> int:
        return sum(shard.counts.tokens for shard in self.shards) + (self._writer.num_tokens if self._writer else 0)

    def _next_path(self) -> Path:
        return self._folder / f"shard-{self._part:05d}-{len(self.shards):04d}"

    def add(self, document: int, sentences: Sequence[Ids]) -> None:
        """Append the sentences that are not empty to a document; document numbers only grow."""
        if document != self._document:
            self._end_document()
            self._document = document
            if self._writer and self._writer.num_tokens >= self._plan.shard_tokens:
                self._finish_shard(self._writer, document)
        kept = [ids for ids in sentences if ids]
        self._left_out["empty_sentences"] += len(sentences) - len(kept)
        if kept:
            self._writer = self._writer or ShardWriter(self._next_path(), self._plan.token_dtype, self._unknown_id)
            self._writer.append(kept)
            self._num_sentences += len(kept)

    def close(self, *, consumed: int) -> Counts:
        """Finish the last shard; return the counts of the empty documents after it."""
        self._end_document()
        if self._writer:
            self._finish_shard(self._writer, consumed)
        return Counts(**self._left_out)

    def _end_document(self) -> None:
        if self._document is None:
            return
        if self._writer and self._num_sentences:
            self._writer.end_document()
        self._left_out["empty_documents"] += self._num_sentences == 0
        self._left_out["single_sentence_documents"] += self._num_sentences == 1
        self._document, self._num_sentences = None, 0

    def _finish_shard(self, writer: ShardWriter, consumed: int) -> None:
        self.shards.append(writer.finish(consumed, Counts(**self._left_out)))
        self._writer = None
        self._left_out.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._writer:
            self._writer.stack.__exit__(kind, error, trace)


# ---- the part -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class PartTask:
    """Everything that one part depends on, small enough to send to another machine (the plan without its inputs)."""

    part: int
    sources: tuple[Source, ...]
    text: TextSettings
    tokenizer: Path
    plan: CorpusPlan
    output: Path

    @property
    def record_path(self) -> Path:
        """The record that marks this part as done; `.read` beside it has the bytes read and the tokens so far."""
        return self.output / PARTS / f"{self.part:05d}.json"


class SideRecord(Section):
    """The training or held-out shards of a part; `rest` counts documents after the last shard."""

    shards: tuple[ShardRecord, ...]
    rest: Counts


class PartRecord(Section):
    """A finished part: its training and held-out shards."""

    part: int
    train: SideRecord
    held_out: SideRecord


def build_part(task: PartTask) -> PartRecord:
    """Tokenise the inputs of one part into shards, continuing after the complete ones."""
    plan = task.plan
    if task.record_path.exists():
        return read_record(task.record_path, PartRecord, command=f"rm {task.record_path}, then rerun the command")
    tokenizer = _tokenizer(task.tokenizer, plan.tokenizer_hash)
    num_documents = bytes_before = bytes_read = 0

    def note(of_this_input: int) -> None:
        nonlocal bytes_read
        bytes_read = bytes_before + of_this_input

    def batches() -> Iterator[list[tuple[ShardSeries, int, list[str]]]]:
        """Yield the sentences of every document still to be built, with its side and its number."""
        nonlocal num_documents, bytes_before
        series, batch, size = train, list[tuple[ShardSeries, int, list[str]]](), 0
        for source in task.sources:
            for passage in read_passages(replace(source, on_read=note), task.text):
                if passage.is_start:
                    num_documents += 1
                    series = held_out if plan.held_out and is_held_out(passage.text, plan.held_out) else train
                if num_documents <= series.consumed:
                    continue
                for sentences in sentence_chunks(passage.text, task.text):
                    batch.append((series, num_documents - 1, sentences))
                    size += sum(map(len, sentences)) + 1
                    if size >= BATCH_CHARACTERS:
                        yield batch
                        batch, size = [], 0
            bytes_before += source.size
        if batch:
            yield batch

    def save_progress() -> None:
        so_far: Json = {"bytes": bytes_read, "tokens": train.num_tokens + held_out.num_tokens}
        write_json(task.record_path.with_suffix(".read"), so_far)

    with ExitStack() as stack:
        train, held_out = sides = [
            stack.enter_context(ShardSeries(folder, task.part, plan, tokenizer.unk_id))
            for folder in (task.output, task.output / HELD_OUT)
        ]
        noted = time.monotonic()
        for batch in batches():
            ids = iter(tokenizer.encode_ids([text for *_, texts in batch for text in texts], num_threads=1))
            for series, document, sentences in batch:
                series.add(document, [next(ids) for _ in sentences])
            if time.monotonic() - noted >= SECONDS_BETWEEN:
                save_progress()
                noted = time.monotonic()
        rests = [side.close(consumed=num_documents) for side in sides]
    done = [SideRecord(shards=tuple(side.shards), rest=rest) for side, rest in zip(sides, rests, strict=True)]
    record = PartRecord(part=task.part, train=done[0], held_out=done[1])
    bytes_read = bytes_before
    save_progress()
    write_record(task.record_path, record)
    return record


@lru_cache(maxsize=1)
def _tokenizer(path: Path, hash: str) -> Tokenizer:
    """Load a tokenizer once per process."""
    tokenizer = Tokenizer.load(path)
    if tokenizer.hash != hash:
        raise LitebertError(
            "LB-321",
            f"the tokenizer at {path} changed while the corpus was built",
            next="restore the former tokenizer, then rerun the command",
        )
    return tokenizer


def is_held_out(text: str, share: float) -> bool:
    """Decide by a hash of the beginning of a document, without white space.

    The beginning suffices: documents with the same first 16,384 characters stay together, and no document has to fit
    in memory.

    >>> is_held_out("A  text.", 0.5) == is_held_out("A text.\\n", 0.5)
    True
    """
    head = "".join(text[: 4 * HEAD_CHARACTERS].split())[:HEAD_CHARACTERS]
    digest = hashlib.blake2b(head.encode(), digest_size=8, person=b"held-out").digest()
    return int.from_bytes(digest, "little") < share * 2.0**64
