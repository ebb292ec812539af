"""One part of a build, some consecutive inputs: a pure function from text to shards."""

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
"""Between two notes of how much of a part has been read."""


class Encoder(Protocol):
    """Give what a corpus needs of a tokenizer."""

    @property
    def unk_id(self) -> int: ...
    def encode_ids(self, texts: list[str], *, num_threads: int) -> list[list[int]]: ...


@dataclass(frozen=True)
class PartTask:
    """Hold all that one part depends on, small enough to send to another machine."""

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
        """Path of the record that marks this part as done."""
        return self.output / PARTS / f"{self.part:05d}.json"

    @property
    def bytes_read_path(self) -> Path:
        """Path of the note of how much of this part has been read."""
        return self.record_path.with_suffix(".read")


class SideRecord(Section):
    """List the shards of one side of a part; `rest` counts documents after the last of them."""

    shards: tuple[ShardRecord, ...]
    rest: Counts


class PartRecord(Section):
    """Describe a finished part: what is trained on and what is held out."""

    part: int
    train: SideRecord
    held_out: SideRecord


def build_part(task: PartTask) -> PartRecord:
    """Tokenise the inputs of one part into shards, continuing after the complete ones.

    Raises: LitebertError for an input that cannot be read.
    """
    if task.record_path.exists():
        command = f"rm {task.record_path}, then rerun the command"
        return read_record(task.record_path, PartRecord, command=command)
    encoder = _encoder(task.tokenizer, task.tokenizer_hash)
    with ExitStack() as stack:
        tokens = TokenType(task.token_dtype, encoder.unk_id)
        train, held_out = (
            stack.enter_context(
                ShardSeries(SeriesPlan(folder, task.part, tokens, task.shard_tokens))
            )
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
            part=task.part,
            train=_close(train, reading.num_documents),
            held_out=_close(held_out, reading.num_documents),
        )
    write_record(task.record_path, record)
    return record


class _Chunk(NamedTuple):
    """Hold some sentences of a document and where they go."""

    series: ShardSeries
    document: int
    sentences: list[str]


@dataclass
class _PartReader:
    """Read the inputs of a part and count their documents, also those that need not be built."""

    task: PartTask
    train: ShardSeries
    held_out: ShardSeries
    num_documents: int = 0
    bytes_read: int = 0

    def chunks(self) -> Iterator[_Chunk]:
        """Yield every document that is still to be built, in pieces; an empty one as well."""
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
    """Load a tokenizer once a process; the hash identifies another one at the same path."""
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
    """Decide by a hash of the beginning of a document, white space aside.

    The beginning suffices: documents that share their first 16,384 characters stay together, and
    no document need be held whole.

    >>> is_held_out("A  text.", 0.5) == is_held_out("A text.\\n", 0.5)
    True
    """
    head = "".join(text[: 4 * HEAD_CHARACTERS].split())[:HEAD_CHARACTERS]
    digest = hashlib.blake2b(head.encode(), digest_size=8, person=b"held-out").digest()
    return int.from_bytes(digest, "little") < share * 2.0**64
