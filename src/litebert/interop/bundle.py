"""TensorFlow's checkpoint format, version 2: an index, which is a small sorted table,
and data files.

The index is a table in LevelDB's format (tensorflow/core/lib/io/table): blocks of keys
and values, each followed by a byte for its compression and a checksum; an index block
that locates them; and a footer of 48 bytes that locates the index block. The first
value, under the empty key, is a BundleHeaderProto; every other value is a
BundleEntryProto (tensor_bundle.proto) that locates the bytes of a variable in the data
files.

Nothing is trusted: sizes are checked against the file before anything is read, and
everything that is read is checked against its checksum.
"""

import math
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

# no public function reads or writes a bare varint
from google.protobuf.internal import decoder, encoder
from google.protobuf.message import DecodeError
from torch import Tensor

from litebert.errors import DamagedError, LitebertError, missing_package
from litebert.files import read_capped, write_bytes, write_stream

try:
    import google_crc32c  # the standard library has only the other CRC-32
except ImportError as error:
    raise missing_package(
        "google-crc32c", extra="google", needed_for="TensorFlow's checkpoints"
    ) from error

_MAX_INDEX_BYTES = 16 << 20  # the index of base has 1.6 kB
_MAX_ENTRIES = 10_000  # 24 unshared layers with the optimizer's slots have 1,201
_MAX_KEY_BYTES = 1_024
_MAX_AXES = 8
_MAGIC = bytes.fromhex("57fb808b247547db")
_FOOTER_BYTES = 48
_TRAILER_BYTES = 5
# The types that litebert reads, by their number in types.proto
_DTYPES = {
    1: torch.float32,
    2: torch.float64,
    3: torch.int32,
    9: torch.int64,
    14: torch.bfloat16,
    19: torch.float16,
}
_AGAIN = "fetch all files of the checkpoint again"

# The protobuf messages (tensor_bundle.proto, tensor_shape.proto, versions.proto);
# TensorFlow's own modules need TensorFlow. A field `slices`, whatever it contains,
# means that a variable is stored in parts.
_MESSAGES = {
    "Axis": {"size": (1, "int64")},
    "Shape": {"dim": (2, "*Axis"), "unknown_rank": (3, "bool")},
    "Version": {"producer": (1, "int32"), "min_consumer": (2, "int32")},
    "Header": {
        "num_shards": (1, "int32"),
        "endianness": (2, "int32"),
        "version": (3, "Version"),
    },
    "Entry": {
        "dtype": (1, "int32"),
        "shape": (2, "Shape"),
        "shard_id": (3, "int32"),
        "offset": (4, "int64"),
        "size": (5, "int64"),
        "crc32c": (6, "fixed32"),
        "slices": (7, "*bytes"),
    },
}


def _message_class(name: str) -> Any:
    file = descriptor_pb2.FileDescriptorProto(name="bundle.proto", syntax="proto3")
    for message, fields in _MESSAGES.items():
        described = file.message_type.add(name=message)
        for field, (number, kind) in fields.items():
            label = "LABEL_REPEATED" if kind[0] == "*" else "LABEL_OPTIONAL"
            kind = kind.lstrip("*")
            is_message = kind in _MESSAGES
            described.field.add(
                name=field,
                number=number,
                label=label,
                type_name=f".{kind}" if is_message else None,
                type="TYPE_MESSAGE" if is_message else f"TYPE_{kind.upper()}",
            )
    # our own: TensorFlow may be loaded in the same process
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(name))


Header, Entry = map(_message_class, ("Header", "Entry"))


@dataclass(frozen=True)
class Bundle:
    """The variables of a checkpoint by name; `prefix` is the path that all its file
    names start with.
    """

    prefix: Path
    num_shards: int
    entries: Mapping[str, Any]

    def shape(self, name: str) -> tuple[int, ...]:
        """Return the shape of a variable."""
        return tuple(axis.size for axis in self.entries[name].shape.dim)

    def dtype(self, name: str) -> torch.dtype | None:
        """Return the data type of a variable as stored; None if litebert cannot read
        it.
        """
        return (
            None if self.entries[name].slices else _DTYPES.get(self.entries[name].dtype)
        )

    def read(self, name: str) -> Tensor:
        """Read a variable as it is stored."""
        entry = self.entries[name]
        dtype = self.dtype(name)
        if dtype is None:
            what = f"{self.prefix}: {name} is stored in slices, or not as numbers"
            again = "save it again as float32"
            raise LitebertError(
                "LB-706",
                what,
                next=f"restore it with TensorFlow and {again}, without a partitioner",
            )
        path = _data_file(self.prefix, entry.shard_id, self.num_shards)
        stored = b""
        if path.is_file() and entry.offset + entry.size <= path.stat().st_size:
            with path.open("rb") as file:
                file.seek(entry.offset)
                stored = file.read(entry.size)
        if masked_crc32c(stored) != entry.crc32c or len(stored) != entry.size:
            place = f"{name}, {entry.size:,} bytes at {entry.offset:,}"
            raise DamagedError(
                "LB-704",
                f"{path} is missing, cut off or damaged",
                received=place,
                next=_AGAIN,
            )
        flat = (
            torch.frombuffer(bytearray(stored), dtype=dtype)
            if stored
            else torch.empty(0, dtype=dtype)
        )
        return flat.reshape(self.shape(name))


def _data_file(prefix: Path, shard: int, num_shards: int) -> Path:
    return prefix.with_name(f"{prefix.name}.data-{shard:05}-of-{num_shards:05}")


def masked_crc32c(data: bytes) -> int:
    """Return a checksum as TensorFlow stores it in its files (lib/hash/crc32c.h).

    >>> hex(masked_crc32c(b"123456789"))
    '0xc78ab0e5'
    """
    crc: int = google_crc32c.value(data)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


# --- reading --------------------------------------------------------------------------


def read_bundle(prefix: Path) -> Bundle:
    """Read the index of a checkpoint, but none of its variables."""
    path = prefix.with_name(f"{prefix.name}.index")
    entries = {}
    data = read_capped(path, _MAX_INDEX_BYTES, command=f"ls -l {path.parent}")
    try:
        table = read_table(data)
        key, value = next(table, (b"", b""))
        header = Header.FromString(value)
        if (
            key
            or not 1 <= header.num_shards < 100_000
            or header.endianness
            or header.version.min_consumer > 1
        ):
            raise ValueError(f"a header of another kind: {str(header).split()}")
        for key, value in table:
            entry = Entry.FromString(value)
            dtype = _DTYPES.get(entry.dtype)
            shape = [axis.size for axis in entry.shape.dim]
            is_possible = (
                len(shape) <= _MAX_AXES
                and min((entry.offset, entry.size, entry.shard_id, *shape)) >= 0
            )
            # its size in bytes is that of its shape
            if is_possible and dtype and not entry.slices:
                is_possible = entry.size == math.prod(shape) * dtype.itemsize
            if not is_possible or entry.shard_id >= header.num_shards:
                raise ValueError(
                    f"{entry.size:,} bytes at {entry.offset:,} of file"
                    f" {entry.shard_id:,}, shape {shape}"
                )
            # that is a slice; the whole variable has its own entry
            if not key.startswith(b"\0"):
                entries[key.decode()] = entry
    except (ValueError, IndexError, DecodeError) as error:
        what = f"{path} is cut off, damaged, or of a kind that litebert does not read"
        raise DamagedError("LB-703", what, received=error, next=_AGAIN) from error
    return Bundle(prefix, header.num_shards, entries)


def read_table(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield the keys and values of a table in order; raise ValueError or `_varints`'s
    error if it is damaged.
    """
    if len(data) < _FOOTER_BYTES or not data.endswith(_MAGIC):
        raise ValueError("not a table: the last eight bytes are not its magic number")
    blocks = data[:-_FOOTER_BYTES]
    free_from = 0
    num_entries = 0
    previous = None
    # The footer has two locations, each an offset and a size: LevelDB's metadata, which
    # is not used, and the index.
    (_, _, offset, size), _ = _varints(data, len(blocks), 4)
    for _, value in _entries(blocks, offset, size):
        (offset, size), _ = _varints(value, 0, 2)
        # otherwise an index could list the same block a million times
        if offset < free_from:
            raise ValueError(f"blocks that overlap at byte {offset:,}")
        free_from = offset + size + _TRAILER_BYTES
        for key, entry in _entries(blocks, offset, size):
            num_entries += 1
            if num_entries > _MAX_ENTRIES + 1 or (
                previous is not None and key <= previous
            ):
                raise ValueError(
                    f"too many keys, or keys out of order, at {key[:80]!r}"
                )
            previous = key
            yield key, entry


def _entries(blocks: bytes, offset: int, size: int) -> Iterator[tuple[bytes, bytes]]:
    block = blocks[offset : offset + size]
    trailer = blocks[offset + size : offset + size + _TRAILER_BYTES]
    if size < 4 or len(trailer) < _TRAILER_BYTES:
        raise ValueError(
            f"a block of {size:,} bytes at byte {offset:,} of {len(blocks):,}"
        )
    compression, checksum = struct.unpack("<BI", trailer)
    # TensorFlow never compresses (tensor_bundle.cc)
    if masked_crc32c(block + trailer[:1]) != checksum or compression:
        raise ValueError(f"a wrong checksum, or a compressed block, at byte {offset:,}")
    (num_restarts,) = struct.unpack_from("<I", block, size - 4)
    position = 0
    key = b""
    end = size - 4 - 4 * num_restarts
    if end < 0:
        raise ValueError(f"{num_restarts:,} restarts in a block of {size:,} bytes")
    while position < end:
        # shared: first bytes of the previous key
        (shared, added, length), position = _varints(block, position, 3)
        stop = position + added + length
        if shared > len(key) or shared + added > _MAX_KEY_BYTES or stop > end:
            raise ValueError(
                f"an entry that does not fit at byte {position:,} of its block"
            )
        key = key[:shared] + block[position : position + added]
        yield key, block[position + added : stop]
        position = stop


def _varints(data: bytes, position: int, count: int) -> tuple[list[int], int]:
    """Read numbers of seven bits per byte, lowest bits first; return them and the
    position after them.
    """
    numbers = [0] * count
    for index in range(count):
        numbers[index], position = decoder._DecodeVarint(data, position)
    return numbers, position


# --- writing --------------------------------------------------------------------------


def write_bundle(prefix: Path, variables: Mapping[str, Tensor]) -> list[Path]:
    """Write one data file, then the index; return their paths. Without an index, nobody
    finds a partial checkpoint.
    """
    table = [(b"", Header(num_shards=1, version={"producer": 1}).SerializeToString())]
    numbers = {dtype: number for number, dtype in _DTYPES.items()}

    def contents() -> Iterator[bytes]:
        offset = 0
        for name, tensor in sorted(variables.items()):
            stored = tensor.contiguous().numpy().tobytes()
            place = {
                "offset": offset,
                "size": len(stored),
                "crc32c": masked_crc32c(stored),
            }
            shape = {"dim": [{"size": size} for size in tensor.shape]}
            table.append(
                (
                    name.encode(),
                    Entry(
                        dtype=numbers[tensor.dtype], shape=shape, **place
                    ).SerializeToString(),
                )
            )
            offset += len(stored)
            yield stored

    data = _data_file(prefix, 0, 1)
    index = prefix.with_name(f"{prefix.name}.index")
    write_stream(data, contents(), force=None, accepts_same=True)
    write_bytes(index, table_bytes(table), force=None)
    return [data, index]


def table_bytes(entries: Sequence[tuple[bytes, bytes]]) -> bytes:
    """Return a table with one block of entries, which must be sorted by key."""
    table = bytearray()

    def append(rows: Sequence[tuple[bytes, bytes]]) -> bytes:
        """Append a block, and return its encoded location."""
        block = b""
        restarts = [0] * (not rows)
        # every key is written in full, so a reader may start at any of them
        for key, value in rows:
            restarts.append(len(block))
            block += (
                b"\0"
                + encoder._VarintBytes(len(key))
                + encoder._VarintBytes(len(value))
                + key
                + value
            )
        block += struct.pack(f"<{len(restarts) + 1}I", *restarts, len(restarts))
        place: bytes = encoder._VarintBytes(len(table)) + encoder._VarintBytes(
            len(block)
        )
        # 0: not compressed
        table.extend(block + b"\0" + struct.pack("<I", masked_crc32c(block + b"\0")))
        return place

    place = append(entries)
    metadata = append([])
    index = append([(entries[-1][0] if entries else b"", place)])
    return (
        bytes(table)
        + (metadata + index).ljust(_FOOTER_BYTES - len(_MAGIC), b"\0")
        + _MAGIC
    )
