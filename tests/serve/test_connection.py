"""Connections of the server's own kind."""

import asyncio
import socket

import uvicorn
from fastapi import FastAPI
from uvicorn.server import ServerState

from litebert.serve.connection import PatientConnection
from litebert.serve.server import _bound


async def _no_delay(connection: type[asyncio.Protocol]) -> bool:
    """Connect once; tell whether the server's end sends small segments at once."""
    config, state = uvicorn.Config(FastAPI(), lifespan="off"), ServerState()
    config.load()
    loop = asyncio.get_running_loop()
    made: list[socket.socket] = []

    class Noting(connection):
        def connection_made(self, transport: asyncio.Transport) -> None:
            super().connection_made(transport)
            made.append(transport.get_extra_info("socket"))

    with _bound("127.0.0.1", 0) as listener:
        port = listener.getsockname()[1]
        server = await loop.create_server(lambda: Noting(config, state, {}), sock=listener)
        async with server:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            while not made:
                await asyncio.sleep(0.01)
            found = made[0].getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
            writer.close()
            await writer.wait_closed()
    return bool(found)


def test_an_answer_does_not_wait_for_the_acknowledgement_of_its_headers() -> None:
    """With Nagle's algorithm, the body waits 40 ms for the client's delayed acknowledgement."""
    assert asyncio.run(_no_delay(PatientConnection))
