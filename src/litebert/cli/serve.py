"""litebert serve: answers over HTTP."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click

from litebert.cli.loading import precision_option
from litebert.cli.output import note
from litebert.cli.texts import AtLeast

if TYPE_CHECKING:
    from litebert.config import Backend, Precision

PACKAGED_NAME = "litebert"


@click.command()
@click.argument("models", metavar="[[NAME=]MODEL]...", nargs=-1)
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option(
    "--port", default=8000, show_default=True, type=click.IntRange(0, 65_535), help="Port; 0 takes a free one."
)
@precision_option
@click.option(
    "--backend",
    type=click.Choice(["auto", "onnxruntime", "torch"]),
    default="auto",
    show_default=True,
    help="Kernels for one text at a time, in fp32; auto measures and takes the faster.",
)
@click.option("--threads", default=0, type=AtLeast(0), help="CPU threads of each model; all by default.")
@click.option(
    "--batch-tokens", default=1_024, show_default=True, type=AtLeast(1), help="Most tokens computed together."
)
@click.option("--queue", default=64, show_default=True, type=AtLeast(1), help="Requests that may wait per model.")
@click.option("--timeout-ms", default=30_000, show_default=True, type=AtLeast(1), help="Default deadline.")
@click.option(
    "--client-seconds",
    default=10.0,
    show_default=True,
    type=click.FloatRange(0, min_open=True),
    help="Time within which a client must send its headers, and then its body.",
)
@click.option("--api-keys", type=click.Path(path_type=Path), help="File with one API key per line.")
@click.option("--cors-origin", multiple=True, help="Web origin that may call; repeat for more.")
def serve(
    models: tuple[str, ...],
    host: str,
    port: int,
    precision: Precision,
    backend: Backend,
    threads: int,
    batch_tokens: int,
    queue: int,
    timeout_ms: int,
    client_seconds: float,
    api_keys: Path | None,
    cors_origin: tuple[str, ...],
) -> None:
    """Serve models over HTTP until Ctrl-C or SIGTERM; SIGHUP loads their files again.

    Without a MODEL, the model that comes with the package is served.

    \b
    litebert serve                                   # then open http://127.0.0.1:8000
    litebert serve models/english-16m
    litebert serve english=models/english-16m sst2=runs/sst2/model --port 9000
    """
    from litebert.errors import missing_package

    try:
        from litebert.serve import ModelSource, ServerSettings
        from litebert.serve import serve as serve_models
    except ModuleNotFoundError as error:
        package = str(error.name)
        raise missing_package(package, extra="serve", needed_for="litebert serve") from error
    sources = {name: ModelSource(path, precision, threads, backend) for name, path in map(_named, models)}
    _require_distinct(sources, models)
    if not models:
        note(f"no MODEL given: serving the packaged model as {PACKAGED_NAME}")
        sources = {PACKAGED_NAME: ModelSource(None, precision, threads, backend)}
    settings = ServerSettings(
        queue=queue,
        batch_tokens=batch_tokens,
        timeout_ms=timeout_ms,
        client_seconds=client_seconds,
        api_keys=_keys(api_keys),
        cors_origins=cors_origin,
    )
    serve_models(sources, settings, host=host, port=port)


def _named(argument: str) -> tuple[str, str]:
    """Split NAME=PATH; without a name, that of runs/sst2/model is sst2."""
    name, equals, path = argument.partition("=")
    if equals:
        return name, path
    parts = Path(argument).absolute().parts
    return parts[-2] if parts[-1] in ("model", "best") else parts[-1], argument


def _require_distinct(sources: Mapping[str, object], models: tuple[str, ...]) -> None:
    from litebert.errors import LitebertError

    if len(sources) == len(models):
        return
    raise LitebertError(
        "LB-950",
        "two models would have the same name",
        received=" ".join(models),
        expected="distinct names",
        next="litebert serve one=runs/a/model two=runs/b/model",
    )


def _keys(file: Path | None) -> tuple[str, ...]:
    from litebert.errors import LitebertError
    from litebert.files import read_capped

    if file is None:
        return ()
    text = read_capped(file, 1 << 20, command=f"ls -l {file}").decode("utf-8", "replace")
    keys = tuple(line.strip() for line in text.splitlines() if line.strip())
    if keys:
        return keys
    raise LitebertError(
        "LB-971",
        f"{file} contains no API key",
        received="an empty file",
        expected="one key per line",
        next="openssl rand -hex 32 > keys.txt",
    )
