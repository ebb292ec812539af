"""Serving as a function: models by name, over HTTP."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from annotated_types import Ge, Gt, Le

from litebert.errors import LitebertError, missing_package, say

PACKAGED_NAME = "litebert"


def serve(
    *models: str,
    host: Annotated[str, "Address to listen on."] = "127.0.0.1",
    port: Annotated[int, Ge(0), Le(65_535), "Port; 0 takes a free one."] = 8_000,
    precision: Annotated[
        Literal["fp32", "bf16"], "bf16 is several times faster where the machine has it, and within 1 %."
    ] = "fp32",
    backend: Annotated[
        Literal["auto", "onnxruntime", "torch"],
        "Kernels for one text at a time, in fp32; auto measures and takes the faster.",
    ] = "auto",
    threads: Annotated[int, Ge(0), "CPU threads; all by default."] = 0,
    batch_tokens: Annotated[int, Ge(1), "Most tokens computed together."] = 1_024,
    queue: Annotated[int, Ge(1), "Requests that may wait per model."] = 64,
    timeout_ms: Annotated[int, Ge(1), "Default deadline."] = 30_000,
    client_seconds: Annotated[float, Gt(0), "Time for a client to send its headers, and then its body."] = 10.0,
    api_keys: Annotated[Path | None, "File with one API key per line."] = None,
    cors_origins: Annotated[tuple[str, ...], "Web origin that may call; repeat for more."] = (),
) -> None:
    """Serve models, each [NAME=]MODEL, over HTTP until Ctrl-C or SIGTERM; SIGHUP loads their files again.

    Without a MODEL, the model that comes with the package is served.

    litebert serve                                   # then open http://127.0.0.1:8000
    litebert serve english=models/english-16m sst2=runs/sst2/model --port 9000
    """
    try:
        from litebert.serve.batching import Source
        from litebert.serve.server import read_keys
        from litebert.serve.server import serve as run
    except ModuleNotFoundError as error:
        if str(error.name).startswith("litebert"):
            raise
        raise missing_package(str(error.name), extra="serve", needed_for="litebert serve") from error
    named = dict(map(_named, models))
    if len(named) < len(models):
        raise LitebertError(
            "LB-950",
            "two models would have the same name",
            received=" ".join(models),
            expected="distinct names",
            next="litebert serve one=runs/a/model two=runs/b/model",
        )
    if not models:
        say(f"no MODEL given: serving the packaged model as {PACKAGED_NAME}")
    sources = {name: Source(path, precision, backend) for name, path in named.items()}
    run(
        sources or {PACKAGED_NAME: Source(None, precision, backend)},
        host=host,
        port=port,
        threads=threads,
        batch_tokens=batch_tokens,
        queue=queue,
        timeout_ms=timeout_ms,
        client_seconds=client_seconds,
        api_keys=() if api_keys is None else read_keys(api_keys),
        cors_origins=cors_origins,
    )


def _named(argument: str) -> tuple[str, str]:
    """Split NAME=PATH; without a name, that of runs/sst2/model is sst2."""
    name, equals, path = argument.partition("=")
    if equals:
        return name, path
    parts = Path(argument).absolute().parts
    return parts[-2] if parts[-1] in ("model", "best") else parts[-1], argument
