"""Serving as a function: models by name, over HTTP."""

from __future__ import annotations

from pathlib import Path

from litebert.errors import LitebertError, missing_package, say
from litebert.serve import Options

PACKAGED_NAME = "litebert"


def serve(*models: str, options: Options) -> None:
    """Serve models, each [NAME=]MODEL, over HTTP until Ctrl-C or SIGTERM; SIGHUP loads their files again.

    Without a MODEL, the model that comes with the package is served.

    litebert serve                                   # then open http://127.0.0.1:8000
    litebert serve english=runs/mine sst2=runs/sst2/model --port 9000
    """
    try:
        from litebert.serve.server import serve as run
    except ModuleNotFoundError as error:
        if str(error.name).startswith("litebert"):
            raise
        raise missing_package(str(error.name), extra="serve", needed_for="litebert serve") from error
    named: dict[str, str | None] = dict(map(_named, models))
    if len(named) < len(models):
        what, next_step = "two models would have the same name", "litebert serve one=runs/a/model two=runs/b/model"
        raise LitebertError("LB-950", what, received=" ".join(models), next=next_step)
    if not models:
        say(f"no MODEL given: serving the packaged model as {PACKAGED_NAME}")
    run(named or {PACKAGED_NAME: None}, options)


def _named(argument: str) -> tuple[str, str]:
    """Split NAME=PATH; without a name, that of runs/sst2/model is sst2."""
    name, equals, path = argument.partition("=")
    if equals:
        return name, path
    parts = Path(argument).absolute().parts
    return parts[-2] if parts[-1] in ("model", "best") else parts[-1], argument
