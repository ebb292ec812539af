"""Run the server: bind, load the models, answer until a signal comes, finish accepted
requests.
"""

import asyncio
import gc
import logging
import os
import socket
import sys
from collections.abc import Mapping
from contextlib import nullcontext

import torch
import uvicorn

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


def serve(paths: Mapping[str, str | None], options: Options) -> None:
    """Serve models from paths by name (None: the packaged one) until SIGTERM or SIGINT;
    SIGHUP reloads their files.
    """
    keys = list[str]()
    # one key per line; lines that start with # are comments
    if (file := options.api_keys) is not None:
        text = read_capped(file, 1 << 20, command=f"ls -l {file}").decode(
            "utf-8-sig", "replace"
        )
        keys = [
            line.strip()
            for line in text.splitlines()
            if line.strip() and not line.strip().startswith("#")
        ]
        # UTF-16 has null characters
        if not keys or not all(key.isascii() and key.isprintable() for key in keys):
            what = (
                f"{file} contains"
                f" {'a key that is not printable ASCII' if keys else 'no API key'}"
            )
            expected = "one key per line, in UTF-8"
            advice = "openssl rand -hex 32 prints a new key"
            raise LitebertError("LB-971", what, expected=expected, next=advice)
    for origin in options.cors_origins:  # what browsers send: no path, not even a slash
        if origin != "*" and ("://" not in origin or origin.count("/") > 2):
            what = "this is not the origin of a web page"
            advice = "litebert serve --cors-origin https://example.org"
            expected = "scheme://host or scheme://host:port, without a slash at the end"
            raise LitebertError(
                "LB-977", what, received=origin, expected=expected, next=advice
            )
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(message)s")
    logging.getLogger("uvicorn.error").setLevel(logging.ERROR)
    sys.setswitchinterval(SWITCH_SECONDS)
    if options.threads:
        torch.set_num_threads(options.threads)
    log.info("threads: %s", cpu.explain_threads(torch.get_num_threads()))
    listener = _listen(options.host, options.port)

    async def run() -> None:
        metrics = Metrics()
        models = [
            ServedModel(name, path, options, metrics) for name, path in paths.items()
        ]
        config = uvicorn.Config(
            create_app(Service(models, metrics, options), keys),
            http=type(
                "Connection",
                (PatientConnection,),
                {"header_seconds": options.client_seconds},
            ),
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

        server = uvicorn.Server(config)
        is_outdated = asyncio.Event()
        loop = asyncio.get_running_loop()
        server.capture_signals = nullcontext  # type: ignore[assignment,method-assign]  # a signal is not a failure

        def end(number: int) -> None:
            loop.call_soon_threadsafe(server.handle_exit, number, None)

        def note_change(_: int) -> None:
            loop.call_soon_threadsafe(is_outdated.set)

        endings = dict.fromkeys(END_SIGNALS, end)
        reloads = dict.fromkeys(RELOAD_SIGNALS, note_change)

        async def reload() -> None:
            """Reload all models after each signal, also after one during a reload:
            files may have changed since.
            """
            while await is_outdated.wait():
                is_outdated.clear()
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
            # torch and the models stay in memory, so garbage collection can skip them
            gc.freeze()
            for model in models:
                verbs = ", ".join(model.facts["verbs"])
                notes = model.facts["notes"]
                log.info("%s is ready: %s", model.name, "; ".join([verbs, *notes]))

        starting = loop.create_task(start())
        reloading = loop.create_task(reload())
        with handled({**endings, **reloads}):
            await server.serve(sockets=[listener])
            reloading.cancel()
            starting.cancel()
            have_ended = [await model.stop() for model in models]
        if (
            starting.done()
            and not starting.cancelled()
            and (failure := starting.exception())
        ):
            raise failure
        if not all(have_ended):
            # a normal exit would crash a thread that is computing, and wait for one
            # that is loading
            os._exit(0)

    with listener:
        bound, number = listener.getsockname()[:2]
        log.info(
            "listening on http://%s:%d, loading",
            f"[{bound}]" if ":" in bound else bound,
            number,
        )
        asyncio.run(run())


def _listen(host: str, port: int) -> socket.socket:
    is_six = ":" in host
    family = socket.AF_INET6 if is_six else socket.AF_INET
    try:
        listener = socket.create_server(
            (host, port), family=family, backlog=2_048, dualstack_ipv6=is_six
        )
    except (OSError, ValueError) as error:  # ValueError: a system without IPv6
        what = f"cannot listen on {host}:{port}"
        advice = "give a free --port, or a --host of this machine"
        raise LitebertError("LB-970", what, received=error, next=advice) from error
    # asyncio turns Nagle's algorithm off only for a socket with a known protocol. This
    # one gets it from the system; otherwise the body of an answer would wait 40 ms.
    return socket.socket(fileno=listener.detach())
