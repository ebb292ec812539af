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
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

# no public function reads a bare varint
from google.protobuf.internal import decoder
from google.protobuf.message import DecodeError
from torch import Tensor

from litebert.errors import DamagedError, LitebertError, missing_package
from litebert.files import read_capped

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
    """Return the class of a message, with everything that its fields need."""
    file = descriptor_pb2.FileDescriptorProto(name="bundle.proto", syntax="proto3")
    for message, fields in _MESSAGES.items():
        described = file.message_type.add(name=message)
        for field_name, (number, type_name) in fields.items():
            field = described.field.add(name=field_name, number=number)
            is_repeated = type_name.startswith("*")
            field.label = field.LABEL_REPEATED if is_repeated else field.LABEL_OPTIONAL
            kind = type_name.removeprefix("*")
            if kind in _MESSAGES:
                field.type = field.TYPE_MESSAGE
                field.type_name = f".{kind}"
            else:
                field.type = field.Type.Value(f"TYPE_{kind.upper()}")
    # our own: TensorFlow may be loaded in the same process
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(name))


Header = _message_class("Header")
Entry = _message_class("Entry")


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
        entry = self.entries[name]
        return None if entry.slices else _DTYPES.get(entry.dtype)

    def read(self, name: str) -> Tensor:
        """Read a variable as it is stored."""
        dtype = self.dtype(name)
        if dtype is None:
            raise LitebertError(
                "LB-706",
                f"{self.prefix}: {name} is stored in slices, or not as numbers",
                next="restore it with TensorFlow and save it again as float32, without"
                " a partitioner",
            )
        stored = bytearray(self._stored(name))
        if not stored:  # frombuffer refuses it
            return torch.empty(self.shape(name), dtype=dtype)
        return torch.frombuffer(stored, dtype=dtype).reshape(self.shape(name))

    def _stored(self, name: str) -> bytes:
        """Return the bytes of a variable, which its checksum confirms."""
        entry = self.entries[name]
        path = _data_file(self.prefix, entry.shard_id, self.num_shards)
        stored = b""
        # its size is not trusted: nothing is allocated beyond the end of the file
        if path.is_file() and entry.offset + entry.size <= path.stat().st_size:
            with path.open("rb") as file:
                file.seek(entry.offset)
                stored = file.read(entry.size)
        if len(stored) != entry.size or masked_crc32c(stored) != entry.crc32c:
            raise DamagedError(
                "LB-704",
                f"{path} is missing, cut off or damaged",
                received=f"{name}, {entry.size:,} bytes at {entry.offset:,}",
                next=_AGAIN,
            )
        return stored


def _data_file(prefix: Path, shard: int, num_shards: int) -> Path:
    return prefix.with_name(f"{prefix.name}.data-{shard:05}-of-{num_shards:05}")


def masked_crc32c(data: bytes) -> int:
    """Return a checksum as TensorFlow stores it in its files (lib/hash/crc32c.h).

    >>> hex(masked_crc32c(b"123456789"))
    '0xc78ab0e5'
    """
    crc: int = google_crc32c.value(data)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


# ---- reading -------------------------------------------------------------------------


def read_bundle(prefix: Path) -> Bundle:
    """Read the index of a checkpoint, but none of its variables."""
    path = prefix.with_name(f"{prefix.name}.index")
    entries = dict[str, Any]()
    data = read_capped(path, _MAX_INDEX_BYTES)
    try:
        table = read_table(data)
        first_key, header = next(table, (b"", b""))
        num_shards = _read_header(first_key, header)
        for key, value in table:
            entry = _read_entry(value, num_shards)
            # such a key is that of a slice; the whole variable has its own entry
            if not key.startswith(b"\0"):
                entries[key.decode()] = entry
    except (ValueError, IndexError, DecodeError) as error:
        raise DamagedError(
            "LB-703",
            f"{path} is cut off, damaged, or of a kind that litebert does not read",
            received=error,
            next=_AGAIN,
        ) from error
    return Bundle(prefix, num_shards, entries)


def _read_header(key: bytes, value: bytes) -> int:
    """Return the number of data files, from the first entry of the table."""
    header = Header.FromString(value)
    num_shards: int = header.num_shards
    is_newer = header.version.min_consumer > 1
    is_possible = not key and 1 <= num_shards < 100_000
    if not is_possible or header.endianness or is_newer:
        raise ValueError(f"a header of another kind: {str(header).split()}")
    return num_shards


def _read_entry(value: bytes, num_shards: int) -> Any:
    """Return an entry whose numbers are possible, and whose size in bytes is that of
    its shape.
    """
    entry = Entry.FromString(value)
    shape = [axis.size for axis in entry.shape.dim]
    numbers = (entry.offset, entry.size, entry.shard_id, *shape)
    has_place = min(numbers) >= 0 and entry.shard_id < num_shards
    if len(shape) > _MAX_AXES or not has_place:
        raise _impossible(entry, shape)
    dtype = _DTYPES.get(entry.dtype)
    if dtype is None or entry.slices:
        return entry  # `Bundle.read` refuses it, if it is needed
    if entry.size != math.prod(shape) * dtype.itemsize:
        raise _impossible(entry, shape)
    return entry


def _impossible(entry: Any, shape: list[int]) -> ValueError:
    place = f"at {entry.offset:,} of file {entry.shard_id:,}"
    return ValueError(f"{entry.size:,} bytes {place}, shape {shape}")


def read_table(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield the keys and values of a table in order; raise ValueError or `_varints`'s
    error if it is damaged.
    """
    if len(data) < _FOOTER_BYTES or not data.endswith(_MAGIC):
        raise ValueError("not a table: the last eight bytes are not its magic number")
    blocks = data[:-_FOOTER_BYTES]
    # The footer has two locations, each an offset and a size: LevelDB's metadata, which
    # is not used, and the index.
    footer, _ = _varints(data, len(blocks), 4)
    free_from = 0
    num_entries = 0
    previous_key = None
    for _, place in _entries(blocks, *footer[2:]):
        (offset, size), _ = _varints(place, 0, 2)
        # otherwise an index could list the same block a million times
        if offset < free_from:
            raise ValueError(f"blocks that overlap at byte {offset:,}")
        free_from = offset + size + _TRAILER_BYTES
        for key, value in _entries(blocks, offset, size):
            num_entries += 1
            is_in_order = previous_key is None or previous_key < key
            if not is_in_order or num_entries > _MAX_ENTRIES + 1:
                raise ValueError(
                    f"too many keys, or keys out of order, at {key[:80]!r}"
                )
            previous_key = key
            yield key, value


def _entries(blocks: bytes, offset: int, size: int) -> Iterator[tuple[bytes, bytes]]:
    """Yield the keys and values of a block.

    An entry has three numbers (how many bytes its key shares with the one before, how
    many follow, the size of its value), then these bytes. After the entries stand the
    positions of those with a whole key ("restarts"), and their number.
    """
    block = _checked_block(blocks, offset, size)
    (num_restarts,) = struct.unpack_from("<I", block, size - 4)
    end = size - 4 - 4 * num_restarts  # of the entries
    if end < 0:
        raise ValueError(f"{num_restarts:,} restarts in a block of {size:,} bytes")
    position = 0
    key = b""
    while position < end:
        (shared, added, length), position = _varints(block, position, 3)
        value_at = position + added
        stop = value_at + length
        if shared > len(key) or shared + added > _MAX_KEY_BYTES or stop > end:
            raise ValueError(
                f"an entry that does not fit at byte {position:,} of its block"
            )
        key = key[:shared] + block[position:value_at]
        yield key, block[value_at:stop]
        position = stop


def _checked_block(blocks: bytes, offset: int, size: int) -> bytes:
    """Return the bytes of a block, which the checksum in its trailer confirms."""
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
    return block


def _varints(data: bytes, position: int, count: int) -> tuple[list[int], int]:
    """Read numbers of seven bits per byte, lowest bits first; return them and the
    position after them.
    """
    numbers = list[int]()
    for _ in range(count):
        number, position = decoder._DecodeVarint(data, position)
        numbers.append(number)
    return numbers, position
