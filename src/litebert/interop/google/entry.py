"""The entry of one variable in a checkpoint's index (TensorFlow, tensor_bundle.proto)."""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass

from litebert.interop.google.table import TableError
from litebert.tokenizer.wire import BYTES, FIXED32, VARINT, Field, fields, tagged, to_varint

STORED_AS = {1: "float32", 2: "float64", 3: "int32", 9: "int64", 14: "bfloat16", 19: "float16"}
"""The types that litebert reads, by their number in types.proto."""
ITEM_BYTES = {"float32": 4, "float64": 8, "int32": 4, "int64": 8, "bfloat16": 2, "float16": 2}

_MAX_AXES = 8
_DTYPE, _SHAPE, _SHARD, _OFFSET, _SIZE, _CHECKSUM, _SLICES = range(1, 8)
_KINDS = {
    **dict.fromkeys((_DTYPE, _SHARD, _OFFSET, _SIZE), VARINT),
    **dict.fromkeys((_SHAPE, _SLICES), BYTES),
    _CHECKSUM: FIXED32,
}


@dataclass(frozen=True)
class Entry:
    """Where a variable's bytes are, and their type; `dtype` is "" if litebert does not read it."""

    dtype: str
    shape: tuple[int, ...]
    shard: int
    offset: int
    size: int
    checksum: int
    is_sliced: bool = False


@dataclass(frozen=True)
class Header:
    """The header of an index."""

    num_shards: int
    is_big_endian: bool
    min_consumer: int


def read_entry(data: bytes) -> Entry:
    """Parse one entry; its size in bytes must be that of its shape.

    Raises:
        TableError, WireError: The numbers cannot be.
    """
    found = {field.number: field for field in _message(data, Field(0, BYTES, 0, len(data)), _KINDS)}
    number = {key: field.value for key, field in found.items() if field.kind == VARINT}
    dtype = STORED_AS.get(number.get(_DTYPE, 0), "")
    entry = Entry(
        dtype=dtype,
        shape=_shape(data, found.get(_SHAPE)),
        shard=number.get(_SHARD, 0),
        offset=number.get(_OFFSET, 0),
        size=number.get(_SIZE, 0),
        checksum=_fixed(data, found.get(_CHECKSUM)),
        is_sliced=_SLICES in found,
    )
    is_plain = bool(dtype) and not entry.is_sliced
    if is_plain and entry.size != math.prod(entry.shape) * ITEM_BYTES[dtype]:
        raise TableError(f"{entry.size:,} bytes for {dtype} of shape {list(entry.shape)}")
    return entry


def read_header(data: bytes) -> Header:
    """Parse the entry with the empty key."""
    kinds = {1: VARINT, 2: VARINT, 3: BYTES}
    found = {field.number: field for field in _message(data, Field(0, BYTES, 0, len(data)), kinds)}
    number = {key: field.value for key, field in found.items() if field.kind == VARINT}
    version = list(_message(data, found[3], {2: VARINT})) if 3 in found else []
    return Header(
        num_shards=number.get(1, 0),
        is_big_endian=number.get(2, 0) != 0,
        min_consumer=next((field.value for field in version if field.number == 2), 0),
    )


def entry_bytes(entry: Entry) -> bytes:
    """Return an entry as TensorFlow writes it."""
    dtype = next(number for number, name in STORED_AS.items() if name == entry.dtype)
    axes = b"".join(tagged(2, BYTES, _varint_field(1, size)) for size in entry.shape)
    return (
        _varint_field(_DTYPE, dtype)
        + tagged(_SHAPE, BYTES, axes)
        + _varint_field(_SHARD, entry.shard)
        + _varint_field(_OFFSET, entry.offset)
        + _varint_field(_SIZE, entry.size)
        + tagged(_CHECKSUM, FIXED32, struct.pack("<I", entry.checksum))
    )


def header_bytes(num_shards: int) -> bytes:
    """Return the header of a little-endian checkpoint of format version 1."""
    return _varint_field(1, num_shards) + tagged(3, BYTES, _varint_field(1, 1))


def _message(data: bytes, message: Field, kinds: dict[int, int]) -> list[Field]:
    found = list(fields(data, message.begin, message.end))
    for field in found:
        if kinds.get(field.number, field.kind) != field.kind:
            raise TableError(f"field {field.number} of kind {field.kind}")
    return found


def _shape(data: bytes, message: Field | None) -> tuple[int, ...]:
    if message is None:
        return ()
    axes = [field for field in _message(data, message, {2: BYTES}) if field.number == 2]
    if len(axes) > _MAX_AXES:
        raise TableError(f"a shape of {len(axes)} axes")
    sizes = []
    for axis in axes:
        parts = _message(data, axis, {1: VARINT})
        size = next((part.value for part in parts if part.number == 1), 0)
        if size >= 1 << 63:
            raise TableError("an axis of unknown or negative size")
        sizes.append(size)
    return tuple(sizes)


def _fixed(data: bytes, field: Field | None) -> int:
    return int.from_bytes(data[field.begin : field.end], "little") if field else 0


def _varint_field(number: int, value: int) -> bytes:
    """Return a field; a zero is not written, as in protobuf."""
    return to_varint(number << 3 | VARINT) + to_varint(value) if value else b""
