"""Under load: answers stay the same, the queue stays bounded, dead requests cost nothing."""

import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import numpy as np
import pytest

from tests.contract.served import Reply

from .conftest import ask_all

WORDS = "Anna found a red ball under the tree and took it home before noon"
TEXTS = [" ".join((WORDS.split() * 6)[number % 7 : number % 7 + 1 + number % 60]) for number in range(200)]
HEAVY = {"texts": ["word " * 1_990] * 32}


@contextmanager
def asking(server, number: int, replies: list[tuple[float, Reply]] | None = None) -> Iterator[None]:
    """Ask so many heavy requests at once; each reply is added with the seconds that it took."""

    def ask() -> None:
        begun = time.monotonic()
        reply = server.ask("/v1/embed", HEAVY)
        if replies is not None:
            replies.append((time.monotonic() - begun, reply))

    threads = [threading.Thread(target=ask) for _ in range(number)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        for thread in threads:
            thread.join()


@contextmanager
def busy(server) -> Iterator[None]:
    """Keep the model busy with three requests, one of which at least still waits."""
    with asking(server, 3):
        server.wait_until(lambda: server.metric("litebert_queue_requests") > 0)
        yield


def test_concurrent_answers_equal_single_ones(server) -> None:
    """Rows of a batch may differ in the last bits from a text alone, and in no more (float32)."""

    def vectors(clients: int) -> np.ndarray:
        replies = ask_all(server, [("/v1/embed", {"texts": [text]}) for text in TEXTS], clients=clients)
        assert {reply.status for reply in replies} == {200}
        return np.array([reply.json["result"][0] for reply in replies])

    alone, batches = vectors(1), server.metric("litebert_batch_requests_count")
    together = vectors(16)
    assert server.metric("litebert_batch_requests_count") - batches < 200, "nothing was batched"
    assert np.abs(alone - together).max() <= 1e-5
    # The negative control: an answer that goes to its neighbour is far away.
    assert np.abs(np.roll(alone, 1, axis=0) - together).max() > 1e-2


def test_overload_is_refused_quickly_and_is_over_when_it_ends(small_server) -> None:
    alone, replies = list[tuple[float, Reply]](), list[tuple[float, Reply]]()
    with asking(small_server, 1, alone):
        pass
    with asking(small_server, 40, replies):
        pass
    taken = [seconds for seconds, reply in replies if reply.status == 200]
    refused = [reply for _, reply in replies if reply.status == 429]
    assert len(taken) + len(refused) == 40, {reply.status for _, reply in replies}
    assert 4 <= len(taken) < 20  # the queue of four, and what was computed meanwhile
    assert {reply.code for reply in refused} == {"LB-957"}
    assert all(int(reply.headers["retry-after"]) >= 1 for reply in refused)
    assert max(taken) < 20 * alone[0][0] + 2
    assert small_server.metric("litebert_queue_requests") == 0
    assert small_server.ask("/v1/embed", {"texts": ["a"]}).status == 200


def test_what_no_queue_takes_is_refused_unread_and_health_is_told(small_server) -> None:
    with asking(small_server, 12):
        with closing(small_server.connect()) as link:  # read, this body would be refused with 400
            tries = (small_server.ask("/v1/fill", raw=b"no JSON", link=link) for _ in range(10_000))
            refused = next(reply for reply in tries if reply.status == 429)
            assert refused.code == "LB-957"
            assert int(refused.headers["retry-after"]) >= 1
            assert small_server.ask("/live", link=link).status == 200
        assert small_server.ask("/v1/fill", raw=b"no JSON", headers={}).status == 401
        assert small_server.ask("/v1/nothing", {}).status == 404
    assert small_server.ask("/v1/fill", raw=b"no JSON").status == 400


def test_a_deadline_is_kept_and_its_work_not_done(small_server) -> None:
    """Three requests keep the model busy; the fourth waits in vain, and never reaches it."""
    tokens = small_server.metric("litebert_tokens_total")
    with busy(small_server):
        started = time.monotonic()
        late = small_server.ask("/v1/embed", {**HEAVY, "timeout_ms": 5})
        waited = time.monotonic() - started
    assert late.status == 504
    assert late.code == "LB-958"
    assert waited < 5
    computed = small_server.metric("litebert_tokens_total") - tokens
    assert computed < 3.5 * 32 * 2_489, "the dead request was computed"


def test_a_client_that_leaves_frees_its_place(small_server) -> None:
    left = small_server.metric("litebert_abandoned_total")
    body = json.dumps(HEAVY).encode()
    with busy(small_server):
        with socket.create_connection(("127.0.0.1", small_server.port)) as link:
            link.sendall(
                b"POST /v1/embed HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer first\r\n"
                b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body) + body
            )
        small_server.wait_until(lambda: small_server.metric("litebert_abandoned_total") > left, seconds=20)
    assert small_server.ask("/v1/embed", {"texts": ["a"]}).status == 200
    assert small_server.metric("litebert_queue_requests") == 0


@pytest.mark.parametrize("rounds", [250, pytest.param(1_250, marks=pytest.mark.slow)])
def test_thousands_of_requests_leak_nothing(server, rounds: int) -> None:
    """Four kinds of requests a round, two of them mistakes; some clients leave in between."""
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
    """Send half a request and leave, often; then whole ones; wait until the server closed all."""
    for _ in range(leavers):
        with socket.create_connection(("127.0.0.1", server.port)) as link:
            link.sendall(b"POST /v1/embed HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\n{")
    ask_all(server, calls, clients=4)
    server.wait_until(lambda: not _held_connections(server.port), seconds=20)


def _held_connections(port: int) -> list[str]:
    """List the connections to a port that its server has not closed, whether the client has."""
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    held = ("01", "08")  # established, left by the client
    return [client for _, own, client, state, *_ in rows if own.endswith(f":{port:04X}") and state in held]


def _usage(pid: int) -> tuple[int, int]:
    """Return resident memory in kB, and the number of open files."""
    status = Path(f"/proc/{pid}/status").read_text()
    resident = next(line for line in status.splitlines() if line.startswith("VmRSS"))
    return int(resident.split()[1]), len(list(Path(f"/proc/{pid}/fd").iterdir()))
