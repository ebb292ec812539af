"""One part of a build: read some inputs, tokenize them, and write the shards of both
sides.
"""

import hashlib
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from itertools import count, takewhile
from pathlib import Path
from typing import NamedTuple

from litebert.corpus import shards as disk
from litebert.corpus.progress import PartProgress
from litebert.corpus.text import read_documents, sentence_chunks
from litebert.errors import LitebertError
from litebert.reading.source import Source
from litebert.tokenizer import Tokenizer

BATCH_CHARACTERS = 1 << 18  # passed to the tokenizer at once
# Characters at the beginning of a document, which decide whether it is held out.
HEAD_CHARACTERS = 1 << 14


def build_part(
    part: str,
    sources: Sequence[Source],
    *,
    plan: disk.CorpusPlan,
    tokenizer: Path,
    output: Path,
) -> None:
    """Tokenize the inputs of one part into shards, continuing after the complete
    ones.
    """
    sides = disk.sides_of(output, plan)
    records = [folder / disk.PARTS / f"{part}.json" for folder in sides.values()]
    if all(record.exists() for record in records):
        return  # an earlier try has made this part
    loaded = _load_unchanged(tokenizer, plan)
    progress = PartProgress(records[0], len(sources))
    with ExitStack() as stack:
        writers = list[disk.ShardWriter]()
        for folder in sides.values():
            # The documents of complete shards are skipped without being tokenized.
            complete = _complete_shards(folder, part)
            writer = disk.ShardWriter(folder, part, plan, loaded.unk_id, complete)
            writers.append(stack.enter_context(writer))
        builder = _PartBuilder(plan, loaded, writers, progress)
        for number, source in enumerate(sources):
            builder.read(number, source)
        builder.write()
        for side, record, writer in zip(sides, records, writers, strict=True):
            counts = writer.finish(builder.num_documents)
            manifest = disk.Manifest(
                part=side, plan=plan, counts=counts, shards=tuple(writer.shards)
            )
            disk.write_record(record, manifest)
        progress.note(builder.num_tokens)


def _load_unchanged(tokenizer: Path, plan: disk.CorpusPlan) -> Tokenizer:
    loaded = Tokenizer.load(tokenizer)
    if loaded.hash == plan.tokenizer_hash:
        return loaded
    raise LitebertError(
        "LB-321",
        f"the tokenizer at {tokenizer} changed while the corpus was built",
        next="restore the previous tokenizer, then rerun the command",
    )


def _complete_shards(folder: Path, part: str) -> list[disk.ShardRecord]:
    """Return the records of the shards that a killed build has left complete."""
    # An incomplete shard has another, temporary name.
    paths = (folder / f"shard-{part}-{number:04d}" / disk.SHARD for number in count())
    complete = takewhile(Path.exists, paths)
    return [disk.read_record(path, disk.ShardRecord) for path in complete]


class _Waiting(NamedTuple):
    """Sentences of a document that wait for the tokenizer, and where they go."""

    writer: disk.ShardWriter
    document: int
    sentences: list[str]


class _PartBuilder:
    """Reads sources, and passes their sentences through the tokenizer to the writers of
    the sides, in batches.
    """

    def __init__(
        self,
        plan: disk.CorpusPlan,
        tokenizer: Tokenizer,
        writers: Sequence[disk.ShardWriter],
        progress: PartProgress,
    ) -> None:
        self.num_documents = 0  # read so far, over all sources
        self._plan = plan
        self._text = plan.text
        self._tokenizer = tokenizer
        self._writers = writers  # of the training side, and of the held-out side
        self._progress = progress
        self._waiting = list[_Waiting]()
        self._num_characters = 0  # of the sentences that wait

    @property
    def num_tokens(self) -> int:
        return sum(writer.num_tokens for writer in self._writers)

    def read(self, number: int, source: Source) -> None:
        """Add all documents of a source."""
        # Bytes of the file, as stored, so that a compressed one has a progress, too.
        watched = replace(source, on_read=partial(self._progress.has_read, number))
        for passages in read_documents(watched, self._text):
            writer = self._writers[0]  # of the training side
            for place, passage in enumerate(passages):
                if place == 0:  # the beginning of a document decides for all of it
                    writer = self._writer_of(passage.text)
                self._add(writer, passage.text)
            self.num_documents += 1
        self._progress.has_read(number, source.size)

    def _writer_of(self, beginning: str) -> disk.ShardWriter:
        share = self._plan.held_out
        if share > 0 and is_held_out(beginning, share):
            return self._writers[1]
        return self._writers[0]

    def _add(self, writer: disk.ShardWriter, text: str) -> None:
        if self.num_documents < writer.consumed:  # it is in a complete shard
            return
        for sentences in sentence_chunks(text, self._text):
            self._waiting.append(_Waiting(writer, self.num_documents, sentences))
            # one more, so that very many empty documents are written, too
            self._num_characters += sum(map(len, sentences)) + 1
            if self._num_characters >= BATCH_CHARACTERS:
                self.write()
                if self._progress.is_due():
                    self._progress.note(self.num_tokens)

    def write(self) -> None:
        """Tokenize the sentences that wait, and write them."""
        texts = list[str]()
        for waiting in self._waiting:
            texts += waiting.sentences
        # One thread: there is a process for each core already.
        ids = iter(self._tokenizer.encode_ids(texts, num_threads=1))
        for waiting in self._waiting:
            # an empty list, too: the writer counts its document as empty
            sentence_ids = [next(ids) for _ in waiting.sentences]
            waiting.writer.add(waiting.document, sentence_ids)
        self._waiting.clear()
        self._num_characters = 0


def is_held_out(text: str, share: float) -> bool:
    """Decide by a hash of the beginning of a document, without white space.

    Documents with the same first 16,384 characters stay together, and no document has
    to fit in memory.

    >>> is_held_out("A  text.", 0.5) == is_held_out("A text.\\n", 0.5)
    True
    """
    # Without white space, copies with other line breaks stay together, too. The first
    # slice bounds the work; a text that is mostly white space has a shorter head.
    head = "".join(text[: 4 * HEAD_CHARACTERS].split())[:HEAD_CHARACTERS]
    # 64 bits, a uniform number below 2^64
    digest = hashlib.blake2b(head.encode(), digest_size=8, person=b"held-out").digest()
    return int.from_bytes(digest, "little") < share * 2.0**64
