"""Serve answers over HTTP from one process: an event loop, and a thread per model that
computes ragged batches.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from annotated_types import Ge, Gt, Le

from litebert.config import Backend, DeviceName, InferencePrecision
from litebert.errors import LitebertError, missing_package, say


@dataclass(frozen=True)
class Options:
    """How models are served; the options of `litebert serve`."""

    host: Annotated[str, "Address to listen on."] = "127.0.0.1"
    port: Annotated[int, Ge(0), Le(65_535), "Port; 0 takes a free one."] = 8_000
    device: DeviceName = "auto"
    precision: InferencePrecision = None
    backend: Annotated[
        Backend,
        "What computes the encoder on a CPU; auto measures and picks the faster.",
    ] = "auto"
    threads: Annotated[int, Ge(0), "CPU threads; all by default."] = 0
    batch_tokens: Annotated[int, Ge(1), "Maximum tokens in a batch."] = 1_024
    queue: Annotated[int, Ge(1), "Requests that may wait per model."] = 64
    timeout_ms: Annotated[int, Ge(1), "Give up on a request after this long."] = 30_000
    client_seconds: Annotated[
        float, Gt(0), Le(3_600), "Time for a client to send its headers, then its body."
    ] = 10.0
    api_keys: Annotated[Path | None, "File with one API key per line."] = None
    cors_origins: Annotated[
        tuple[str, ...],
        "--cors-origin",
        "Allow browser requests from this origin; repeat for more.",
    ] = ()


def serve(*models: str, options: Options) -> None:
    """Serve models, each [NAME=]MODEL, over HTTP until Ctrl-C or SIGTERM; SIGHUP
    reloads their files.

    Without a MODEL, the packaged model is served.

    litebert serve                                   # then open http://127.0.0.1:8000
    litebert serve english=runs/mine sst2=runs/sst2/model --port 9000
    """
    try:
        from litebert.serve.server import serve as run
    except ModuleNotFoundError as error:
        if str(error.name).startswith("litebert"):
            raise
        raise missing_package(
            str(error.name), extra="serve", needed_for="litebert serve"
        ) from error
    paths = dict[str, str | None]()
    for model in models:
        name, path = _name_and_path(model)
        paths[name] = path
    if len(paths) < len(models):
        raise LitebertError(
            "LB-950",
            "two models would have the same name",
            received=" ".join(models),
            next="litebert serve one=runs/a/model two=runs/b/model",
        )
    if not models:
        say("no MODEL given: serving the packaged model as litebert")
        paths["litebert"] = None
    run(paths, options)


def _name_and_path(model: str) -> tuple[str, str]:
    """Return the name of a model and its path, given as [NAME=]MODEL.

    >>> _name_and_path("english=runs/mine"), _name_and_path("runs/sst2/model")
    (('english', 'runs/mine'), ('sst2', 'runs/sst2/model'))
    """
    name, equals, path = model.partition("=")
    if equals and "/" not in name:
        return name, path
    place = Path(model).absolute()  # a path, which may contain =
    run = place.parent.name
    if place.name in ("model", "best") and run:
        return run, model
    return place.name, model
