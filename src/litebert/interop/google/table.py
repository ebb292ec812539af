"""Sorted tables of keys and values, the file format of LevelDB (TensorFlow, lib/io/table).

A table is a sequence of blocks, each followed by a byte for its compression and a checksum. An
index block locates them, and a footer of 48 bytes locates the index. Nothing is trusted: every
size is checked against the file, blocks may not overlap, and keys must be in order.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

from litebert.interop.google.codec import decompressed, masked_crc32c
from litebert.tokenizer.wire import varint

MAX_TABLE_BYTES = 16 << 20
"""Largest table, and largest sum of its blocks when unpacked: that of base has 1.6 kB."""
MAX_ENTRIES = 10_000
"""Entries in a block, and variables in a checkpoint: 24 unshared layers with slots have 1,201."""
MAX_KEY_BYTES = 1_024

MAGIC = bytes.fromhex("57fb808b247547db")
FOOTER_BYTES, TRAILER_BYTES = 48, 5
STORED, SNAPPY = 0, 1


class TableError(ValueError):
    """The bytes are not a valid table; the message says why."""


class _Handle(NamedTuple):
    offset: int
    size: int


def is_table(end: bytes) -> bool:
    """Tell by its last bytes whether a file is a table."""
    return end.endswith(MAGIC)


def read_table(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield the keys and values of a table in order.

    Raises:
        TableError, WireError: The bytes are not a complete table.
    """
    if len(data) < FOOTER_BYTES or not is_table(data):
        raise TableError("no table: its last eight bytes are not the mark of one")
    body = len(data) - FOOTER_BYTES
    _, position = _handle(data, body, len(data))  # LevelDB's metadata (filters), not used
    index, _ = _handle(data, position, len(data))
    allowed = MAX_TABLE_BYTES
    previous_key, previous_end = None, 0
    for _, value in _entries(_block(data, index, body, allowed)):
        handle, _ = _handle(value, 0, len(value))
        if handle.offset < previous_end:
            raise TableError(f"blocks that overlap at byte {handle.offset:,}")
        block = _block(data, handle, body, allowed)
        previous_end = handle.offset + handle.size + TRAILER_BYTES
        allowed -= len(block)
        for key, entry in _entries(block):
            if previous_key is not None and key <= previous_key:
                raise TableError(f"keys out of order at {key[:80]!r}")
            previous_key = key
            yield key, entry


def _handle(data: bytes, position: int, end: int) -> tuple[_Handle, int]:
    offset, position = varint(data, position, end)
    size, position = varint(data, position, end)
    return _Handle(offset, size), position


def _block(data: bytes, handle: _Handle, end: int, allowed: int) -> bytes:
    """Return a block's contents, checked and unpacked."""
    offset, size = handle
    if offset + size + TRAILER_BYTES > end:
        raise TableError(f"a block of {size:,} bytes at byte {offset:,} of {end:,}")
    kind = data[offset + size]
    (expected,) = struct.unpack_from("<I", data, offset + size + 1)
    if masked_crc32c([data[offset : offset + size + 1]]) != expected:
        raise TableError(f"a wrong checksum of the block at byte {offset:,}")
    contents = data[offset : offset + size]
    if kind == SNAPPY:
        return decompressed(contents, limit=allowed)
    if kind != STORED or size > allowed:
        raise TableError(f"a block of {size:,} bytes in compression {kind}")
    return contents


def _entries(block: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield a block's entries; a key may share its first bytes with the one before."""
    if len(block) < 4:
        raise TableError("a block without an end")
    (num_restarts,) = struct.unpack_from("<I", block, len(block) - 4)
    end = len(block) - 4 - 4 * num_restarts
    if end < 0:
        raise TableError(f"{num_restarts:,} restarts in a block of {len(block):,} bytes")
    position, key, number = 0, b"", 0
    while position < end:
        number += 1
        if number > MAX_ENTRIES:
            raise TableError(f"more than {MAX_ENTRIES:,} entries in a block")
        shared, position = varint(block, position, end)
        added, position = varint(block, position, end)
        size, position = varint(block, position, end)
        if shared > len(key) or shared + added > MAX_KEY_BYTES or added + size > end - position:
            raise TableError(f"an entry that does not fit at byte {position:,} of its block")
        key = key[:shared] + block[position : position + added]
        yield key, block[position + added : position + added + size]
        position += added + size
