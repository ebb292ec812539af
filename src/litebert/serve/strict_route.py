"""Routes that read their body themselves: capped, in time, strict JSON, before FastAPI sees it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from fastapi import Request, Response
from fastapi.routing import APIRoute

from litebert.files import Json
from litebert.serve import strict_json
from litebert.serve.limits import MAX_BODY_BYTES, MAX_HELD_BYTES, Settings
from litebert.serve.refusals import ClientLeftError, HttpError


class HeldBytes:
    """How many bytes of unread bodies the server holds, over all requests."""

    def __init__(self) -> None:
        self.total = 0


class ReadRequest(Request):
    """A request whose body has been read and decoded."""

    _decoded: Json = None

    async def json(self) -> Json:
        """Return the decoded body."""
        return self._decoded


class StrictRoute(APIRoute):
    """A route whose JSON body is read by the server's own rules."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Read and decode the body, then let FastAPI validate it."""
        handle = super().get_route_handler()
        if self.body_field is None:
            return handle

        async def read_first(request: Request) -> Response:
            _require_json(request)
            body = await _read(request, request.app.state.settings, request.app.state.held)
            read = ReadRequest(request.scope, request.receive)
            read._body, read._decoded = body, strict_json.decode(body)
            return await handle(read)

        return read_first


def _require_json(request: Request) -> None:
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    encoding = request.headers.get("content-encoding", "identity").strip().lower()
    if kind == "application/json" and encoding == "identity":
        return
    raise HttpError(
        "LB-953",
        "the body is not plain JSON",
        status=415,
        expected="Content-Type: application/json, and no Content-Encoding",
        next="send the body uncompressed, with that header",
    )


async def _read(request: Request, settings: Settings, held: HeldBytes) -> bytes:
    """Read the body; refuse one that is too large as soon as that is known."""
    declared = request.headers.get("content-length", "0")
    if int(declared if declared.isdecimal() else 0) > MAX_BODY_BYTES:
        raise _too_large()
    chunks: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(settings.client_seconds):
            while True:
                message = await request.receive()
                if message["type"] == "http.disconnect":
                    raise ClientLeftError
                chunk = message.get("body", b"")
                chunks.append(chunk)
                size += len(chunk)
                held.total += len(chunk)
                if size > MAX_BODY_BYTES:
                    raise _too_large()
                _require_memory(held)
                if not message.get("more_body", False):
                    return b"".join(chunks)
    except TimeoutError as error:
        raise HttpError(
            "LB-963",
            "the body did not arrive in time",
            status=408,
            expected=f"all of it within {settings.client_seconds:g} s",
            next="send the request again",
        ) from error
    finally:
        held.total -= size


def _too_large() -> HttpError:
    return HttpError(
        "LB-952",
        "the body is too large",
        status=413,
        expected=f"at most {MAX_BODY_BYTES:,} bytes",
        next="send fewer texts at once",
    )


def _require_memory(held: HeldBytes) -> None:
    if held.total > MAX_HELD_BYTES:
        raise HttpError(
            "LB-966",
            "the server is reading as many bodies as it can hold",
            status=429,
            expected=f"less than {MAX_HELD_BYTES:,} bytes in flight",
            next="try again in 1 s",
            retry_after=1,
        )
