"""Bodies on their way: the client's time is limited; stalls of the server do not count."""

import asyncio
import time
from collections.abc import Awaitable, Callable

import pytest
from fastapi import Request

from litebert.serve.bodies import Bodies
from litebert.serve.refusals import ClientLeftError, HttpError

Message = dict[str, object]
LAST = {"type": "http.request", "body": b"{}"}


def _read(receive: Callable[[], Awaitable[Message]], *, stall: float = 0.0) -> bytes:
    """Read one body with half a second of patience; the event loop stalls meanwhile."""

    async def run() -> bytes:
        asyncio.get_running_loop().call_soon(time.sleep, stall)
        return await Bodies(client_seconds=0.5).read(Request(SCOPE, receive))

    return asyncio.run(run())


SCOPE = {"type": "http", "method": "POST", "headers": []}


async def _after_a_moment() -> Message:
    await asyncio.sleep(0.05)
    return LAST


async def _never() -> Message:
    await asyncio.Event().wait()
    return LAST


async def _drop_by_drop() -> Message:
    await asyncio.sleep(0.05)
    return {"type": "http.request", "body": b" ", "more_body": True}


async def _gone() -> Message:
    return {"type": "http.disconnect"}


def test_a_stall_of_the_server_is_not_the_clients_time() -> None:
    assert _read(_after_a_moment, stall=1.5) == b"{}"


@pytest.mark.parametrize("receive", [_never, _drop_by_drop])
def test_a_silent_or_dripping_client_is_given_up(receive) -> None:
    started = time.monotonic()
    with pytest.raises(HttpError, match="LB-963"):
        _read(receive)
    assert time.monotonic() - started >= 0.5


def test_a_client_that_leaves_while_it_sends_is_noticed() -> None:
    with pytest.raises(ClientLeftError):
        _read(_gone)


def test_no_bytes_are_held_afterwards() -> None:
    bodies = Bodies(client_seconds=0.5)
    for receive in (_after_a_moment, _drop_by_drop):
        asyncio.run(_outcome(bodies, receive))
    assert bodies.held == 0


async def _outcome(bodies: Bodies, receive: Callable[[], Awaitable[Message]]) -> bytes | None:
    try:
        return await bodies.read(Request(SCOPE, receive))
    except HttpError:
        return None
