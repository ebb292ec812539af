"""Write protobuf's wire format, and read it without ever leaving the given bytes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
_FIXED_SIZE = {FIXED64: 8, FIXED32: 4}


class WireError(ValueError):
    """A message is not valid; the text says at which byte."""


class Field(NamedTuple):
    """A field of a message: its payload is `data[begin:end]`; a varint has a `value`."""

    number: int
    kind: int
    begin: int
    end: int
    value: int = 0


def fields(data: bytes, begin: int, end: int) -> Iterator[Field]:
    """Yield the fields of the message `data[begin:end]` in order; groups are not supported.

    >>> [field.value for field in fields(bytes([8, 150, 1]), 0, 3)]
    [150]

    Raises:
        WireError: A length, a number or a kind of field is not valid.
    """
    position = begin
    while position < end:
        key, position = varint(data, position, end)
        number, kind = key >> 3, key & 7
        if not 1 <= number < 1 << 29:
            raise WireError(f"field number {number} before byte {position}")
        field = _payload(data, number, kind, position, end)
        yield field
        position = field.end


def varint(data: bytes, position: int, end: int) -> tuple[int, int]:
    """Return the number of one to ten bytes at `position`, and the position after it."""
    if position < end and data[position] < 0x80:
        return data[position], position + 1
    value = 0
    for index in range(position, min(position + 10, end)):
        byte = data[index]
        value |= (byte & 0x7F) << 7 * (index - position)
        if byte < 0x80:
            return value & (1 << 64) - 1, index + 1
    raise WireError(f"unfinished number at byte {position}")


def to_varint(number: int) -> bytes:
    """Return a number below 2^64 in seven bits per byte, the lowest first.

    >>> to_varint(150).hex()
    '9601'
    """
    data = bytearray()
    while number > 0x7F:
        data.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*data, number])


def tagged(number: int, kind: int, payload: bytes) -> bytes:
    """Return a field: its number and kind, the size for `BYTES`, and the payload.

    >>> tagged(1, BYTES, b"abc").hex()
    '0a03616263'
    """
    size = to_varint(len(payload)) if kind == BYTES else b""
    return to_varint(number << 3 | kind) + size + payload


def _payload(data: bytes, number: int, kind: int, position: int, end: int) -> Field:
    if kind == VARINT:
        value, stop = varint(data, position, end)
        return Field(number, kind, position, stop, value)
    if kind == BYTES:
        size, position = varint(data, position, end)
    elif kind in _FIXED_SIZE:
        size = _FIXED_SIZE[kind]
    else:
        raise WireError(f"kind of field {kind} before byte {position}")
    if size > end - position:
        raise WireError(f"{size:,} bytes announced at byte {position}, {end - position:,} left")
    return Field(number, kind, position, position + size)
