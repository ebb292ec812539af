"""Write arrays piece by piece, and safetensors files tensor by tensor."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from litebert.files import Json, write_stream
from litebert.folder.heads import Shapes

_PIECE_BYTES = 4 << 20


def write_tensors(path: Path, shapes: Shapes, value: Callable[[str], NDArray[np.float32]]) -> None:
    """Write a safetensors file of float32 tensors; `value` computes each as it is written."""
    write_stream(path, _chunks(shapes, value))


def _chunks(shapes: Shapes, value: Callable[[str], NDArray[np.float32]]) -> Iterator[bytes]:
    header: dict[str, Json] = {"__metadata__": {"format": "pt"}}
    begin = 0
    for name, shape in shapes.items():
        end = begin + 4 * math.prod(shape)
        header[name] = {"dtype": "F32", "shape": list(shape), "data_offsets": [begin, end]}
        begin = end
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)  # tensors begin at multiples of eight bytes
    yield len(text).to_bytes(8, "little") + text
    for name, shape in shapes.items():
        tensor = value(name)
        assert tensor.shape == shape, name
        yield from pieces(tensor, "float32")


def pieces(values: NDArray[np.generic], dtype: str) -> Iterator[bytes]:
    """Yield the numbers of an array, row by row, as little-endian `dtype`, "bfloat16" included.

    In this way a transposed view is written without a copy of all of it.

    >>> b"".join(pieces(np.array([[1, 2], [3, 4]]).T, "int8"))
    b'\\x01\\x03\\x02\\x04'
    """
    rows = np.atleast_1d(values)
    row_bytes = max(1, rows[:1].nbytes)
    step = max(1, _PIECE_BYTES // row_bytes)
    for begin in range(0, len(rows), step):
        some = rows[begin : begin + step]
        if dtype == "bfloat16":
            yield _bfloat16(np.ascontiguousarray(some, "<f4"))
        else:
            yield some.astype(np.dtype(dtype).newbyteorder("<")).tobytes()


def _bfloat16(floats: NDArray[np.float32]) -> bytes:
    """Round finite numbers to the nearest bfloat16, halves to the even one.

    >>> _bfloat16(np.array([1.0, 1.00390625, 1.01171875], np.float32)).hex()
    '803f803f823f'
    """
    bits = floats.view("<u4")
    rounded: NDArray[np.uint32] = bits + 0x7FFF + (bits >> 16 & 1)
    return (rounded >> 16).astype("<u2").tobytes()
