"""Under load and attack: answers stay the same, the queue stays bounded, dead requests
cost nothing.
"""

import json
import socket
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from threading import Event

import hypothesis
import numpy as np
import pytest
import schemathesis
from hypothesis import HealthCheck

from tests.contract.served import Reply
from tests.memory import require_proc
from tests.waiting import DEADLINE

from .conftest import ask_all

WORDS = "Anna found a red ball under the tree and took it home before noon"
TEXTS = [
    " ".join((WORDS.split() * 6)[number % 7 : number % 7 + 1 + number % 60])
    for number in range(200)
]
HEAVY = {"texts": ["word " * 1_990] * 32}
START = (
    b"POST /v1/embed HTTP/1.1\r\nHost: a\r\nContent-Type:"
    b" application/json\r\nAuthorization: Bearer first\r\n"
)


def heavy(server) -> tuple[float, Reply]:
    begun = time.monotonic()
    reply = server.ask("/v1/embed", HEAVY)
    return time.monotonic() - begun, reply


@contextmanager
def asking(
    server, number: int, *, again: bool = False
) -> Iterator[list[Future[tuple[float, Reply]]]]:
    """Send heavy requests from several clients; with `again`, each sends the next one
    until the block ends.
    """
    ends = Event()

    def ask() -> tuple[float, Reply]:
        while True:
            reply = heavy(server)
            if ends.is_set() or not again:
                return reply

    with ThreadPoolExecutor(number) as pool:
        try:
            yield [pool.submit(ask) for _ in range(number)]
        finally:
            ends.set()


@contextmanager
def busy(server) -> Iterator[list[Future[tuple[float, Reply]]]]:
    """Keep the model busy with three requests, at least one of which is still
    waiting.
    """
    with asking(server, 3) as asked:
        server.wait_until(lambda: server.metric("litebert_queue_requests") > 0)
        yield asked


def test_concurrent_answers_equal_single_ones(server) -> None:
    """In float32, rows of a batch may differ from single texts only in the last
    bits.
    """

    def vectors(clients: int) -> np.ndarray:
        replies = ask_all(
            server,
            [("/v1/embed", {"texts": [text]}) for text in TEXTS],
            clients=clients,
        )
        assert {reply.status for reply in replies} == {200}
        return np.array([reply.json["result"][0] for reply in replies])

    alone = vectors(1)
    batches = server.metric("litebert_batch_requests_count")
    together = vectors(16)
    assert server.metric("litebert_batch_requests_count") - batches < 200, (
        "nothing was batched"
    )
    assert np.abs(alone - together).max() <= 1e-5
    # The negative control: an answer that goes to its neighbour is far away.
    assert np.abs(np.roll(alone, 1, axis=0) - together).max() > 1e-2


def test_overload_is_refused_quickly_and_service_recovers_when_it_ends(
    small_server,
) -> None:
    with asking(small_server, 40) as asked:
        replies = [future.result() for future in asked]
    assert {reply.status for _, reply in replies} == {200, 429}
    seconds_taken = [seconds for seconds, reply in replies if reply.status == 200]
    # the queue of four, and what was computed meanwhile
    assert len(seconds_taken) >= 4
    refused = [(seconds, reply) for seconds, reply in replies if reply.status == 429]
    for seconds, reply in refused:
        assert reply.code == "LB-957"
        assert int(reply.headers["retry-after"]) >= 1
        assert seconds < max(seconds_taken)
    assert small_server.metric("litebert_queue_requests") == 0
    assert small_server.ask("/v1/embed", {"texts": ["a"]}).status == 200


def test_requests_beyond_the_queue_are_refused_unread_and_health_is_served(
    small_server,
) -> None:
    with asking(small_server, 8, again=True), closing(small_server.connect()) as link:
        # 400 if it were read
        tries = (
            small_server.ask("/v1/fill", raw=b"no JSON", link=link)
            for _ in range(10_000)
        )
        refused = next(reply for reply in tries if reply.status == 429)
        assert (refused.code, int(refused.headers["retry-after"]) >= 1) == (
            "LB-957",
            True,
        )
        assert small_server.ask("/live", link=link).status == 200
        for origin, allowed in {
            "https://a.org": "https://a.org",
            "https://b.org": None,
        }.items():
            refused = small_server.ask(
                "/v1/fill", raw=b"no JSON", headers={"Origin": origin}
            )
            assert (
                refused.status,
                refused.headers["access-control-expose-headers"],
            ) == (401, "Retry-After")
            assert refused.headers.get("access-control-allow-origin") == allowed
        assert small_server.ask("/v1/nothing", {}).status == 404
    assert small_server.ask("/v1/fill", raw=b"no JSON").status == 400


def test_a_deadline_is_kept_and_its_work_not_done(small_server) -> None:
    tokens = small_server.metric("litebert_tokens_total")
    body = {"texts": ["word " * 100], "timeout_ms": 5}
    with busy(small_server) as asked:
        late = small_server.ask("/v1/embed", body)
        are_done = [future.done() for future in asked]
    assert (late.status, late.code) == (504, "LB-958")
    assert not all(are_done), "the deadline was kept only after the work before it"
    # one request later in the queue
    assert small_server.ask("/v1/embed", {"texts": ["a"]}).status == 200
    assert (
        small_server.metric("litebert_tokens_total") - tokens < 3 * 32 * 2_489 + 100
    ), "the dead request was computed"


def test_a_client_that_leaves_frees_its_place(small_server) -> None:
    left = small_server.metric("litebert_abandoned_total")
    body = json.dumps(HEAVY).encode()

    # a request is watched after 50 ms; one of several in a row waits longer than that
    def is_noticed() -> bool:
        with socket.create_connection(("127.0.0.1", small_server.port)) as link:
            link.sendall(START + b"Content-Length: %d\r\n\r\n" % len(body) + body)
        return small_server.metric("litebert_abandoned_total") > left

    with busy(small_server):
        small_server.wait_until(is_noticed)
    small_server.wait_until(lambda: small_server.metric("litebert_queue_requests") == 0)
    assert small_server.ask("/v1/embed", {"texts": ["a"]}).status == 200


@pytest.mark.parametrize("rounds", [250, pytest.param(1_250, marks=pytest.mark.slow)])
def test_thousands_of_requests_leak_nothing(server, rounds: int) -> None:
    """Send four kinds of requests per round, two of them mistakes; some clients
    disconnect early.
    """
    require_proc()
    calls = [
        ("/v1/embed", {"texts": ["Anna found a ball."]}),
        ("/v1/fill", {"text": "no blank"}),
        ("/v1/embed", {"texts": 3}),
        ("/v1/order", {"first": "a", "second": "b"}),
    ]
    _load(server, calls * 100, leavers=rounds // 10)
    memory, files = _usage(server.process.pid)
    _load(server, calls * rounds, leavers=rounds // 10)
    memory_now, files_now = _usage(server.process.pid)
    assert memory_now - memory < 8 << 10, "kB"
    assert files_now <= files + 1


def _load(server, calls: list[tuple[str, object]], *, leavers: int) -> None:
    """Send half requests and disconnect, then whole requests; wait until the server has
    closed every connection.
    """
    for _ in range(leavers):
        with socket.create_connection(("127.0.0.1", server.port)) as link:
            link.sendall(START + b"Content-Length: 9\r\n\r\n{")
    ask_all(server, calls, clients=4)

    # connections that are established, or closed only by the client
    def held() -> list[str]:
        rows = [
            line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]
        ]
        return [
            row[2]
            for row in rows
            if row[1].endswith(f":{server.port:04X}") and row[3] in ("01", "08")
        ]

    server.wait_until(lambda: not held())


def _usage(pid: int) -> tuple[int, int]:
    """Return the memory of a process in kB, and how many files it has open."""
    return 4 * int(Path(f"/proc/{pid}/statm").read_text().split()[1]), len(
        list(Path(f"/proc/{pid}/fd").iterdir())
    )


# Hostile bodies and clients: never a 5xx, never an echo, and the next request is
# answered


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("examples", [12, pytest.param(170, marks=pytest.mark.slow)])
def test_requests_that_openapi_allows_never_make_the_server_fail(
    server, examples: int
) -> None:
    """Draw bodies for all ten routes from our own OpenAPI document."""
    schema = schemathesis.openapi.from_dict(server.ask("/openapi.json").json)
    operations = [operation.ok() for operation in schema.get_all_operations()]
    posts = [
        operation for operation in operations if operation.method.upper() == "POST"
    ]
    slow = list(HealthCheck)
    assert len(posts) == 10
    for operation in posts:

        @hypothesis.settings(
            max_examples=examples,
            deadline=None,
            derandomize=True,
            suppress_health_check=slow,
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
CHUNKED = POST + b"Transfer-Encoding: chunked\r\n\r\n"
CHUNK = b"%x\r\n" % 500_000 + b"a" * 500_000 + b"\r\n"
RAW = {
    "no HTTP": (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", 400),
    "bad chunk": (CHUNKED + b"zz\r\n{}\r\n0\r\n\r\n", 400),
    "two lengths": (POST + b"Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}", 400),
    "negative length": (POST + b"Content-Length: -1\r\n\r\n", 400),
    "null in target": (b"GET /\x00 HTTP/1.1\r\nHost: a\r\n\r\n", 400),
    "headers without an end": (
        b"GET /live HTTP/1.1\r\nHost: a\r\nA: " + b"a" * 200_000,
        400,
    ),
    "long headers": (
        b"GET /live HTTP/1.1\r\nHost: a\r\nA: " + b"a" * 17_000 + b"\r\n\r\n",
        431,
    ),
    "two kinds of length": (
        POST
        + b"Content-Length: 9\r\n"
        + CHUNKED[len(POST) :]
        + b"2\r\n{}\r\n0\r\n\r\n",
        422,
    ),
    "a body that grows": (CHUNKED + CHUNK * 5, 413),
}


@pytest.mark.parametrize(("sent", "status"), RAW.values(), ids=RAW)
def test_broken_or_endless_http_is_refused_and_the_connection_ends(
    server, sent: bytes, status: int
) -> None:
    # an idle one is closed after 30 s
    with socket.create_connection(("127.0.0.1", server.port), timeout=25) as link:
        link.sendall(sent)
        answer = link.makefile("rb").read() if status == 422 else link.recv(65_536)
        assert answer.startswith(b"HTTP/1.1 %d" % status) and (
            b'"LB-976"' in answer
        ) == (status == 400), answer
    assert server.ask("/live", headers={"A": "a" * 16_000}).status == 200


def test_slow_clients_are_closed_and_do_not_slow_others(small_server) -> None:
    with ExitStack() as stack:
        links = [
            stack.enter_context(
                socket.create_connection(("127.0.0.1", small_server.port))
            )
            for _ in range(200)
        ]
        for number, link in enumerate(links):
            link.sendall(START if number % 2 else START + b"Content-Length: 9\r\n\r\n{")
        # one slow client after another would take ten minutes
        calls = [("/v1/embed", {"texts": ["a"]})] * 40
        replies = ask_all(small_server, calls, clients=1)
        assert {reply.status for reply in replies} == {200}
        for number, link in enumerate(links):
            link.settimeout(DEADLINE)
            last = link.recv(4_096)
            assert last == b"" if number % 2 else last.startswith(b"HTTP/1.1 408")
