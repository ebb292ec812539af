"""Run the server: bind, load the models, answer until a signal comes, finish accepted
requests.
"""

import asyncio
import gc
import logging
import os
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path

import torch
import uvicorn
from starlette.applications import Starlette

from litebert import cpu
from litebert.errors import LitebertError
from litebert.files import read_capped
from litebert.serve import Options
from litebert.serve.app import Service, create_app
from litebert.serve.batching import ServedModel
from litebert.serve.guard import (
    IDLE_SECONDS,
    MAX_HEADER_BYTES,
    STOP_SECONDS,
    Metrics,
    PatientConnection,
)
from litebert.system import END_SIGNALS, RELOAD_SIGNALS, handled

log = logging.getLogger("litebert.serve")

# how long the model's thread may keep the interpreter lock from the event loop; default
# 5 ms
SWITCH_SECONDS = 0.001
BACKLOG = 2_048  # connections that the system accepts before we do
MAX_KEY_FILE = 1 << 20  # bytes


def serve(paths: Mapping[str, str | None], options: Options) -> None:
    """Serve models from paths by name (None: the packaged one) until SIGTERM or SIGINT;
    SIGHUP reloads their files.
    """
    keys = list[str]()
    if options.api_keys is not None:
        keys = read_api_keys(options.api_keys)
    for origin in options.cors_origins:
        require_origin(origin)
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(message)s")
    logging.getLogger("uvicorn.error").setLevel(logging.ERROR)
    sys.setswitchinterval(SWITCH_SECONDS)
    if options.threads:
        torch.set_num_threads(options.threads)
    log.info("threads: %s", cpu.explain_threads(torch.get_num_threads()))
    with _listen(options.host, options.port) as listener:
        log.info("listening on %s, loading", _address(listener))
        asyncio.run(_serve_models(paths, options, keys, listener))


async def _serve_models(
    paths: Mapping[str, str | None],
    options: Options,
    keys: Sequence[str],
    listener: socket.socket,
) -> None:
    """Answer requests until a signal comes, then stop the models; models load while
    the server already answers that it is not ready.
    """
    metrics = Metrics()
    models = [ServedModel(name, path, options, metrics) for name, path in paths.items()]
    app = create_app(Service(models, metrics, options), keys)
    server = uvicorn.Server(_configure(app, options))
    # After it has ended, uvicorn would raise the signal once more, as a failure.
    server.capture_signals = nullcontext  # type: ignore[assignment,method-assign]
    is_outdated = asyncio.Event()
    loop = asyncio.get_running_loop()
    starting = loop.create_task(_start(models, server))
    reloading = loop.create_task(_reload(models, is_outdated))
    with handled(_signal_handlers(loop, server, is_outdated)):
        await server.serve(sockets=[listener])
        reloading.cancel()
        starting.cancel()
        have_ended = [await model.stop() for model in models]
    _raise_failure(starting)
    if not all(have_ended):
        # a normal exit would crash a thread that is computing, and wait for one that is
        # loading
        os._exit(0)


def _configure(app: Starlette, options: Options) -> uvicorn.Config:
    """Return uvicorn's settings: limits on slow clients, and no log beside ours."""
    seconds = {"header_seconds": options.client_seconds}
    return uvicorn.Config(
        app,
        # uvicorn makes connections itself, so the limit has to be in their class
        http=type("Connection", (PatientConnection,), seconds),
        ws="none",
        lifespan="off",
        access_log=False,
        log_config=None,
        server_header=False,
        proxy_headers=False,
        h11_max_incomplete_event_size=MAX_HEADER_BYTES,
        timeout_keep_alive=IDLE_SECONDS,
        timeout_graceful_shutdown=STOP_SECONDS,
        backlog=BACKLOG,
    )


# ---- models and signals --------------------------------------------------------------


async def _start(models: Sequence[ServedModel], server: uvicorn.Server) -> None:
    """Load all models; if one cannot be used, stop the server."""
    try:
        await asyncio.gather(*(model.start() for model in models))
    except BaseException:
        server.should_exit = True
        raise
    gc.collect()
    # torch and the models stay in memory, so garbage collection can skip them
    gc.freeze()
    for model in models:
        verbs = ", ".join(model.facts["verbs"])
        notes = model.facts["notes"]
        log.info("%s is ready: %s", model.name, "; ".join([verbs, *notes]))


async def _reload(models: Sequence[ServedModel], is_outdated: asyncio.Event) -> None:
    """Reload all models after each signal, also after one during a reload: files may
    have changed since.
    """
    while await is_outdated.wait():
        is_outdated.clear()
        for model in models:
            await model.reload()


def _signal_handlers(
    loop: asyncio.AbstractEventLoop, server: uvicorn.Server, is_outdated: asyncio.Event
) -> dict[int, Callable[[int], object]]:
    """Return what each signal does. A handler may interrupt any line of Python, so it
    only leaves a note for the event loop.
    """

    def end(number: int) -> None:
        loop.call_soon_threadsafe(server.handle_exit, number, None)

    def note_change(_: int) -> None:
        loop.call_soon_threadsafe(is_outdated.set)

    endings = dict.fromkeys(END_SIGNALS, end)
    reloads = dict.fromkeys(RELOAD_SIGNALS, note_change)
    return {**endings, **reloads}


def _raise_failure(starting: "asyncio.Task[None]") -> None:
    """Raise why a model could not be loaded, if that is why the server has ended."""
    if not starting.done() or starting.cancelled():
        return
    failure = starting.exception()
    if failure is not None:
        raise failure


# ---- what the options name -----------------------------------------------------------


def read_api_keys(file: Path) -> list[str]:
    """Return the keys in a file, one per line; lines that start with # are comments."""
    data = read_capped(file, MAX_KEY_FILE)
    keys = list[str]()
    for line in data.decode("utf-8-sig", "replace").splitlines():
        key = line.strip()
        if key and not key.startswith("#"):
            keys.append(key)
    # a file in UTF-16 has null characters, which are not printable
    are_keys = all(key.isascii() and key.isprintable() for key in keys)
    if keys and are_keys:
        return keys
    fault = "a key that is not printable ASCII" if keys else "no API key"
    raise LitebertError(
        "LB-971",
        f"{file} contains {fault}",
        expected="one key per line, in UTF-8",
        next="openssl rand -hex 32 prints a new key",
    )


def require_origin(origin: str) -> None:
    """Raise unless this is an origin as browsers send it: without a path, not even a
    slash.
    """
    is_origin = "://" in origin and origin.count("/") == 2
    if origin == "*" or is_origin:
        return
    raise LitebertError(
        "LB-977",
        "this is not the origin of a web page",
        received=origin,
        expected="scheme://host or scheme://host:port, without a slash at the end",
        next="litebert serve --cors-origin https://example.org",
    )


def _listen(host: str, port: int) -> socket.socket:
    """Return a socket that listens at a host and port."""
    is_six = ":" in host
    family = socket.AF_INET6 if is_six else socket.AF_INET
    try:
        listener = socket.create_server(
            (host, port), family=family, backlog=BACKLOG, dualstack_ipv6=is_six
        )
    except (OSError, ValueError) as error:  # ValueError: a system without IPv6
        raise LitebertError(
            "LB-970",
            f"cannot listen on {host}:{port}",
            received=error,
            next="give a free --port, or a --host of this machine",
        ) from error
    # asyncio turns Nagle's algorithm off only for a socket with a known protocol. This
    # one gets it from the system; otherwise the body of an answer would wait 40 ms.
    return socket.socket(fileno=listener.detach())


def _address(listener: socket.socket) -> str:
    """Return the URL of a socket; --port 0 has taken a free one."""
    host, port = listener.getsockname()[:2]
    if ":" in host:
        host = f"[{host}]"
    return f"http://{host}:{port}"
