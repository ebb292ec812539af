"""The model process: load, test, then answer one batch after another until the server closes."""

from __future__ import annotations

import gc
import logging
import signal
import socket
import sys
from typing import BinaryIO, cast

import numpy as np
import torch

from litebert.errors import DamagedError, LitebertError
from litebert.files import Json, hash_file
from litebert.hub import locate
from litebert.inference import Model, packaged_model
from litebert.nn import depth_plan
from litebert.serve.answering import VerbRequest, answer_all
from litebert.serve.entry import ModelSource
from litebert.serve.frames import frame, read_frame

_SHORT, _LONG = "The sun rises in the east.", "In the evening it sets in the west. " * 8


def run(connection: socket.socket, source: ModelSource) -> None:
    """Answer one server over one connection; exit when it closes."""
    # Ctrl-C and service managers signal the whole group: the server decides when this process ends.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    logging.basicConfig(stream=sys.stderr, format="%(levelname)s %(name)s: %(message)s")
    with connection, connection.makefile("rwb") as stream:
        file = cast(BinaryIO, stream)
        try:
            model = _load(source)
        except LitebertError as error:
            names = ("code", "what", "received", "expected", "next", "exit_code")
            _send(file, {"failed": {name: getattr(error, name) for name in names}})
            return
        _send(file, {"ready": _facts(model, source)})
        gc.freeze()  # torch and the model stay in memory: garbage collection can skip them
        while (message := read_frame(file)) is not None:
            wanted = cast(list[dict[str, Json]], message)
            requests = [VerbRequest(str(w["verb"]), cast(dict[str, Json], w["body"])) for w in wanted]
            _send(file, answer_all(model, requests))


def _load(source: ModelSource) -> Model:
    if source.threads:
        torch.set_num_threads(source.threads)
    model = Model.load(source.path, precision=source.precision, backend=source.backend)
    self_test(model)
    return model


def self_test(model: Model) -> None:
    """Check that vectors are finite, differ between texts, and do not depend on the batch.

    Raises:
        DamagedError: LB-967, they are not so.
    """
    together = model.embed([_SHORT, _LONG, _SHORT])
    alone = model.embed([_SHORT])[0]
    scale = float(np.abs(alone).max())
    is_finite = bool(np.isfinite(together).all())
    is_alike = bool(np.allclose(together[0], together[1], atol=1e-6 * scale))
    is_stable = bool(np.allclose(together[[0, 2]], alone, rtol=0, atol=0.05 * scale))
    if is_finite and is_stable and not is_alike:
        return
    raise DamagedError(
        "LB-967",
        "the model failed its self-test",
        received=f"finite: {is_finite}, texts differ: {not is_alike}, batch equals alone: {is_stable}",
        expected="finite vectors that differ between texts and do not depend on the batch",
        next="fetch or export the model again",
    )


def _facts(model: Model, source: ModelSource) -> Json:
    folder = packaged_model() if source.path is None else locate(source.path)
    files = sorted([*folder.glob("*.safetensors"), folder / "config.json"])
    return {
        "verbs": [*model.verbs],
        "version": "-".join(hash_file(path)[:8] for path in files),
        "hidden_size": model.network.config.hidden_size,
        "num_steps": model.network.config.num_steps,
        "num_blocks": len(set(depth_plan(model.network.config))),
        "max_tokens": model.network.config.max_position_embeddings,
        "notes": [*model.notes],
    }


def _send(file: BinaryIO, value: Json) -> None:
    file.write(frame(value))
    file.flush()
