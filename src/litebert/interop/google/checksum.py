"""crc32c as TensorFlow's files store it."""

from __future__ import annotations

from collections.abc import Iterable

from litebert.reading.extras import missing_package

try:
    import google_crc32c
except ImportError as error:
    raise missing_package(
        "google-crc32c", extra="google", needed_for="reading and writing TensorFlow checkpoints"
    ) from error


def masked_crc32c(chunks: Iterable[bytes]) -> int:
    """Return the checksum of the chunks end to end, masked (TensorFlow, lib/hash/crc32c.h).

    >>> hex(masked_crc32c([b"12345", b"6789"]))
    '0xc78ab0e5'
    """
    crc = 0
    for chunk in chunks:
        crc = google_crc32c.extend(crc, chunk)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF
