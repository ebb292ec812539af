"""Write a checkpoint of TensorFlow, version 2, piece by piece."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from litebert.files import write_bytes, write_stream
from litebert.interop.google.bundle import data_file
from litebert.interop.google.codec import masked_crc32c
from litebert.interop.google.entry import ITEM_BYTES, Entry, entry_bytes, header_bytes
from litebert.interop.google.streamed import pieces
from litebert.interop.google.table import FOOTER_BYTES, MAGIC, STORED
from litebert.tokenizer.wire import to_varint

_RESTART_EVERY = 16
_BLOCK_BYTES = 256 << 10


def table_bytes(entries: Iterable[tuple[bytes, bytes]]) -> bytes:
    """Return the bytes of a table as TensorFlow writes it; entries must be in order of their keys.

    >>> from litebert.interop.google.table import read_table
    >>> list(read_table(table_bytes([(b"a", b"1"), (b"ab", b"2")])))
    [(b'a', b'1'), (b'ab', b'2')]
    """
    table, index, block = bytearray(), _BlockWriter(restart_every=1), _BlockWriter()
    for key, value in entries:
        block.add(key, value)
        if len(block.contents) >= _BLOCK_BYTES:
            index.add(key, _append(table, block))
            block = _BlockWriter()
    if block.num_entries:
        index.add(block.last_key, _append(table, block))
    handles = _append(table, _BlockWriter()) + _append(table, index)
    return bytes(table) + handles.ljust(FOOTER_BYTES - len(MAGIC), b"\0") + MAGIC


class _BlockWriter:
    """A block that is being filled; every few entries, a restart, a key is written in full."""

    def __init__(self, *, restart_every: int = _RESTART_EVERY) -> None:
        self.contents, self.last_key, self.num_entries = bytearray(), b"", 0
        self._restarts, self._restart_every = [0], restart_every

    def add(self, key: bytes, value: bytes) -> None:
        """Append one entry."""
        shared = 0
        if self.num_entries % self._restart_every:
            shared = _num_shared(self.last_key, key)
        elif self.num_entries:
            self._restarts.append(len(self.contents))
        self.contents += to_varint(shared) + to_varint(len(key) - shared) + to_varint(len(value))
        self.contents += key[shared:] + value
        self.last_key, self.num_entries = key, self.num_entries + 1

    def finished(self) -> bytes:
        """Return the block with its restarts."""
        restarts = self._restarts
        return bytes(self.contents) + struct.pack(f"<{len(restarts) + 1}I", *restarts, len(restarts))


def _append(table: bytearray, block: _BlockWriter) -> bytes:
    """Append a block with its trailer; return its handle."""
    offset, contents = len(table), block.finished()
    stored = contents + bytes([STORED])
    table += stored + struct.pack("<I", masked_crc32c([stored]))
    return to_varint(offset) + to_varint(len(contents))


def _num_shared(first: bytes, second: bytes) -> int:
    both = zip(first, second, strict=False)
    return next((i for i, (a, b) in enumerate(both) if a != b), min(len(first), len(second)))


Stored = Literal["float32", "bfloat16", "int64"]


@dataclass(frozen=True)
class Variable:
    """A variable to write; `values` may be a view."""

    name: str
    values: NDArray[np.float32] | NDArray[np.int64]
    dtype: Stored = "float32"

    @property
    def size(self) -> int:
        """Bytes on disk."""
        return self.values.size * ITEM_BYTES[self.dtype]


def write_bundle(prefix: Path, variables: Sequence[Variable], *, num_shards: int = 1) -> list[Path]:
    """Write data files of about the same size, then the index; return their paths.

    Readers find no checkpoint until the index is written.
    """
    paths, entries = [], dict[bytes, Entry]()
    for number, shard in enumerate(_shards(variables, num_shards)):
        path = data_file(prefix, number, num_shards)
        write_stream(path, _data(shard, number, entries))
        paths.append(path)
    index = prefix.with_name(f"{prefix.name}.index")
    described = [(name, entry_bytes(entry)) for name, entry in sorted(entries.items())]
    write_bytes(index, table_bytes([(b"", header_bytes(num_shards)), *described]))
    return [*paths, index]


def _shards(variables: Sequence[Variable], num_shards: int) -> list[list[Variable]]:
    """Distribute variables, the largest first, each to the data file that is smallest so far.

    Within a file they are in the order of their names, as TensorFlow writes them.
    """
    shards: list[list[Variable]] = [[] for _ in range(num_shards)]
    sizes = [0] * num_shards
    for variable in sorted(variables, key=lambda each: -each.size):
        least = sizes.index(min(sizes))
        shards[least].append(variable)
        sizes[least] += variable.size
    return [sorted(shard, key=lambda each: each.name) for shard in shards]


def _data(variables: Sequence[Variable], shard: int, entries: dict[bytes, Entry]) -> Iterator[bytes]:
    """Yield the bytes of each variable, and note in `entries` where they are."""
    offset = 0
    for variable in variables:
        entries[variable.name.encode()] = Entry(
            dtype=variable.dtype,
            shape=variable.values.shape,
            shard=shard,
            offset=offset,
            size=variable.size,
            checksum=masked_crc32c(pieces(variable.values, variable.dtype)),
        )
        offset += variable.size
        yield from pieces(variable.values, variable.dtype)
