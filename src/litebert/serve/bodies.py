"""Reading request bodies: limited in size, in memory, and in the time a client may take."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import Request

from litebert.serve.limits import MAX_BODY_BYTES, MAX_HELD_BYTES
from litebert.serve.refusals import ClientLeftError, HttpError

_TICK_SECONDS = 0.02


class Bodies:
    """Reads the bodies of one server; `held` is the number of bytes of unfinished ones.

    A client may take `client_seconds` for its body. Only time in which the event loop was free
    counts: while the server itself is stalled, the bytes that clients have sent stay unread.
    """

    def __init__(self, client_seconds: float) -> None:
        self.client_seconds, self.held = client_seconds, 0
        self._free_seconds = 0.0
        self._due: dict[asyncio.Timeout, float] = {}
        self._clock: asyncio.TimerHandle | None = None

    async def read(self, request: Request) -> bytes:
        """Read a body; refuse one that is too large as soon as that is known.

        Raises:
            HttpError: LB-952, it is too large; LB-963, it is too slow; LB-966, the server has no
                memory for it.
            ClientLeftError: The client hung up.
        """
        declared = request.headers.get("content-length", "0")
        if int(declared if declared.isdecimal() else 0) > MAX_BODY_BYTES:
            raise _too_large()
        body = bytearray()
        try:
            async with self._timed():
                while True:
                    message = await request.receive()
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
        except TimeoutError as error:
            raise self._too_late() from error
        finally:
            self.held -= len(body)

    @asynccontextmanager
    async def _timed(self) -> AsyncIterator[None]:
        """Limit the block to the client's time; the clock runs while any body is being read."""
        async with asyncio.timeout(None) as limit:
            self._due[limit] = self._free_seconds + self.client_seconds
            if self._clock is None:
                self._run_clock()
            try:
                yield
            finally:
                del self._due[limit]
                if not self._due and self._clock is not None:
                    self._clock.cancel()
                    self._clock = None

    def _run_clock(self) -> None:
        self._clock = asyncio.get_running_loop().call_later(_TICK_SECONDS, self._tick)

    def _tick(self) -> None:
        """Count free seconds: a stall of the event loop, however long, is one tick."""
        self._free_seconds += _TICK_SECONDS
        now = asyncio.get_running_loop().time()
        for limit, due in self._due.items():
            if due <= self._free_seconds and not limit.expired():
                limit.reschedule(now)
        self._run_clock()

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
