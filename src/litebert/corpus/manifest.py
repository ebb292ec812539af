"""The records of a corpus: corpus.json, shard.json and, during a build, build.json."""

from __future__ import annotations

from pathlib import Path
from shlex import quote
from typing import Annotated, Literal, Self, TypeVar

from pydantic import Field, ValidationError

from litebert import files
from litebert.config import Section, refused
from litebert.errors import DamagedError

FORMAT: Literal[1] = 1
MANIFEST, PLAN, SHARD, PARTS = "corpus.json", "build.json", "shard.json", "parts"
HELD_OUT, TOKENIZER = "held-out", "tokenizer"
MANIFEST_BYTES = 256 << 20  # the most that is read of a record
HEADER_BYTES = 128  # of a .npy file, in front of its numbers

Wanted = TypeVar("Wanted", bound=Section)
Count = Annotated[int, Field(ge=0)]


class Counts(Section):
    """The contents of a shard or a corpus in numbers, and what was left out of it."""

    documents: Count = 0
    sentences: Count = 0
    tokens: Count = 0
    unknown_tokens: Count = 0
    single_sentence_documents: Count = 0
    empty_documents: Count = 0
    empty_sentences: Count = 0

    def __add__(self, other: Self) -> Self:
        return type(self)(**{name: value + getattr(other, name) for name, value in self})

    def __sub__(self, other: Self) -> Self:
        return type(self)(**{name: value - getattr(other, name) for name, value in self})


class StoredFile(Section):
    """The size of a file in bytes, and its blake2b-256."""

    size: Count
    blake2b: str


class ShardRecord(Section):
    """A finished shard; `consumed` is the number of input documents read until its end."""

    name: str = Field(pattern=r"^shard-\d{5,}-\d{4,}$")
    consumed: Count
    counts: Counts
    files: dict[str, StoredFile]


class InputRecord(Section):
    """The name of an input, and its size in bytes as stored."""

    name: str
    size: int


class CorpusPlan(Section):
    """Everything that the bytes of a corpus depend on."""

    format: Literal[1] = FORMAT
    tokenizer_hash: str
    vocab_size: int
    sentences: str
    documents: str
    column: str
    language: str
    held_out: float
    shard_tokens: int
    inputs: tuple[InputRecord, ...]

    @property
    def token_dtype(self) -> str:
        """The dtype of token ids: 16 bits if they fit."""
        return "<u2" if self.vocab_size <= 65_536 else "<u4"

    def command(self, output: Path) -> str:
        """Return the command that builds this corpus again."""
        names = " ".join(quote(record.name) for record in self.inputs[:3])
        folder = quote(str(output))
        more = f" … ({len(self.inputs)} inputs)" if len(self.inputs) > 3 else ""
        return (
            f"rm -r {folder}, then litebert corpus build {names}{more} --output {folder} "
            f"--tokenizer TOKENIZER --sentences {self.sentences} --documents {self.documents} "
            f"--column {self.column} --language {self.language} --held-out {self.held_out}"
        )


class Manifest(Section):
    """A finished corpus, or its held-out part."""

    part: Literal["train", "held-out"]
    plan: CorpusPlan
    counts: Counts
    shards: tuple[ShardRecord, ...]


def read_record(path: Path, model: type[Wanted], *, command: str) -> Wanted:
    """Read one of these files; errors name `command` as the next step."""
    value = files.read_json(path, command=command, limit=MANIFEST_BYTES)
    try:
        return model.model_validate(value)
    except ValidationError as error:
        what, expected = f"{path} is damaged or of another version", f"what litebert writes in format {FORMAT}"
        raise DamagedError("LB-323", what, received=refused(error), expected=expected, next=command) from error


def write_record(path: Path, record: Section) -> None:
    """Write one of these files, atomically."""
    files.write_json(path, record.model_dump(mode="json"))


def damaged(path: Path | str, *, received: str, expected: str, command: str) -> DamagedError:
    """Return the error for a file of a corpus that is not what the build wrote; `command` is the next step."""
    return DamagedError("LB-330", f"{path} is not what was written", received=received, expected=expected, next=command)
