"""TensorFlow's checkpoint format, version 2: an index, which is a small sorted table, and data files.

The index is a table as LevelDB writes it (tensorflow/core/lib/io/table): blocks of keys and values, each followed by a
byte for its compression and a checksum; a block that locates them; and a footer of 48 bytes that locates this one. Its
first value, under the empty key, is a BundleHeaderProto, and each other value a BundleEntryProto (tensor_bundle.proto):
where the bytes of a variable are in the data files.

Nothing is trusted: sizes are checked against the file before anything is read, and everything that is read against its
checksum.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError
from torch import Tensor

from litebert.errors import DamagedError, LitebertError, missing_package
from litebert.files import read_capped, write_bytes, write_stream

try:
    import google_crc32c  # the standard library has only the other CRC-32
except ImportError as error:
    raise missing_package(
        "google-crc32c", extra="google", needed_for="reading and writing TensorFlow checkpoints"
    ) from error

MAX_INDEX_BYTES = 16 << 20  # that of base has 1.6 kB
MAX_ENTRIES = 10_000  # 24 unshared layers with the optimizer's slots have 1,201
_MAX_KEY_BYTES = 1_024
_MAX_AXES = 8
_MAGIC = bytes.fromhex("57fb808b247547db")
_FOOTER_BYTES, _TRAILER_BYTES = 48, 5
# The types that litebert reads, by their number in types.proto
_DTYPES = {1: torch.float32, 2: torch.float64, 3: torch.int32, 9: torch.int64, 14: torch.bfloat16, 19: torch.float16}


def _messages() -> tuple[Any, Any]:
    """Return protobuf's classes for headers and entries (tensor_bundle.proto, tensor_shape.proto, versions.proto).

    They are built from this table, as TensorFlow's own modules need TensorFlow. A `slices` says that a variable is
    stored in parts, whatever these are.
    """
    tables = {
        "Axis": "1 int64 size",
        "Shape": "2 *Axis dim, 3 bool unknown_rank",
        "Version": "1 int32 producer, 2 int32 min_consumer",
        "Header": "1 int32 num_shards, 2 int32 endianness, 3 Version version",
        "Entry": "1 int32 dtype, 2 Shape shape, 3 int32 shard_id, 4 int64 offset, 5 int64 size, 6 fixed32 crc32c, "
        "7 *bytes slices",
    }
    kinds = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="bundle.proto", package="litebert", syntax="proto3")
    for message, fields in tables.items():
        described = file.message_type.add(name=message)
        for number, kind, name in map(str.split, fields.split(", ")):
            label = kinds.LABEL_REPEATED if kind.startswith("*") else kinds.LABEL_OPTIONAL
            field = described.field.add(name=name, number=int(number), label=label)
            kind = kind.lstrip("*")
            field.type = kinds.TYPE_MESSAGE if kind in tables else getattr(kinds, f"TYPE_{kind.upper()}")
            if kind in tables:
                field.type_name = f".litebert.{kind}"
    pool = descriptor_pool.DescriptorPool()  # our own: TensorFlow may be loaded in the same process
    pool.Add(file)
    found = (pool.FindMessageTypeByName(f"litebert.{name}") for name in ("Header", "Entry"))
    header, entry = map(message_factory.GetMessageClass, found)
    return header, entry


Header, Entry = _messages()


@dataclass(frozen=True)
class Bundle:
    """The variables of a checkpoint by name; `prefix` is the path with which the names of its files begin."""

    prefix: Path
    num_shards: int
    entries: Mapping[str, Any]

    def shape(self, name: str) -> tuple[int, ...]:
        """Return the shape of a variable."""
        return tuple(axis.size for axis in self.entries[name].shape.dim)

    def dtype(self, name: str) -> torch.dtype | None:
        """Return how a variable is stored; None if litebert does not read this kind."""
        entry = self.entries[name]
        return None if entry.slices else _DTYPES.get(entry.dtype)

    def read(self, name: str) -> Tensor:
        """Read a variable as it is stored."""
        entry, dtype = self.entries[name], self.dtype(name)
        if dtype is None:
            what, found = f"{self.prefix}: the variable {name} cannot be read", "neither floats nor whole numbers"
            again = "restore it with TensorFlow and save it without a partitioner, as float32"
            raise LitebertError("LB-706", what, received="stored in slices" if entry.slices else found, next=again)
        path = data_file(self.prefix, entry.shard_id, self.num_shards)
        size = path.stat().st_size if path.is_file() else -1
        if entry.offset + entry.size > size:
            found, ends = f"{size:,} bytes" if size >= 0 else "no such file", f"{entry.offset + entry.size:,} bytes"
            beside = f"put all {self.num_shards} data files beside {self.prefix.name}.index"
            what, wanted = f"{path} is missing or cut off", f"{ends} or more, where {name} ends"
            raise DamagedError("LB-704", what, received=found, expected=wanted, next=beside)
        with path.open("rb") as file:
            file.seek(entry.offset)
            stored = file.read(entry.size)
        if masked_crc32c(stored) != entry.crc32c:
            received = f"a wrong checksum of {name}"
            raise DamagedError("LB-705", f"{path} is damaged", received=received, next="fetch the checkpoint again")
        flat = torch.frombuffer(bytearray(stored), dtype=dtype) if stored else torch.empty(0, dtype=dtype)
        return flat.reshape(self.shape(name))


def data_file(prefix: Path, shard: int, num_shards: int) -> Path:
    """Return the path of one data file."""
    return prefix.with_name(f"{prefix.name}.data-{shard:05}-of-{num_shards:05}")


def masked_crc32c(data: bytes) -> int:
    """Return a checksum as TensorFlow's files have it (lib/hash/crc32c.h).

    >>> hex(masked_crc32c(b"123456789"))
    '0xc78ab0e5'
    """
    crc: int = google_crc32c.value(data)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def read_bundle(prefix: Path) -> Bundle:
    """Read the index of a checkpoint; no variable is read yet."""
    path = prefix.with_name(f"{prefix.name}.index")
    data = read_capped(path, MAX_INDEX_BYTES, command=f"ls -l {path.parent}")
    try:
        table = read_table(data)
        key, value = next(table, (b"", b""))
        header = Header.FromString(value)
        if key or not 1 <= header.num_shards < 100_000:
            raise ValueError(f"a header that says {header.num_shards:,} data files")
        # A key that begins with a zero is a slice of a variable; the whole has an entry of its own.
        entries = {key.decode(): _entry(value, header.num_shards) for key, value in table if key[:1] != b"\0"}
    except (ValueError, DecodeError) as error:
        what = f"{path} is cut off or damaged"
        raise DamagedError("LB-703", what, received=str(error), next="fetch the checkpoint again") from error
    if header.endianness or header.version.min_consumer > 1:
        received = "big-endian" if header.endianness else f"version {header.version.min_consumer}"
        what, again = f"{path} is of a kind that litebert does not read", "restore and save it with TensorFlow here"
        raise LitebertError("LB-707", what, received=received, next=again)
    return Bundle(prefix, header.num_shards, entries)


def _entry(value: bytes, num_shards: int) -> Any:
    """Parse an entry whose numbers are possible: its size in bytes is that of its shape."""
    entry = Entry.FromString(value)
    shape = [axis.size for axis in entry.shape.dim]
    if len(shape) > _MAX_AXES or min((entry.offset, entry.size, entry.shard_id, *shape)) < 0:
        raise ValueError(f"an entry of shape {shape}, with {entry.size:,} bytes at {entry.offset:,}")
    if entry.shard_id >= num_shards:
        raise ValueError(f"data file {entry.shard_id:,} of {num_shards:,}")
    dtype = _DTYPES.get(entry.dtype)
    if dtype is not None and not entry.slices and entry.size != math.prod(shape) * dtype.itemsize:
        raise ValueError(f"{entry.size:,} bytes for {dtype} of shape {shape}")
    return entry


def read_table(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield the keys and values of a table in order; a ValueError says what is wrong with it."""
    if len(data) < _FOOTER_BYTES or not data.endswith(_MAGIC):
        raise ValueError("no table: its last eight bytes are not the mark of one")
    blocks = data[:-_FOOTER_BYTES]
    _, position = _handle(data, len(blocks))  # of LevelDB's metadata, which is not used
    index, _ = _handle(data, position)
    free_from, num_entries, previous = 0, 0, None
    for _, value in _entries(_block(blocks, *index)):
        offset, size = _handle(value, 0)[0]
        if offset < free_from:  # or an index could list the same block a million times
            raise ValueError(f"blocks that overlap at byte {offset:,}")
        free_from = offset + size + _TRAILER_BYTES
        for key, entry in _entries(_block(blocks, offset, size)):
            num_entries += 1
            if num_entries > MAX_ENTRIES + 1 or (previous is not None and key <= previous):
                raise ValueError(f"too many keys, or keys out of order, at {key[:80]!r}")
            previous = key
            yield key, entry


def _handle(data: bytes, position: int) -> tuple[tuple[int, int], int]:
    """Read where a block is, (offset, size), and the position after that."""
    offset, position = _varint(data, position)
    size, position = _varint(data, position)
    return (offset, size), position


def _block(data: bytes, offset: int, size: int) -> bytes:
    """Return the contents of a block that has the right checksum."""
    if offset + size + _TRAILER_BYTES > len(data):
        raise ValueError(f"a block of {size:,} bytes at byte {offset:,} of {len(data):,}")
    compression, expected = struct.unpack_from("<BI", data, offset + size)
    if masked_crc32c(data[offset : offset + size + 1]) != expected:
        raise ValueError(f"a wrong checksum of the block at byte {offset:,}")
    if compression:  # LevelDB can; TensorFlow's writer of checkpoints never does (tensor_bundle.cc)
        raise ValueError(f"a compressed block at byte {offset:,}")
    return data[offset : offset + size]


def _entries(block: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield the entries of a block; a key may share its first bytes with the one before."""
    if len(block) < 4:
        raise ValueError("a block without an end")
    (num_restarts,) = struct.unpack_from("<I", block, len(block) - 4)
    end = len(block) - 4 - 4 * num_restarts
    if end < 0:
        raise ValueError(f"{num_restarts:,} restarts in a block of {len(block):,} bytes")
    position, key = 0, b""
    while position < end:
        shared, position = _varint(block, position)
        added, position = _varint(block, position)
        size, position = _varint(block, position)
        stop = position + added + size
        if shared > len(key) or shared + added > _MAX_KEY_BYTES or stop > end:
            raise ValueError(f"an entry that does not fit at byte {position:,} of its block")
        key = key[:shared] + block[position : position + added]
        yield key, block[position + added : stop]
        position = stop


def _varint(data: bytes, position: int) -> tuple[int, int]:
    """Read a number of seven bits per byte, the lowest first, of at most ten bytes; return the position after it."""
    number = 0
    for shift, byte in enumerate(data[position : position + 10]):
        number |= (byte & 0x7F) << 7 * shift
        if byte < 0x80:
            return number, position + shift + 1
    raise ValueError(f"unfinished number at byte {position:,}")


def write_bundle(prefix: Path, variables: Mapping[str, Tensor]) -> list[Path]:
    """Write one data file, then the index; return their paths. Until the index is there, nobody finds a checkpoint."""
    table = [(b"", Header(num_shards=1, version={"producer": 1}).SerializeToString())]

    def contents() -> Iterator[bytes]:
        offset = 0
        for name in sorted(variables):
            tensor = variables[name]
            stored = tensor.contiguous().numpy().tobytes()
            entry = Entry(
                dtype=next(number for number, dtype in _DTYPES.items() if dtype == tensor.dtype),
                shape={"dim": [{"size": size} for size in tensor.shape]},
                offset=offset,
                size=len(stored),
                crc32c=masked_crc32c(stored),
            )
            table.append((name.encode(), entry.SerializeToString()))
            offset += len(stored)
            yield stored

    data, index = data_file(prefix, 0, 1), prefix.with_name(f"{prefix.name}.index")
    write_stream(data, contents())
    write_bytes(index, table_bytes(table))
    return [data, index]


def table_bytes(entries: Sequence[tuple[bytes, bytes]]) -> bytes:
    """Return a table of one block, for entries in the order of their keys."""
    table, block = _appended(b"", entries)
    table, metadata = _appended(table, [])
    table, index = _appended(table, [(entries[-1][0] if entries else b"", block)])
    return table + (metadata + index).ljust(_FOOTER_BYTES - len(_MAGIC), b"\0") + _MAGIC


def _appended(table: bytes, entries: Sequence[tuple[bytes, bytes]]) -> tuple[bytes, bytes]:
    """Append a block to a table; return the table, and the handle of the block."""
    contents, restarts = b"", []
    for key, value in entries:  # every key is written in full, so that a reader may start at any of them
        restarts.append(len(contents))
        contents += b"\0" + _to_varint(len(key)) + _to_varint(len(value)) + key + value
    restarts = restarts or [0]
    contents += struct.pack(f"<{len(restarts) + 1}I", *restarts, len(restarts))
    stored = contents + b"\0"  # not compressed
    handle = _to_varint(len(table)) + _to_varint(len(contents))
    return table + stored + struct.pack("<I", masked_crc32c(stored)), handle


def _to_varint(number: int) -> bytes:
    data = bytearray()
    while number > 0x7F:
        data.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*data, number])
