"""Write a checkpoint of TensorFlow, version 2, piece by piece."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from litebert.files import write_bytes, write_stream
from litebert.interop.google.bundle import data_file
from litebert.interop.google.codec import masked_crc32c
from litebert.interop.google.entry import ITEM_BYTES, Entry, entry_bytes, header_bytes
from litebert.interop.google.streamed import pieces
from litebert.interop.google.table_writer import table_bytes

Stored = Literal["float32", "bfloat16", "int64"]


@dataclass(frozen=True)
class Variable:
    """A variable to write; `values` may be a view."""

    name: str
    values: NDArray[np.float32] | NDArray[np.int64]
    dtype: Stored = "float32"

    @property
    def size(self) -> int:
        """Bytes on disk."""
        return self.values.size * ITEM_BYTES[self.dtype]


def write_bundle(prefix: Path, variables: Sequence[Variable], *, num_shards: int = 1) -> list[Path]:
    """Write data files of about the same size, then the index; return their paths.

    A reader finds no checkpoint before the index is there.
    """
    paths, entries = [], dict[bytes, Entry]()
    for number, shard in enumerate(_shards(variables, num_shards)):
        path = data_file(prefix, number, num_shards)
        write_stream(path, _data(shard, number, entries))
        paths.append(path)
    index = prefix.with_name(f"{prefix.name}.index")
    described = [(name, entry_bytes(entry)) for name, entry in sorted(entries.items())]
    write_bytes(index, table_bytes([(b"", header_bytes(num_shards)), *described]))
    return [*paths, index]


def _shards(variables: Sequence[Variable], num_shards: int) -> list[list[Variable]]:
    """Deal the variables out, the largest first, each to the data file that has least.

    In a file they are in the order of their names, as TensorFlow writes them.
    """
    shards: list[list[Variable]] = [[] for _ in range(num_shards)]
    sizes = [0] * num_shards
    for variable in sorted(variables, key=lambda each: -each.size):
        least = sizes.index(min(sizes))
        shards[least].append(variable)
        sizes[least] += variable.size
    return [sorted(shard, key=lambda each: each.name) for shard in shards]


def _data(
    variables: Sequence[Variable], shard: int, entries: dict[bytes, Entry]
) -> Iterator[bytes]:
    """Yield the bytes of each variable, and note in `entries` where they are."""
    offset = 0
    for variable in variables:
        entries[variable.name.encode()] = Entry(
            dtype=variable.dtype,
            shape=variable.values.shape,
            shard=shard,
            offset=offset,
            size=variable.size,
            checksum=masked_crc32c(pieces(variable.values, variable.dtype)),
        )
        offset += variable.size
        yield from pieces(variable.values, variable.dtype)
