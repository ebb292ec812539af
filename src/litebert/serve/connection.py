"""One HTTP connection: slow clients and surplus connections are closed, not kept."""

from __future__ import annotations

import asyncio
import socket

from uvicorn import Config
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from litebert.serve.limits import MAX_CONNECTIONS


class PatientConnection(H11Protocol):
    """uvicorn's protocol, with a limit on the time until the headers are there."""

    header_seconds = 10.0

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, object],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._headers_due: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Wait for the first request; refuse connections beyond the limit."""
        super().connection_made(transport)
        # asyncio sets this only if the listener was made with proto=IPPROTO_TCP. Without it, the
        # body of an answer waits 40 ms for the client's delayed acknowledgement of its headers.
        transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if len(self.connections) > MAX_CONNECTIONS:
            transport.close()
            return
        self._wait_for_headers()

    def data_received(self, data: bytes) -> None:
        """Read; a request that has begun must complete its headers in time."""
        super().data_received(data)
        is_between = self.cycle is None or self.cycle.response_complete
        if is_between and self._headers_due is None and not self.transport.is_closing():
            self._wait_for_headers()
        elif not is_between:
            self._stop_waiting()

    def connection_lost(self, exc: Exception | None) -> None:
        """Cancel the timer."""
        self._stop_waiting()
        super().connection_lost(exc)

    def _wait_for_headers(self) -> None:
        self._headers_due = self.loop.call_later(self.header_seconds, self._give_up)

    def _stop_waiting(self) -> None:
        if self._headers_due is not None:
            self._headers_due.cancel()
            self._headers_due = None

    def _give_up(self) -> None:
        self._headers_due = None
        if self.cycle is None or self.cycle.response_complete:
            self.transport.close()
