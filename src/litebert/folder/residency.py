"""Memory of a loaded model that the system may take; it is read from the file again on access."""

from __future__ import annotations

import ctypes
import mmap
import sys
from collections.abc import Iterable

from torch import Tensor

_PAGEOUT = 21
"""MADV_PAGEOUT (Linux 5.4): unlike MADV_DONTNEED it loses nothing that was written."""


def release(tensors: Iterable[Tensor]) -> None:
    """Drop the pages of tensors in a mapped file, and what the heap has free.

    Weights are packed into memory of their own; the file behind them is then only read again for
    rows of the word table. Elsewhere than on Linux this does nothing.
    """
    if sys.platform != "linux":
        return
    libc = ctypes.CDLL(None)
    for tensor in tensors:
        start = -(-tensor.data_ptr() // mmap.PAGESIZE) * mmap.PAGESIZE
        stop = (tensor.data_ptr() + tensor.nbytes) // mmap.PAGESIZE * mmap.PAGESIZE
        if stop > start:
            libc.madvise(ctypes.c_void_p(start), ctypes.c_size_t(stop - start), _PAGEOUT)
    if hasattr(libc, "malloc_trim"):  # glibc
        libc.malloc_trim(0)
