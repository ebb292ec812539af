"""Messages between server and model process: JSON with a length prefix."""

from __future__ import annotations

import asyncio
import json
from typing import BinaryIO

from litebert.files import Json

_LENGTH_BYTES = 4


def frame(value: Json) -> bytes:
    """Return a value as one frame."""
    body = json.dumps(value, ensure_ascii=False, allow_nan=False).encode("utf-8", "surrogatepass")
    return len(body).to_bytes(_LENGTH_BYTES, "big") + body


def read_frame(file: BinaryIO) -> Json:
    """Read the next frame; None when the other side has closed.

    >>> import io
    >>> read_frame(io.BytesIO(frame({"a": [1]})))
    {'a': [1]}
    """
    head = file.read(_LENGTH_BYTES)
    if len(head) < _LENGTH_BYTES:
        return None
    value: Json = json.loads(file.read(int.from_bytes(head, "big")))
    return value


async def receive_frame(reader: asyncio.StreamReader) -> Json:
    """Wait for the next frame.

    Raises:
        asyncio.IncompleteReadError, ConnectionError: The other side is gone.
    """
    size = int.from_bytes(await reader.readexactly(_LENGTH_BYTES), "big")
    value: Json = json.loads(await reader.readexactly(size))
    return value
