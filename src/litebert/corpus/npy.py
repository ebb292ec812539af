"""One-dimensional .npy files: written in blocks, and mapped only if the header is exactly ours."""

from __future__ import annotations

from pathlib import Path
from typing import Self

import numpy as np
from numpy.typing import NDArray

HEADER_BYTES = 128


def header(dtype: str, length: int) -> bytes:
    """Return the header of format 1.0 for `length` values, always 128 bytes.

    >>> len(header("<u2", 0)) == len(header("<i8", 10**18)) == HEADER_BYTES
    True
    """
    text = f"{{'descr': '{dtype}', 'fortran_order': False, 'shape': ({length},), }}"
    start = b"\x93NUMPY\x01\x00" + (HEADER_BYTES - 10).to_bytes(2, "little")
    return start + text.encode().ljust(HEADER_BYTES - 11) + b"\n"


class ArrayWriter:
    """Append to a new .npy file; after the `with` block, `np.load` can read or map it.

    Use it in a staged folder, so that an unfinished file is never found.
    """

    def __init__(self, path: Path, dtype: str) -> None:
        self.length = 0
        self._dtype = dtype
        self._file = open(path, "wb")  # noqa: SIM115  closed by __exit__
        self._file.write(header(dtype, 0))

    def append(self, values: NDArray[np.integer]) -> None:
        """Append values, cast to the dtype of the file."""
        self._file.write(values.astype(self._dtype).data)
        self.length += len(values)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        with self._file:
            if kind is None:
                self._file.seek(0)
                self._file.write(header(self._dtype, self.length))


def map_array(path: Path, dtype: str, length: int) -> NDArray[np.integer] | None:
    """Map a file of `length` values for reading; None if its header differs."""
    with open(path, "rb") as file:
        if file.read(HEADER_BYTES) != header(dtype, length):
            return None
    return np.memmap(path, dtype, mode="r", offset=HEADER_BYTES, shape=(length,))
