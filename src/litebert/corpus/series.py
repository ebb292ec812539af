"""Write the shards of one part one after the other, resuming after the last complete one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from shlex import quote
from types import TracebackType
from typing import Self

from litebert.corpus.manifest import SHARD, Counts, ShardRecord, read_record
from litebert.corpus.shard_writer import Ids, ShardWriter, TokenType


@dataclass(frozen=True)
class SeriesPlan:
    """Where the shards of part IIIII go (`folder`/shard-IIIII-JJJJ), and how large they are."""

    folder: Path
    part: int
    tokens: TokenType
    shard_tokens: int

    def path(self, number: int) -> Path:
        """Return the folder of shard JJJJ."""
        return self.folder / f"shard-{self.part:05d}-{number:04d}"


class ShardSeries:
    """Write documents; the first one after `shard_tokens` tokens begins a new shard.

    Shards of an earlier, killed build are kept: the first `consumed` documents must not be added
    again.
    """

    def __init__(self, plan: SeriesPlan) -> None:
        self.shards = _finished_shards(plan)
        self.consumed = self.shards[-1].consumed if self.shards else 0
        self._plan = plan
        self._writer: ShardWriter | None = None
        self._document: int | None = None
        self._sentences = 0
        self._tally = Counter[str]()

    def add(self, document: int, sentences: Sequence[Ids]) -> None:
        """Append the sentences that are not empty to a document; document numbers only grow."""
        if document != self._document:
            self._end_document()
            self._document = document
            if self._writer and self._writer.num_tokens >= self._plan.shard_tokens:
                self._finish(self._writer, consumed=document)
        kept = [ids for ids in sentences if ids]
        self._tally["empty_sentences"] += len(sentences) - len(kept)
        if not kept:
            return
        self._writer = self._writer or ShardWriter(self._plan.path(len(self.shards)), self._plan.tokens)
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


def _finished_shards(plan: SeriesPlan) -> list[ShardRecord]:
    shards: list[ShardRecord] = []
    while (path := plan.path(len(shards)) / SHARD).exists():
        command = f"rm -r {quote(str(path.parent))}, then rerun the command"
        shards.append(read_record(path, ShardRecord, command=command))
    return shards
