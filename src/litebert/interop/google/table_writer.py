"""Write sorted tables of keys and values as TensorFlow does: uncompressed, checksummed."""

from __future__ import annotations

import struct
from collections.abc import Iterable

from litebert.interop.google.codec import masked_crc32c
from litebert.interop.google.table import FOOTER_BYTES, MAGIC, STORED
from litebert.tokenizer.wire import to_varint

_RESTART_EVERY = 16
_BLOCK_BYTES = 256 << 10


def table_bytes(entries: Iterable[tuple[bytes, bytes]]) -> bytes:
    """Return the table of entries that come in the order of their keys.

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
    """A block that is being filled; every few entries a key is written in full."""

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
        return bytes(self.contents) + struct.pack(
            f"<{len(restarts) + 1}I", *restarts, len(restarts)
        )


def _append(table: bytearray, block: _BlockWriter) -> bytes:
    """Append a block with its trailer; return its handle."""
    offset, contents = len(table), block.finished()
    stored = contents + bytes([STORED])
    table += stored + struct.pack("<I", masked_crc32c([stored]))
    return to_varint(offset) + to_varint(len(contents))


def _num_shared(first: bytes, second: bytes) -> int:
    both = zip(first, second, strict=False)
    return next((i for i, (a, b) in enumerate(both) if a != b), min(len(first), len(second)))
