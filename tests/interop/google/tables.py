"""Write LevelDB tables, such as the index of a checkpoint: litebert only reads them."""

import struct
from collections.abc import Sequence

from google.protobuf.internal import encoder

from litebert.interop.bundle import masked_crc32c

MAGIC = bytes.fromhex("57fb808b247547db")
FOOTER_BYTES = 48


def table_bytes(entries: Sequence[tuple[bytes, bytes]]) -> bytes:
    """Return a table with one block of entries, which must be sorted by key."""
    last_key = entries[-1][0] if entries else b""
    table = bytearray()
    place = _append_block(table, entries)
    metadata = _append_block(table, [])
    index = _append_block(table, [(last_key, place)])
    footer = (metadata + index).ljust(FOOTER_BYTES - len(MAGIC), b"\0")
    return bytes(table) + footer + MAGIC


def _append_block(table: bytearray, rows: Sequence[tuple[bytes, bytes]]) -> bytes:
    """Append a block to a table, and return its encoded location."""
    block = b""
    # every key is written in full, so a reader may start at any of them
    restarts = list[int]()
    for key, value in rows:
        restarts.append(len(block))
        block += _varint(0) + _varint(len(key)) + _varint(len(value)) + key + value
    restarts = restarts or [0]
    block += struct.pack(f"<{len(restarts) + 1}I", *restarts, len(restarts))
    place = _varint(len(table)) + _varint(len(block))
    block += b"\0"  # not compressed
    table.extend(block + struct.pack("<I", masked_crc32c(block)))
    return place


def _varint(number: int) -> bytes:
    encoded: bytes = encoder._VarintBytes(number)
    return encoded
