"""The entry point of a model process; it is separate so that the server never imports torch."""

from __future__ import annotations

import socket
from dataclasses import dataclass

from litebert.config import Backend, Precision


@dataclass(frozen=True)
class ModelSource:
    """What a model process loads, and with how many threads it computes (0: torch decides).

    Without a path, it loads the model that comes with the package.
    """

    path: str | None
    precision: Precision = "fp32"
    threads: int = 0
    backend: Backend = "auto"


def enter(connection: socket.socket, source: ModelSource) -> None:
    """Run the model process."""
    from litebert.serve.model_process import run

    run(connection, source)
