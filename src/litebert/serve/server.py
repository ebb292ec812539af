"""Run the server: bind, load the models, answer until a signal, finish accepted requests."""

from __future__ import annotations

import asyncio
import gc
import logging
import math
import signal
import socket
import sys
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager

import torch
import uvicorn

from litebert.errors import LitebertError
from litebert.files import read_capped
from litebert.serve import Options
from litebert.serve.app import Service, create_app
from litebert.serve.batching import ServedModel
from litebert.serve.guard import IDLE_SECONDS, MAX_HEADER_BYTES, STOP_SECONDS, Metrics, PatientConnection

log = logging.getLogger("litebert.serve")

SWITCH_SECONDS = 0.001  # that the model's thread may hold the interpreter before the event loop gets it; default 5 ms


def serve(paths: Mapping[str, str | None], options: Options) -> None:
    """Serve models by name, the packaged one by None, until SIGTERM or SIGINT; SIGHUP loads their files again."""
    seconds, keys = options.client_seconds, list[str]()
    if not 0 < seconds < math.inf:
        what, expected = "--client-seconds cannot have this value", "a number of seconds above 0"
        raise LitebertError("LB-962", what, received=seconds, expected=expected, next="--client-seconds 10")
    if (file := options.api_keys) is not None:  # one key per line; lines that begin with # are comments
        text = read_capped(file, 1 << 20, command=f"ls -l {file}").decode("utf-8", "replace")
        keys = [line.strip() for line in text.splitlines() if line.strip() and not line.strip().startswith("#")]
        if not keys:
            what, expected, advice = (
                f"{file} contains no API key",
                "one key per line",
                "openssl rand -hex 32 > keys.txt",
            )
            raise LitebertError("LB-971", what, expected=expected, next=advice)
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(message)s")
    logging.getLogger("uvicorn.error").setLevel(logging.ERROR)
    sys.setswitchinterval(SWITCH_SECONDS)
    if options.threads:
        torch.set_num_threads(options.threads)
    listener = _listen(options.host, options.port)

    async def run() -> None:
        metrics = Metrics()
        models = [ServedModel(name, path, options, metrics) for name, path in paths.items()]
        config = uvicorn.Config(
            create_app(Service(models, metrics, options), keys),
            http=type("Connection", (PatientConnection,), {"header_seconds": seconds}),
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

        async def reload() -> None:
            for model in models:
                await model.reload()

        async def start() -> None:
            """Load all models; if one cannot be used, stop the server."""
            try:
                await asyncio.gather(*(model.start() for model in models))
            except BaseException:
                server.should_exit = True
                raise
            gc.collect()
            gc.freeze()  # torch and the models stay in memory: garbage collection can skip them
            for model in models:
                verbs, notes = ", ".join(model.facts["verbs"]), model.facts["notes"]
                log.info("%s is ready: %s", model.name, "; ".join([verbs, *notes]))

        server = Server(config, reload)
        starting = asyncio.ensure_future(start())
        await server.serve(sockets=[listener])
        starting.cancel()
        for model in models:
            await model.stop()
        if starting.done() and not starting.cancelled() and (failure := starting.exception()):
            raise failure

    with listener:
        bound, number = listener.getsockname()[:2]
        log.info("listening on http://%s:%d, loading", f"[{bound}]" if ":" in bound else bound, number)
        asyncio.run(run())


class Server(uvicorn.Server):
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
        loop.add_signal_handler(signal.SIGHUP, self.begin_reload)
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.handle_exit, number, None)
        yield
        for number in (signal.SIGHUP, signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)

    def begin_reload(self) -> None:
        """Reload; after a signal during a reload, reload again, because files may have changed."""

        async def reload_to_newest() -> None:
            while self._is_outdated:
                self._is_outdated = False
                await self._reload()

        self._is_outdated = True
        if self._reloading is None or self._reloading.done():
            self._reloading = asyncio.get_running_loop().create_task(reload_to_newest())


def _listen(host: str, port: int) -> socket.socket:
    """Return a listening socket."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # asyncio turns Nagle's algorithm off only where the protocol is named; else the body of an answer waits 40 ms.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(2_048)
    except OSError as error:
        listener.close()
        what, next_step = f"cannot listen on {host}:{port}", f"litebert serve --port {port + 1}"
        expected = "an address of this machine and a free port"
        raise LitebertError("LB-970", what, received=str(error), expected=expected, next=next_step) from error
    return listener
