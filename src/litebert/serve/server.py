"""Run the server: bind, load the models, answer until a signal, finish accepted requests."""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
import sys
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager
from typing import cast

import uvicorn

from litebert.errors import LitebertError
from litebert.serve.app import create_app
from litebert.serve.connection import PatientConnection
from litebert.serve.entry import ModelSource
from litebert.serve.limits import IDLE_SECONDS, MAX_HEADER_BYTES, STOP_SECONDS, ServerSettings
from litebert.serve.metrics import Metrics
from litebert.serve.models import Models

log = logging.getLogger("litebert.serve")


def serve(sources: Mapping[str, ModelSource], settings: ServerSettings, *, host: str, port: int) -> None:
    """Serve models by name until SIGTERM or SIGINT; SIGHUP loads their files again.

    Raises:
        LitebertError: LB-970, the address cannot be used; LB-969, or a model cannot be loaded.
    """
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(message)s")
    with _bound(host, port) as listener:
        asyncio.run(_serve(sources, settings, listener))


async def _serve(sources: Mapping[str, ModelSource], settings: ServerSettings, listener: socket.socket) -> None:
    metrics = Metrics()
    models = Models(sources, settings, metrics)
    protocol = type("Connection", (PatientConnection,), {"header_seconds": settings.client_seconds})
    config = uvicorn.Config(
        create_app(models, settings, metrics),
        http=protocol,
        ws="none",
        lifespan="off",
        access_log=False,
        log_config=None,
        server_header=False,
        proxy_headers=False,
        h11_max_incomplete_event_size=MAX_HEADER_BYTES,
        timeout_keep_alive=IDLE_SECONDS,
        timeout_graceful_shutdown=STOP_SECONDS,
        backlog=2_048,
    )
    logging.getLogger("uvicorn.error").setLevel(logging.ERROR)
    server = _Server(config, reload=models.reload)
    host, port = listener.getsockname()[:2]
    log.info("listening on http://%s:%d, loading", f"[{host}]" if ":" in host else host, port)
    starting = asyncio.create_task(_start(models, server))
    await server.serve(sockets=[listener])
    starting.cancel()
    await models.stop()
    if isinstance(models.failure, LitebertError):
        raise models.failure
    if models.failure is not None:
        raise LitebertError(
            "LB-969",
            "a model process ended while it loaded its model",
            received=str(models.failure),
            expected="a model that loads; the lines above say why it did not",
            next="free some memory, or serve a smaller model",
        )


async def _start(models: Models, server: uvicorn.Server) -> None:
    def give_up() -> None:
        server.should_exit = True

    await models.start(give_up)
    for model in models.all if models.are_ready else []:
        log.info("%s is ready: %s", model.name, ", ".join(cast(list[str], model.facts["verbs"])))


class _Server(uvicorn.Server):
    """uvicorn's server; it ends with exit code 0 after a signal, and SIGHUP reloads."""

    def __init__(self, config: uvicorn.Config, reload: Callable[[], Coroutine[None, None, None]]) -> None:
        super().__init__(config)
        self._reload = reload
        self._reloading: asyncio.Task[None] | None = None
        self._is_outdated = False

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Handle signals in the loop, for as long as the server runs."""
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGHUP, self._begin_reload)
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.handle_exit, number, None)
        yield
        for number in (signal.SIGHUP, signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)

    def _begin_reload(self) -> None:
        """Reload; after a signal during a reload, reload again, because files may have changed."""
        self._is_outdated = True
        if self._reloading is None or self._reloading.done():
            self._reloading = asyncio.get_running_loop().create_task(self._reload_to_newest())

    async def _reload_to_newest(self) -> None:
        while self._is_outdated:
            self._is_outdated = False
            await self._reload()


def _bound(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=2_048)
    except OSError as error:
        raise LitebertError(
            "LB-970",
            f"cannot listen on {host}:{port}",
            received=error.strerror or str(error),
            expected="an address of this machine and a free port",
            next=f"litebert serve --port {port + 1}",
        ) from error
