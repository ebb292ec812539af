"""Checks of every request: limits, API keys, strict JSON, errors that repeat no input;
and metrics.
"""

import asyncio
import hashlib
import hmac
import json
import time
from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass
from ipaddress import ip_address
from typing import cast
from urllib.parse import urlsplit

import h11
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from pydantic_core import to_json
from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from litebert.errors import LitebertError
from litebert.files import Json, parse_json

MAX_BODY_BYTES = 2_000_000
MAX_HEADER_BYTES = 16_384
MAX_TEXTS = 32
MAX_CHARACTERS = 10_000
# texts for OpenAI's embeddings, with no more characters in total than our routes allow
MAX_INPUTS = 2_048
MAX_TOP = 50
MAX_TIMEOUT_MS = 120_000
MAX_SCORED_CHARACTERS = 1_000
# the most tokens of a text to score, which takes a pass for each token, or to explain,
# which takes a hundred passes
MAX_SCORED_TOKENS = 128
MAX_CONNECTIONS = 1_024
MAX_HELD_BYTES = 64 << 20  # of unfinished request bodies, together
# A client must read at least so much of an answer in --client-seconds.
MIN_READ_BYTES = 64 << 10
IDLE_SECONDS = 30  # a connection without a request is closed after this long
STOP_SECONDS = 8  # accepted requests have this long to finish after SIGTERM

_POLICY = (
    b"default-src 'self'; img-src 'self' data:; base-uri 'none'; form-action 'none';"
    b" frame-ancestors 'none'"
)
SECURITY_HEADERS = [
    (b"content-security-policy", _POLICY),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
]


class HttpError(LitebertError):
    """A refusal with an HTTP status; `retry` is in seconds. It never repeats any part
    of the input.
    """

    def __init__(
        self,
        code: str,
        what: str,
        *,
        status: int,
        next: str,
        expected: str = "",
        param: str = "",
        retry: int = 0,
    ) -> None:
        super().__init__(code, what, expected=expected, next=next)
        self.status = status
        self.param = param
        self.retry = retry


def reply(
    value: object, status: int = 200, headers: dict[str, str] | None = None
) -> Response:
    """Return compact JSON in UTF-8; arrays become lists, and NaN, which no verb returns,
    null.
    """
    return Response(
        to_json(value, inf_nan_mode="null", fallback=lambda array: array.tolist()),
        status,
        headers=headers,
        media_type="application/json",
    )


def problem(error: HttpError) -> Response:
    """Return an error in a form that OpenAI's clients can read, too."""
    headers = dict[str, str]()
    if error.status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    if error.retry:
        headers["Retry-After"] = str(error.retry)
    expected = f"; expected: {error.expected}" if error.expected else ""
    message = f"{error.what}{expected}; next: {error.next}"
    body = {
        "message": message,
        "type": "litebert_error",
        "param": error.param or None,
        "code": error.code,
    }
    return reply({"error": body}, error.status, headers)


# ---- bodies --------------------------------------------------------------------------


def decode(body: bytes) -> Json:
    """Return the value of a JSON text in UTF-8; raise for anything that parsers
    disagree on.

    This includes NaN and Infinity, duplicate keys, very deep nesting, very long
    integers, invalid UTF-8, a byte order mark, and lone surrogates.
    """
    try:
        value = cast(Json, parse_json(body.decode("utf-8"), distinct_keys=True))
        # "\ud800" and 1e999 cannot be written
        json.dumps(value, ensure_ascii=False, allow_nan=False).encode("utf-8")
    except (ValueError, RecursionError) as error:
        raise HttpError(
            "LB-951",
            "the body is not strict JSON",
            status=400,
            expected=(
                "one JSON value in UTF-8: no NaN, no duplicate keys, no lone"
                " surrogates, not very deep"
            ),
            next="write it with a JSON library; /docs shows an example of each body",
        ) from error
    return value


class Bodies:
    """Reads request bodies, with limits on size, on memory and on the time that a
    client may take.
    """

    def __init__(self, client_seconds: float) -> None:
        self.client_seconds = client_seconds
        self.held = 0  # bytes of all bodies that are being read

    async def read(self, request: Request) -> Json:
        """Return the decoded body; refuse a body that is too large as soon as this is
        known.
        """
        _require_plain_json(request)
        declared = request.headers.get("content-length", "0")
        size = int(declared) if declared.isdecimal() else 0
        body = bytearray()
        self._require_room(size)
        try:
            async with asyncio.timeout(self.client_seconds):
                is_whole = False
                while not is_whole:
                    message = await request.receive()
                    if message["type"] == "http.disconnect":
                        raise ClientDisconnect
                    chunk = message.get("body", b"")
                    is_whole = not message.get("more_body", False)
                    body += chunk
                    self.held += len(chunk)
                    # others are read at the same time, and may have filled the memory
                    self._require_room(max(size, len(body)))
                return decode(bytes(body))
        except TimeoutError as error:
            raise HttpError(
                "LB-963",
                f"the body did not arrive within {self.client_seconds:g} s",
                status=408,
                next="send the request again",
            ) from error
        finally:
            self.held -= len(body)

    def _require_room(self, size: int) -> None:
        """Refuse a body of this many bytes if it is too large, or if there is no room
        for any more of it.
        """
        if size > MAX_BODY_BYTES:
            raise HttpError(
                "LB-952",
                f"the body has more than {MAX_BODY_BYTES:,} bytes",
                status=413,
                next="send fewer texts at once",
            )
        if self.held > MAX_HELD_BYTES:
            raise HttpError(
                "LB-966",
                "the server is reading as many bodies as it can hold,"
                f" {MAX_HELD_BYTES:,} bytes",
                status=429,
                next="try again in 1 s",
                retry=1,
            )


def _require_plain_json(request: Request) -> None:
    """Refuse a body that is compressed, or not declared to be JSON."""
    headers = request.headers
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    encoding = headers.get("content-encoding", "identity").strip().lower()
    if kind != "application/json" or encoding != "identity":
        raise HttpError(
            "LB-953",
            "the body is not plain JSON",
            status=415,
            next="send it uncompressed, with Content-Type: application/json",
        )


# ---- every request -------------------------------------------------------------------


@dataclass(frozen=True)
class Gate:
    """Middleware around the application: checks the API key, refuses requests under
    overload, times the answer.

    Under overload, nearly all requests are refused, on the core that also computes.
    `overload` is called here because reading the body, finding the route and checking
    the fields would double the CPU time of a refusal.
    """

    app: ASGIApp
    paths: Set[str]
    metrics: "Metrics"
    keys: Sequence[bytes]  # the digests of the API keys
    overload: Callable[[str], HttpError | None]
    # a server for this machine alone: the names beside its own that requests may use
    names: Set[str] | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        started = time.monotonic()
        status = 500
        names = {name for name, _ in scope["headers"]}
        if {b"content-length", b"transfer-encoding"} <= names:
            # Two lengths may hide a second request in the body. The connection must end
            # after the answer (RFC 9112, 6.1): uvicorn closes it for this header.
            scope["headers"].append((b"connection", b"close"))

        async def send_with_headers(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message["headers"], *SECURITY_HEADERS]
            await send(message)

        try:
            answer = self.app
            refusal = self._refusal(scope)
            if refusal is not None:
                answer = problem(refusal)
            await answer(scope, receive, send_with_headers)
        finally:
            route = scope["path"] if scope["path"] in self.paths else "other"
            self.metrics.requests.labels(route, str(status)).inc()
            self.metrics.seconds.labels(route).observe(time.monotonic() - started)

    def _refusal(self, scope: Scope) -> HttpError | None:
        """Return the error for a request that the application need not see."""
        num_bytes = 0
        for name, value in scope["headers"]:
            num_bytes += len(name) + len(value)
        if num_bytes > MAX_HEADER_BYTES:
            return HttpError(
                "LB-972",
                f"the headers have more than {MAX_HEADER_BYTES:,} bytes",
                status=431,
                next="send texts in the body",
            )
        if self.names is not None:
            host = Headers(scope=scope).get("host", "")
            if is_name_of_a_site(host) and _name_in(host) not in self.names:
                return HttpError(
                    "LB-978",
                    "this server answers its own machine only, and the request names"
                    " another host",
                    status=421,
                    expected="Host: localhost, an address, or a name without a dot",
                    next="open http://127.0.0.1 with the server's port; a proxy in front"
                    " of it sets this header, or the server has --api-keys",
                )
        # Browsers send OPTIONS without the key, to ask whether they may send it.
        needs_key = scope["path"].startswith("/v1/") and scope["method"] != "OPTIONS"
        if self.keys and needs_key and not self._has_key(Headers(scope=scope)):
            return HttpError(
                "LB-960",
                "this server needs an API key",
                status=401,
                expected="Authorization: Bearer KEY, with a key of this server",
                next="get one from its operator",
            )
        if scope["method"] == "POST":
            return self.overload(scope["path"])
        return None

    def _has_key(self, headers: Headers) -> bool:
        scheme, _, key = headers.get("authorization", "").partition(" ")
        # compared with every key, in constant time: the time tells nothing about them
        matches = [hmac.compare_digest(digest(key), known) for known in self.keys]
        return scheme.lower() == "bearer" and any(matches)


def is_name_of_a_site(host: str) -> bool:
    """Return whether a Host header names a site of the Internet.

    The owner of a site may point its name at 127.0.0.1. Its page in a browser would then
    read the answers of a server there as its own (DNS rebinding). Addresses, localhost
    and names without a dot belong to no site.

    >>> is_name_of_a_site("a.org:8000"), is_name_of_a_site("[::1]:8000")
    (True, False)
    """
    name = _name_in(host)
    if "." not in name or name.endswith(".localhost"):
        return False
    try:
        ip_address(name)
    except ValueError:
        return True
    return False


def is_loopback(host: str) -> bool:
    """Return whether a server that listens there is reached from its own machine alone."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _name_in(host: str) -> str:
    """Return a Host header without its port."""
    try:
        name = urlsplit(f"//{host}").hostname or ""
    except ValueError:  # an address that is none, such as [::1
        return host
    return name.removesuffix(".")


def digest(key: str) -> bytes:
    return hashlib.sha256(key.strip().encode("utf-8", "surrogateescape")).digest()


class PatientConnection(H11Protocol):
    """uvicorn's protocol, except that headers must arrive in time, that an answer must be
    read in time, and that its refusals look like all others.
    """

    header_seconds = 10.0
    _due: asyncio.TimerHandle | None = None
    _reading_due: asyncio.TimerHandle | None = None
    _unread = 0  # bytes of answers that wait here for the client to read

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > MAX_CONNECTIONS:
            transport.close()
        self._watch()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_watching()
        self._stop_expecting()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        """Expect the client to read: asyncio holds more of the answer than it should."""
        super().pause_writing()
        self._expect_reading()

    def resume_writing(self) -> None:
        """Expect nothing more: the client has read nearly all."""
        self._stop_expecting()
        super().resume_writing()

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002
        error = HttpError(
            "LB-976",
            "the request is not valid HTTP/1.1, or its headers have more than"
            f" {MAX_HEADER_BYTES:,} bytes",
            status=400,
            next="use a library for HTTP, with texts in the body",
        )
        answer = problem(error)
        headers = [*answer.raw_headers, *SECURITY_HEADERS, (b"connection", b"close")]
        start = h11.Response(status_code=400, headers=headers, reason=b"Bad Request")
        data = h11.Data(data=bytes(answer.body))
        sent = bytearray()
        for event in (start, data, h11.EndOfMessage()):
            sent += self.conn.send(event) or b""
        self.transport.write(bytes(sent))
        self.transport.close()

    def _watch(self) -> None:
        """Run a timer while waiting for headers: before the first request, and from the
        first byte of each request.
        """
        if self.cycle is not None and not self.cycle.response_complete:
            self._stop_watching()
        elif self._due is None and not self.transport.is_closing():
            self._due = self.loop.call_later(self.header_seconds, self.transport.close)

    def _expect_reading(self) -> None:
        self._unread = self.transport.get_write_buffer_size()
        self._reading_due = self.loop.call_later(
            self.header_seconds, self._require_reading
        )

    def _require_reading(self) -> None:
        """Give up a client that reads too slowly: its answer would stay in memory."""
        num_read = self._unread - self.transport.get_write_buffer_size()
        if num_read < MIN_READ_BYTES:
            self.transport.abort()
        else:
            self._expect_reading()

    def _stop_expecting(self) -> None:
        if self._reading_due is not None:
            self._reading_due.cancel()
            self._reading_due = None

    def _stop_watching(self) -> None:
        if self._due is not None:
            self._due.cancel()
            self._due = None


# ---- metrics -------------------------------------------------------------------------

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
COUNTS = (1, 2, 4, 8, 16, 32, 64)


class Metrics:
    """The counters of one server, for Prometheus."""

    def __init__(self) -> None:
        registry = CollectorRegistry()
        self.registry = registry
        self.requests = Counter(
            "litebert_requests",
            "Answers by route and status.",
            ["route", "status"],
            registry=registry,
        )
        self.seconds = Histogram(
            "litebert_request_seconds",
            "From request to answer.",
            ["route"],
            registry=registry,
            buckets=SECONDS,
        )
        self.abandoned = Counter(
            "litebert_abandoned",
            "Requests abandoned before their answer.",
            ["model", "reason"],
            registry=registry,
        )
        self.loads = Counter(
            "litebert_model_loads",
            "Number of times a model was loaded.",
            ["model"],
            registry=registry,
        )
        self.batches = Histogram(
            "litebert_batch_requests",
            "Requests computed together.",
            ["model"],
            registry=registry,
            buckets=COUNTS,
        )
        self.batch_seconds = Histogram(
            "litebert_batch_seconds",
            "Time of one batch.",
            ["model"],
            registry=registry,
            buckets=SECONDS,
        )
        self.tokens = Counter(
            "litebert_tokens",
            "Estimated tokens computed.",
            ["model"],
            registry=registry,
        )
        self.ready = Gauge(
            "litebert_ready",
            "1 if the model can answer.",
            ["model"],
            registry=registry,
        )
        self.waiting = Gauge(
            "litebert_queue_requests",
            "Requests waiting in the queue.",
            ["model"],
            registry=registry,
        )
