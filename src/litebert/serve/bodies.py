"""Request bodies on their way: limited in size, in memory, and in the time a client may take."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from fastapi import Request
from starlette.types import Message

from litebert.serve.limits import MAX_BODY_BYTES, MAX_HELD_BYTES
from litebert.serve.refusals import ClientLeftError, HttpError

_TICK_SECONDS = 0.02


class Bodies:
    """Reads the bodies of one server; `held` is how many bytes of unfinished ones it has.

    A client may take `client_seconds` for its body. Only time in which the event loop was free
    counts: while the server itself is stalled, what clients sent waits unread.
    """

    def __init__(self, client_seconds: float) -> None:
        self.client_seconds, self.held = client_seconds, 0
        self._free_seconds = 0.0
        self._num_readers = 0
        self._clock: asyncio.Task[None] | None = None

    async def read(self, request: Request) -> bytes:
        """Read a body; refuse one that is too large as soon as that is known.

        Raises:
            HttpError: LB-952, LB-963, LB-966.
            ClientLeftError: the client hung up.
        """
        declared = request.headers.get("content-length", "0")
        if int(declared if declared.isdecimal() else 0) > MAX_BODY_BYTES:
            raise _too_large()
        body = bytearray()
        try:
            with self._timed():
                due = self._free_seconds + self.client_seconds
                while True:
                    message = await self._next(request, due)
                    if message["type"] == "http.disconnect":
                        raise ClientLeftError
                    chunk = message.get("body", b"")
                    body += chunk
                    self.held += len(chunk)
                    if len(body) > MAX_BODY_BYTES:
                        raise _too_large()
                    self._require_memory()
                    if not message.get("more_body", False):
                        return bytes(body)
        finally:
            self.held -= len(body)

    @contextmanager
    def _timed(self) -> Iterator[None]:
        """Run the clock while there are readers."""
        if self._num_readers == 0:
            self._clock = asyncio.create_task(self._tick())
        self._num_readers += 1
        try:
            yield
        finally:
            self._num_readers -= 1
            if self._num_readers == 0 and self._clock is not None:
                self._clock.cancel()

    async def _tick(self) -> None:
        """Count free seconds: a stall of the event loop, however long, is one tick."""
        while True:
            await asyncio.sleep(_TICK_SECONDS)
            self._free_seconds += _TICK_SECONDS

    async def _next(self, request: Request, due: float) -> Message:
        receiving = asyncio.ensure_future(request.receive())
        try:
            while not receiving.done():
                left = due - self._free_seconds
                if left <= 0:
                    raise self._too_late()
                await asyncio.wait({receiving}, timeout=left)
            return receiving.result()
        finally:
            receiving.cancel()

    def _too_late(self) -> HttpError:
        return HttpError(
            "LB-963",
            "the body did not arrive in time",
            status=408,
            expected=f"all of it within {self.client_seconds:g} s",
            next="send the request again",
        )

    def _require_memory(self) -> None:
        if self.held > MAX_HELD_BYTES:
            raise HttpError(
                "LB-966",
                "the server is reading as many bodies as it can hold",
                status=429,
                expected=f"less than {MAX_HELD_BYTES:,} bytes in flight",
                next="try again in 1 s",
                retry_after=1,
            )


def _too_large() -> HttpError:
    return HttpError(
        "LB-952",
        "the body is too large",
        status=413,
        expected=f"at most {MAX_BODY_BYTES:,} bytes",
        next="send fewer texts at once",
    )
