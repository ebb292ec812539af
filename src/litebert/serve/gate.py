"""Middleware for every request: checks its API key, times its answer and adds headers."""

from __future__ import annotations

import hashlib
import hmac
import time
from collections.abc import Sequence

from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from litebert.serve.limits import MAX_HEADER_BYTES
from litebert.serve.metrics import Metrics
from litebert.serve.refusals import HttpError, body_of
from litebert.serve.strict_json import encode

_HEADERS = [
    (
        b"content-security-policy",
        b"default-src 'self'; img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
]


class Gate:
    """Middleware around the whole application."""

    def __init__(self, app: ASGIApp, metrics: Metrics, api_keys: Sequence[str]) -> None:
        self._app, self._metrics = app, metrics
        self._keys = [_digest(key) for key in api_keys]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass one request on, or refuse it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started, status = time.monotonic(), 500

        async def send_with_headers(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message["headers"], *_HEADERS]
            await send(message)

        try:
            refusal = _oversized(scope) or self._unauthorised(scope)
            answer = self._app if refusal is None else _response(refusal)
            await answer(scope, receive, send_with_headers)
        finally:
            route = getattr(scope.get("route"), "path", "other")
            self._metrics.answered(route, status, time.monotonic() - started)

    def _unauthorised(self, scope: Scope) -> HttpError | None:
        """Compare the key with every one we know, in constant time."""
        if not self._keys or not scope["path"].startswith("/v1/") or scope["method"] == "OPTIONS":
            return None
        given = Headers(scope=scope).get("authorization", "").removeprefix("Bearer ")
        matches = [hmac.compare_digest(_digest(given), key) for key in self._keys]
        if any(matches):
            return None
        return HttpError(
            "LB-960",
            "this server needs an API key",
            status=401,
            expected="Authorization: Bearer KEY, with a key of this server",
            next="get one from its operator",
        )


def _oversized(scope: Scope) -> HttpError | None:
    """Limit complete headers; uvicorn limits those that are still arriving."""
    size = sum(len(name) + len(value) for name, value in scope["headers"])
    if size <= MAX_HEADER_BYTES:
        return None
    return HttpError(
        "LB-972",
        "the headers are too large",
        status=431,
        expected=f"at most {MAX_HEADER_BYTES:,} bytes of headers",
        next="send texts in the body",
    )


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.strip().encode("utf-8", "surrogateescape")).digest()


def _response(error: HttpError) -> Response:
    return Response(encode(body_of(error)), error.status, headers=error.headers, media_type="application/json")
