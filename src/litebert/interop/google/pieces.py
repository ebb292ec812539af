"""Arrays as bytes, a piece at a time."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

_PIECE_BYTES = 4 << 20


def pieces(values: NDArray[np.generic], dtype: str) -> Iterator[bytes]:
    """Yield the numbers of an array, row by row, as little-endian `dtype`; "bfloat16" too.

    A transposed view is so written without a copy of the whole.

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
