"""Read a checkpoint of TensorFlow, version 2: an index, and data files that are memory-mapped.

Nothing is read before it is needed, and everything that is read is checked by its checksum.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from litebert.errors import DamagedError, LitebertError
from litebert.files import read_capped
from litebert.interop.google.codec import masked_crc32c
from litebert.interop.google.entry import STORED_AS, Entry, Header, read_entry, read_header
from litebert.interop.google.table import MAX_ENTRIES, MAX_TABLE_BYTES, TableError, read_table

_MAX_SHARDS = 99_999
_CHUNK = 1 << 20


@dataclass(frozen=True)
class Bundle:
    """The variables of a checkpoint by name; `prefix` is the path that names all its files."""

    prefix: Path
    num_shards: int
    entries: Mapping[str, Entry]

    def read(self, name: str) -> NDArray[np.float32]:
        """Return a variable as float32, whichever floating-point type it is stored in.

        Raises:
            LitebertError: LB-706, the variable is of a kind that no ALBERT has.
            DamagedError: LB-704, a data file is missing or cut off; LB-705, a wrong checksum.
        """
        stored = self._stored(name)
        if self.entries[name].dtype == "bfloat16":
            wide = stored.view("<u2").astype("<u4")
            wide <<= 16
            return wide.view("<f4").reshape(self.entries[name].shape)
        typed = stored.view(np.dtype(self.entries[name].dtype).newbyteorder("<"))
        with np.errstate(over="ignore"):  # float64 beyond float32 becomes infinity, found later
            return typed.astype(np.float32, copy=False).reshape(self.entries[name].shape)

    def read_count(self, name: str) -> int:
        """Return a variable that is a single whole number, such as global_step."""
        entry = self.entries[name]
        if entry.dtype not in ("int32", "int64") or entry.shape:
            raise _unreadable(self, name, f"{entry.dtype} of shape {list(entry.shape)}")
        return int(self._stored(name).view(f"<i{entry.size}")[0])

    def _stored(self, name: str) -> NDArray[np.uint8]:
        entry = self.entries[name]
        if not entry.dtype or entry.is_sliced:
            kind = "one stored in slices" if entry.is_sliced else "neither floats nor whole numbers"
            raise _unreadable(self, name, kind)
        path = data_file(self.prefix, entry.shard, self.num_shards)
        size = path.stat().st_size if path.is_file() else -1
        if entry.offset + entry.size > size:
            raise DamagedError(
                "LB-704",
                f"{path} is missing or cut off",
                received=f"{size:,} bytes" if size >= 0 else "no such file",
                expected=f"{entry.offset + entry.size:,} bytes or more, where {name} ends",
                next=f"put all {self.num_shards} data files beside {self.prefix.name}.index",
            )
        if not entry.size:
            return np.empty(0, np.uint8)
        mapped = np.memmap(path, np.uint8, "r", entry.offset, (entry.size,))
        stored = np.array(mapped)
        if masked_crc32c(_chunks(stored)) != entry.checksum:
            raise DamagedError(
                "LB-705",
                f"{path} is damaged",
                received=f"a wrong checksum of {name}",
                expected="the bytes that were written",
                next="fetch the checkpoint again",
            )
        return stored


def read_bundle(prefix: Path) -> Bundle:
    """Read the index of a checkpoint.

    Raises:
        DamagedError: LB-703, the index is cut off or damaged.
        LitebertError: LB-707, it has another byte order or version.
    """
    path = prefix.with_name(f"{prefix.name}.index")
    data = read_capped(path, MAX_TABLE_BYTES, command=f"ls -l {path.parent}")
    try:
        header, entries = _parsed(data)
    except ValueError as error:  # also of the wire format, of snappy and of UTF-8
        raise DamagedError(
            "LB-703",
            f"{path} is cut off or damaged",
            received=str(error),
            expected="the index of a checkpoint, as tf.train.Saver writes it",
            next="fetch the checkpoint again",
        ) from error
    if header.is_big_endian or header.min_consumer > 1:
        raise LitebertError(
            "LB-707",
            f"{path} is of a kind that litebert does not read",
            received="big-endian" if header.is_big_endian else f"version {header.min_consumer}",
            expected="a little-endian checkpoint of format version 1",
            next="restore it with TensorFlow on this machine and save it again",
        )
    return Bundle(prefix, header.num_shards, entries)


def data_file(prefix: Path, shard: int, num_shards: int) -> Path:
    """Return the path of one data file.

    >>> data_file(Path("model.ckpt"), 1, 3).name
    'model.ckpt.data-00001-of-00003'
    """
    return prefix.with_name(f"{prefix.name}.data-{shard:05}-of-{num_shards:05}")


def _parsed(data: bytes) -> tuple[Header, dict[str, Entry]]:
    table = read_table(data)
    key, value = next(table, (b"", b""))
    header = read_header(value)
    if key or not 1 <= header.num_shards <= _MAX_SHARDS:
        raise TableError(f"{header.num_shards:,} data files")
    entries: dict[str, Entry] = {}
    for key, value in table:
        if key.startswith(b"\0"):  # a slice of a variable; its whole has an entry of its own
            continue
        entry = read_entry(value)
        if entry.shard >= header.num_shards or len(entries) == MAX_ENTRIES:
            raise TableError(f"data file {entry.shard:,} of {header.num_shards:,}, or too many")
        entries[key.decode("utf-8")] = entry
    return header, entries


def _chunks(stored: NDArray[np.uint8]) -> Iterator[bytes]:
    for begin in range(0, len(stored), _CHUNK):
        yield stored[begin : begin + _CHUNK].tobytes()


def _unreadable(bundle: Bundle, name: str, kind: str) -> LitebertError:
    return LitebertError(
        "LB-706",
        f"{bundle.prefix}: the variable {name} cannot be read",
        received=kind,
        expected=f"a complete variable of {', '.join(STORED_AS.values())}",
        next="restore it with TensorFlow and save it without a partitioner, as float32",
    )
