"""Hostile bodies and clients: never a 5xx, never an echo, and the next request is answered."""

import json
import socket
import time
import zlib
from contextlib import ExitStack, closing

import hypothesis
import pytest
import schemathesis
from hypothesis import HealthCheck

CANARY = "canary-7319"
FIELDS = ("text", "texts", "first", "question", "input")


def malformed() -> list[bytes]:
    """Return 300 bodies that no route may answer with 200 or 5xx."""
    values = [
        b"NaN", b"Infinity", b"-Infinity", b"1e999", b"null", b"true", b"1", b"-0.5", b"{}",
        b"9" * 5_000, b"[]", b"[[]]", b'[{"a": "b"}]', b'"\\ud800"', b'"\\udfff\\ud800"', b'"\xff"',
        b'"\xc0\xaf"', b'"\xed\xa0\x80"', b'"\x00"', b'"\\u0000', b"'a'", b"[1, 2", b"{]", b'"',
        b"[" * 500, b"[" * 250_000, b'{"a":' * 500, b'{"a":' * 100_000, b"[" * 17 + b"]" * 17,
        b'{"a": 1, "a": 2}', b"[" + b"1," * 100_000 + b"1]", b'["a", 1]', b"[null]", b"[[\"a\"]]",
        b'"' + b"a" * 10_001 + b'"', b'["' + b"a" * 10_001 + b'"]', b"undefined", b"0x10", b"01",
        b"+1", b".5", b"1.", b'{"$ref": "#"}', b"[" + b'"a",' * 32 + b'"a"]', b"tru", b"nul",
        b"\xfe\xff", b"!!python/object", b"<a/>", b"a=1",
    ]  # fmt: skip
    bodies = [
        b'{"model": "base", "canary-7319": 0, "%s": %s}' % (field.encode(), value)
        for field in FIELDS
        for value in values
    ]
    bodies += [value for value in values if value not in (b"{}",)]
    whole = json.dumps({"texts": ["a"]}).encode()
    bodies += [b"", b"\x00", zlib.compress(b"0" * 10_000_000), b"\xef\xbb\xbf" + whole, whole * 2]
    bodies += [whole[:cut] for cut in range(1, len(whole))]
    return (bodies + [bytes([byte]) * 7 for byte in range(1, 256)])[:300]


def test_three_hundred_malformed_bodies_never_make_the_server_fail(server) -> None:
    bodies = malformed()
    assert len(bodies) == 300
    routes = ("fill", "embed", "order", "answer", "embeddings")
    with closing(server.connect()) as link:
        for number, body in enumerate(bodies):
            reply = server.ask(f"/v1/{routes[number % 5]}", raw=body, connection=link)
            assert 400 <= reply.status < 500, (body[:80], reply)
            assert reply.code.startswith("LB-"), body[:80]
            assert CANARY.encode() not in reply.body
        assert server.ask("/v1/embed", {"texts": ["a"]}, connection=link).status == 200
    assert not [line for line in server.lines if "Traceback" in line]


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


RAW = {
    "no HTTP": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
    "bad chunk": b"POST /v1/fill HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
    b"Transfer-Encoding: chunked\r\n\r\nzz\r\n{}\r\n0\r\n\r\n",
    "two lengths": b"POST /v1/fill HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n{}",
    "negative length": b"POST /v1/fill HTTP/1.1\r\nHost: a\r\nContent-Length: -1\r\n\r\n",
    "null in target": b"GET /\x00 HTTP/1.1\r\nHost: a\r\n\r\n",
}


@pytest.mark.parametrize("request_bytes", RAW.values(), ids=RAW)
def test_broken_http_is_refused_and_the_connection_ends(server, request_bytes) -> None:
    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as link:
        link.sendall(request_bytes)
        answer = b""
        while piece := link.recv(65_536):
            answer += piece
            if b"\r\n\r\n" in answer:
                break
    assert answer.startswith(b"HTTP/1.1 400")
    assert server.ask("/live").status == 200


def test_headers_have_a_limit_in_one_piece_and_in_many(server) -> None:
    assert server.ask("/live", headers={"A": "a" * 16_000}).status == 200
    reply = server.ask("/live", headers={"A": "a" * 17_000})
    assert (reply.status, reply.code) == (431, "LB-972")
    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as link:
        link.sendall(b"GET /live HTTP/1.1\r\nHost: a\r\nA: " + b"a" * 200_000)
        assert link.recv(4_096).startswith(b"HTTP/1.1 400")


def test_a_body_that_grows_in_chunks_is_cut_off(server) -> None:
    head = b"POST /v1/fill HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
    chunk = b"%x\r\n" % 500_000 + b"a" * 500_000 + b"\r\n"
    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as link:
        link.sendall(head + chunk * 5)
        assert link.recv(65_536).startswith(b"HTTP/1.1 413")


def test_slow_clients_are_closed_and_do_not_slow_others(small_server) -> None:
    with ExitStack() as stack:
        links = [stack.enter_context(socket.create_connection(("127.0.0.1", small_server.port))) for _ in range(200)]
        for number, link in enumerate(links):
            link.sendall(_START if number % 2 else _START + b"Content-Length: 9\r\n\r\n{")
        started = time.monotonic()
        replies = small_server.ask_all([("/v1/embed", {"texts": ["a"]})] * 40, clients=1)
        assert {reply.status for reply in replies} == {200}
        assert time.monotonic() - started < 30
        for number, link in enumerate(links):
            link.settimeout(20)
            last = link.recv(4_096)
            assert last == b"" if number % 2 else last.startswith(b"HTTP/1.1 408")


NO_TIMER = """
from litebert.serve.guard import PatientConnection
PatientConnection._wait = lambda _: None
"""
LENIENT = """
import json
from litebert.serve import guard
guard.decode = json.loads
"""


@pytest.mark.slow
def test_without_a_strict_decoder_malformed_bodies_are_accepted(run_server, folders) -> None:
    with run_server(f"base={folders['base']}", without=LENIENT) as server:
        server.wait_for_line("base is ready")
        with pytest.raises(AssertionError):
            test_three_hundred_malformed_bodies_never_make_the_server_fail(server)


@pytest.mark.slow
def test_without_a_timer_for_headers_slow_clients_stay(run_small_server) -> None:
    with run_small_server(without=NO_TIMER) as server, pytest.raises(TimeoutError):
        test_slow_clients_are_closed_and_do_not_slow_others(server)


_START = b"POST /v1/embed HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nAuthorization: Bearer first\r\n"
