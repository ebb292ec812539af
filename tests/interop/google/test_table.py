"""Sorted tables: what is written is read, by us and as LevelDB lays it out."""

import struct
from collections.abc import Iterable

import cramjam
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from litebert.interop.google.bundle_writer import table_bytes
from litebert.interop.google.codec import decompressed, masked_crc32c
from litebert.interop.google.table import MAGIC, TableError, read_table
from litebert.tokenizer.wire import WireError, to_varint, varint

KEYS = st.binary(max_size=40)
TABLES = st.dictionaries(KEYS, st.binary(max_size=60), max_size=60)


def block(entries: Iterable[tuple[int, bytes, bytes]], restarts: int = 1) -> bytes:
    """Lay entries out, each with how much of the key before it shares."""
    data = b"".join(
        to_varint(shared) + to_varint(len(key)) + to_varint(len(value)) + key + value for shared, key, value in entries
    )
    return data + struct.pack("<I", 0) * min(restarts, 1) + struct.pack("<I", restarts)


def table(*blocks: tuple[bytes, int], handles: Iterable[tuple[int, int]] | None = None) -> bytes:
    """Lay blocks out with the given compressions; `handles` are the index's, if not the right."""
    data, places = b"", []
    for contents, kind in blocks:
        places.append((len(data), len(contents)))
        stored = contents + bytes([kind])
        data += stored + struct.pack("<I", masked_crc32c([stored]))
    index = block(
        (0, bytes([number]), to_varint(at) + to_varint(size))
        for number, (at, size) in enumerate(places if handles is None else handles)
    )
    stored = index + b"\0"
    end = to_varint(0) + to_varint(0) + to_varint(len(data)) + to_varint(len(index))
    data += stored + struct.pack("<I", masked_crc32c([stored]))
    return data + end.ljust(40, b"\0") + MAGIC


@given(TABLES)
@settings(max_examples=150, deadline=None)
def test_what_is_written_is_read(entries: dict[bytes, bytes]) -> None:
    ordered = sorted(entries.items())
    assert list(read_table(table_bytes(ordered))) == ordered


def test_many_entries_fill_several_blocks() -> None:
    entries = [(f"variable/{number:06}".encode(), bytes(90)) for number in range(8_000)]
    data = table_bytes(entries)
    assert list(read_table(data)) == entries
    index_at, _ = varint(data, len(data) - 48 + 4, len(data))
    assert index_at > 2 * (256 << 10)


@given(TABLES)
@settings(max_examples=50, deadline=None)
def test_snappy_blocks_are_read(entries: dict[bytes, bytes]) -> None:
    ordered = sorted(entries.items())
    plain = block((0, key, value) for key, value in ordered)
    packed = bytes(cramjam.snappy.compress_raw(plain))
    assert list(read_table(table((packed, 1)))) == ordered


def test_keys_that_share_a_beginning_are_put_together() -> None:
    contents = block([(0, b"bert/a", b"1"), (5, b"b", b"2"), (6, b"/c", b"3")])
    found = list(read_table(table((contents, 0))))
    assert found == [(b"bert/a", b"1"), (b"bert/b", b"2"), (b"bert/b/c", b"3")]


GOOD = (block([(0, b"a", b"1")]), 0)
HOSTILE = {
    "shares more than there is": table((block([(9, b"a", b"")]), 0)),
    "keys that fall": table((block([(0, b"b", b""), (0, b"a", b"")]), 0)),
    "a key twice": table((block([(0, b"a", b""), (1, b"", b"")]), 0)),
    "keys that fall between blocks": table(GOOD, GOOD),
    "a key of 2,000 bytes": table((block([(0, bytes(2_000), b"")]), 0)),
    "a value longer than its block": table((b"\0\1\x7fa" + struct.pack("<II", 0, 1), 0)),
    "a number without end": table((b"\xff" * 12 + struct.pack("<II", 0, 1), 0)),
    "a number of 2^63": table((b"\0" + to_varint(1 << 63) + b"\0a" + bytes(8), 0)),
    "more restarts than bytes": table((struct.pack("<I", 1 << 31), 0)),
    "a block without an end": table((b"", 0)),
    "an unknown compression": table((GOOD[0], 7)),
    "damaged snappy": table((b"\x08\xff\xff\xff", 1)),
    "snappy that says 4 GB": table((to_varint((1 << 32) - 1) + b"\0a", 1)),
    "a block twice": table(GOOD, handles=[(0, len(GOOD[0]))] * 2),
    "blocks that overlap": table(GOOD, handles=[(0, len(GOOD[0])), (2, 4)]),
    "a block past the end": table(GOOD, handles=[(1 << 20, 8)]),
    "a block of 2^63 bytes": table(GOOD, handles=[(0, 1 << 63)]),
    "a block at -1": table(GOOD, handles=[((1 << 64) - 1, 8)]),
    "a footer that points past the end": bytes(16) + b"\xff" * 9 + b"\x01" + bytes(30) + MAGIC,
    "a footer that points at itself": to_varint(0).ljust(40, b"\x10") + MAGIC,
    "no mark": table(GOOD)[:-1] + b"\0",
    "nothing": b"",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_what_cannot_be_a_table_is_refused(name: str) -> None:
    with pytest.raises((TableError, WireError, ValueError)):
        list(read_table(HOSTILE[name]))


def test_a_snappy_block_may_not_grow_past_its_bound() -> None:
    packed = bytes(cramjam.snappy.compress_raw(bytes(1_000)))
    assert len(decompressed(packed, limit=1_000)) == 1_000
    with pytest.raises(ValueError, match="more than 999"):
        decompressed(packed, limit=999)


@given(st.binary(max_size=200), st.integers(0, 1))
@settings(max_examples=300, deadline=None)
def test_any_bytes_in_a_block_are_read_or_refused(contents: bytes, kind: int) -> None:
    try:
        found = list(read_table(table((contents, kind))))
    except ValueError:
        return
    assert found == sorted(found)


@given(st.binary(max_size=120), st.binary(max_size=40))
@settings(max_examples=200, deadline=None)
def test_any_bytes_around_a_footer_are_read_or_refused(body: bytes, footer: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        list(read_table(body + footer.ljust(40, b"\0") + MAGIC))
