"""crc32c and Snappy as TensorFlow's files use them."""

from __future__ import annotations

from collections.abc import Iterable

from litebert.errors import missing_package

try:
    import cramjam
    import google_crc32c
except ImportError as error:
    raise missing_package(
        error.name or "google-crc32c", extra="google", needed_for="reading and writing TensorFlow checkpoints"
    ) from error


def masked_crc32c(chunks: Iterable[bytes]) -> int:
    """Return the masked checksum of the chunks, one after the other (lib/hash/crc32c.h).

    >>> hex(masked_crc32c([b"12345", b"6789"]))
    '0xc78ab0e5'
    """
    crc = 0
    for chunk in chunks:
        crc = google_crc32c.extend(crc, chunk)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def decompressed(data: bytes, *, limit: int) -> bytes:
    """Decompress a raw Snappy block.

    >>> decompressed(bytes([3, 8]) + b"abc", limit=3)
    b'abc'

    Raises:
        ValueError: It is damaged, or its stated size is above `limit`.
    """
    try:
        if cramjam.snappy.decompress_raw_len(data) > limit:
            raise ValueError(f"a snappy block of more than {limit:,} bytes")
        return bytes(cramjam.snappy.decompress_raw(data))
    except cramjam.DecompressionError as error:
        raise ValueError(f"a damaged snappy block: {error}") from error
