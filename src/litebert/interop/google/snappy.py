"""Snappy, in which blocks of a TensorFlow index may be compressed."""

from __future__ import annotations

from litebert.reading.extras import missing_package

try:
    import cramjam
except ImportError as error:
    raise missing_package(
        "cramjam", extra="google", needed_for="reading TensorFlow checkpoints"
    ) from error


def decompressed(data: bytes, *, limit: int) -> bytes:
    """Return a raw snappy block unpacked.

    >>> decompressed(bytes([3, 8]) + b"abc", limit=3)
    b'abc'

    Raises:
        ValueError: It is damaged, or says that it is longer than `limit`.
    """
    try:
        if cramjam.snappy.decompress_raw_len(data) > limit:
            raise ValueError(f"a snappy block of more than {limit:,} bytes")
        return bytes(cramjam.snappy.decompress_raw(data))
    except cramjam.DecompressionError as error:
        raise ValueError(f"a damaged snappy block: {error}") from error
