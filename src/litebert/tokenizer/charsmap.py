"""Check sentencepiece's character map, so that no text can make native code read outside of it.

The format (sentencepiece `normalizer.cc`): the size of a double-array trie in 4 bytes, the trie in
4-byte units, then the replacements, each ended by a zero byte. From unit `i`, byte `b` leads to
unit `i ^ offset ^ b`; if a unit has a leaf, it is at `i ^ offset` and contains the start of its
replacement.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def charsmap_fault(data: bytes) -> str | None:
    """Return what is wrong with a character map; None if every path through it stays inside.

    >>> charsmap_fault(b"12")
    'shorter than its header'
    """
    if len(data) < 4:
        return "shorter than its header"
    trie_size = int.from_bytes(data[:4], "little")
    if trie_size == 0 or trie_size % 4 or trie_size >= len(data) - 4:
        return f"a trie of {trie_size:,} bytes in {len(data):,}"
    replacements = data[4 + trie_size :]
    if replacements[-1] != 0:
        return "the last replacement does not end"
    try:
        replacements.decode("utf-8")
    except UnicodeDecodeError as error:
        return f"a replacement is not UTF-8 at byte {error.start}"
    units = np.frombuffer(data, "<u4", trie_size // 4, 4).astype(np.int64)
    return _trie_fault(units, np.frombuffer(replacements, np.uint8))


def _trie_fault(units: NDArray[np.int64], replacements: NDArray[np.uint8]) -> str | None:
    is_leaf = units >> 31 == 1
    offsets = (units >> 10) << ((units & 1 << 9) >> 6)
    targets = np.arange(len(units)) ^ offsets
    if ((targets | 0xFF) >= len(units))[~is_leaf].any():
        return "a transition leads out of the trie"
    leaves = targets[~is_leaf & (units >> 8 & 1 == 1)]
    if not is_leaf[leaves].all():
        return "a leaf is missing"
    starts = units[leaves] & (1 << 31) - 1
    if (starts >= len(replacements)).any():
        return "a replacement starts outside the table"
    if ((replacements[starts] & 0xC0) == 0x80).any():
        return "a replacement starts inside a character"
    return None
