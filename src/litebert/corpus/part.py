"""Build one part of a corpus: turn some consecutive inputs into shards."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import NamedTuple, Protocol

from litebert import files
from litebert.config.allowed import Section
from litebert.corpus.manifest import HELD_OUT, PARTS, Counts, ShardRecord, read_record, write_record
from litebert.corpus.read import read_passages
from litebert.corpus.sentences import sentence_chunks
from litebert.corpus.series import SeriesPlan, ShardSeries
from litebert.corpus.settings import TextSettings
from litebert.corpus.shard_writer import TokenType
from litebert.errors import LitebertError
from litebert.reading.source import Source
from litebert.tokenizer import Tokenizer

BATCH_CHARACTERS = 1 << 18
SECONDS_BETWEEN = 1.0
"""The time between two notes of how much of a part has been read."""


class Encoder(Protocol):
    """The part of a tokenizer that a corpus needs."""

    @property
    def unk_id(self) -> int: ...
    def encode_ids(self, texts: list[str], *, num_threads: int) -> list[list[int]]: ...


@dataclass(frozen=True)
class PartTask:
    """Everything that one part depends on, small enough to send to another machine."""

    part: int
    sources: tuple[Source, ...]
    text: TextSettings
    tokenizer: Path
    tokenizer_hash: str
    token_dtype: str
    held_out: float
    shard_tokens: int
    output: Path

    @property
    def record_path(self) -> Path:
        """The record that marks this part as done."""
        return self.output / PARTS / f"{self.part:05d}.json"

    @property
    def bytes_read_path(self) -> Path:
        """The note of how much of this part has been read."""
        return self.record_path.with_suffix(".read")


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
    """Tokenise the inputs of one part into shards, continuing after the complete ones.

    Raises:
        LitebertError: An input cannot be read; LB-321, the tokenizer has changed.
    """
    if task.record_path.exists():
        command = f"rm {task.record_path}, then rerun the command"
        return read_record(task.record_path, PartRecord, command=command)
    encoder = _encoder(task.tokenizer, task.tokenizer_hash)
    with ExitStack() as stack:
        tokens = TokenType(task.token_dtype, encoder.unk_id)
        train, held_out = (
            stack.enter_context(ShardSeries(SeriesPlan(folder, task.part, tokens, task.shard_tokens)))
            for folder in (task.output, task.output / HELD_OUT)
        )
        reading = _PartReader(task, train, held_out)
        noted = time.monotonic()
        for batch in _batches(reading.chunks()):
            texts = [text for chunk in batch for text in chunk.sentences]
            ids = iter(encoder.encode_ids(texts, num_threads=1))
            for chunk in batch:
                chunk.series.add(chunk.document, [next(ids) for _ in chunk.sentences])
            if time.monotonic() - noted >= SECONDS_BETWEEN:
                files.write_json(task.bytes_read_path, reading.bytes_read)
                noted = time.monotonic()
        record = PartRecord(
            part=task.part, train=_close(train, reading.num_documents), held_out=_close(held_out, reading.num_documents)
        )
    write_record(task.record_path, record)
    return record


class _Chunk(NamedTuple):
    """Some sentences of a document, and the series of shards that they go to."""

    series: ShardSeries
    document: int
    sentences: list[str]


@dataclass
class _PartReader:
    """Read the inputs of a part and count all their documents, even those already built."""

    task: PartTask
    train: ShardSeries
    held_out: ShardSeries
    num_documents: int = 0
    bytes_read: int = 0

    def chunks(self) -> Iterator[_Chunk]:
        """Yield the sentences of every document that is still to be built, in chunks."""
        series = self.train
        before = 0
        for source in self.task.sources:
            noting = replace(source, on_read=partial(self._note, before))
            before += source.size
            for passage in read_passages(noting, self.task.text):
                if passage.is_start:
                    self.num_documents += 1
                    series = self._side(passage.text)
                document = self.num_documents - 1
                if document >= series.consumed:
                    for sentences in sentence_chunks(passage.text, self.task.text):
                        yield _Chunk(series, document, sentences)

    def _note(self, before: int, of_this: int) -> None:
        self.bytes_read = before + of_this

    def _side(self, text: str) -> ShardSeries:
        if self.task.held_out and is_held_out(text, self.task.held_out):
            return self.held_out
        return self.train


def _batches(chunks: Iterator[_Chunk]) -> Iterator[list[_Chunk]]:
    batch: list[_Chunk] = []
    size = 0
    for chunk in chunks:
        batch.append(chunk)
        size += sum(map(len, chunk.sentences)) + 1
        if size >= BATCH_CHARACTERS:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _close(series: ShardSeries, consumed: int) -> SideRecord:
    rest = series.close(consumed=consumed)
    return SideRecord(shards=tuple(series.shards), rest=rest)


@lru_cache(maxsize=1)
def _encoder(path: Path, hash: str) -> Encoder:
    """Load a tokenizer once per process; raise LB-321 if it has another hash."""
    tokenizer = Tokenizer.load(path)
    if tokenizer.hash != hash:
        raise LitebertError(
            "LB-321",
            f"the tokenizer at {path} changed while the corpus was built",
            received=tokenizer.hash[:16],
            expected=hash[:16],
            next="restore the former tokenizer, then rerun the command",
        )
    return tokenizer


HEAD_CHARACTERS = 1 << 14


def is_held_out(text: str, share: float) -> bool:
    """Decide by a hash of the beginning of a document, without white space.

    The beginning suffices: documents with the same first 16,384 characters stay together, and no
    document has to fit in memory.

    >>> is_held_out("A  text.", 0.5) == is_held_out("A text.\\n", 0.5)
    True
    """
    head = "".join(text[: 4 * HEAD_CHARACTERS].split())[:HEAD_CHARACTERS]
    digest = hashlib.blake2b(head.encode(), digest_size=8, person=b"held-out").digest()
    return int.from_bytes(digest, "little") < share * 2.0**64
