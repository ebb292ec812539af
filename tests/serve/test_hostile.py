"""Hostile bodies and clients: never a 5xx, never an echo, and the next request is answered."""

import json
import socket
import time
from contextlib import ExitStack

import hypothesis
import pytest
import schemathesis
from hypothesis import HealthCheck

from .conftest import ask_all


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("examples", [12, pytest.param(170, marks=pytest.mark.slow)])
def test_what_the_documentation_allows_never_makes_the_server_fail(server, examples: int) -> None:
    """Draw bodies for all twelve routes from our own OpenAPI document, and near misses of them."""
    schema = schemathesis.openapi.from_dict(server.ask("/openapi.json").json)
    operations = [found.ok() for found in schema.get_all_operations()]
    posts = [each for each in operations if each.method.upper() == "POST"]
    assert len(posts) == 12
    for operation in posts:

        @hypothesis.settings(
            max_examples=examples,
            deadline=None,
            database=None,
            derandomize=True,
            suppress_health_check=list(HealthCheck),
        )
        @hypothesis.given(case=operation.as_strategy())
        def check(case) -> None:
            raw = json.dumps(case.body).encode("utf-8", "replace")
            reply = server.ask(case.path, raw=raw)
            if reply.status == 504:  # the deadline that the request itself sets
                assert case.body["timeout_ms"] < 1_000, (reply, raw[:200])
                return
            assert reply.status in (200, 404, 422), (reply, raw[:200])

        check()


POST = b"POST /v1/fill HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
CHUNKED, CHUNK = POST + b"Transfer-Encoding: chunked\r\n\r\n", b"%x\r\n" % 500_000 + b"a" * 500_000 + b"\r\n"
RAW = {
    "no HTTP": (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", 400),
    "bad chunk": (CHUNKED + b"zz\r\n{}\r\n0\r\n\r\n", 400),
    "two lengths": (POST + b"Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}", 400),
    "negative length": (POST + b"Content-Length: -1\r\n\r\n", 400),
    "null in target": (b"GET /\x00 HTTP/1.1\r\nHost: a\r\n\r\n", 400),
    "headers without an end": (b"GET /live HTTP/1.1\r\nHost: a\r\nA: " + b"a" * 200_000, 400),
    "long headers": (b"GET /live HTTP/1.1\r\nHost: a\r\nA: " + b"a" * 17_000 + b"\r\n\r\n", 431),
    "a body that grows": (CHUNKED + CHUNK * 5, 413),
}


@pytest.mark.parametrize(("sent", "status"), RAW.values(), ids=RAW)
def test_broken_or_endless_http_is_refused_and_the_connection_ends(server, sent: bytes, status: int) -> None:
    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as link:
        link.sendall(sent)
        assert link.recv(65_536).startswith(b"HTTP/1.1 %d" % status)
    assert server.ask("/live", headers={"A": "a" * 16_000}).status == 200


def test_slow_clients_are_closed_and_do_not_slow_others(small_server) -> None:
    with ExitStack() as stack:
        links = [stack.enter_context(socket.create_connection(("127.0.0.1", small_server.port))) for _ in range(200)]
        for number, link in enumerate(links):
            link.sendall(_START if number % 2 else _START + b"Content-Length: 9\r\n\r\n{")
        started = time.monotonic()
        replies = ask_all(small_server, [("/v1/embed", {"texts": ["a"]})] * 40, clients=1)
        assert {reply.status for reply in replies} == {200}
        assert time.monotonic() - started < 30
        for number, link in enumerate(links):
            link.settimeout(20)
            last = link.recv(4_096)
            assert last == b"" if number % 2 else last.startswith(b"HTTP/1.1 408")


_START = b"POST /v1/embed HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nAuthorization: Bearer first\r\n"
