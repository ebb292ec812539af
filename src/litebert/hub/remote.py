"""Run the process that talks to the Hub: start it, read its messages, stop it if it stalls."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from queue import Empty, Queue
from threading import Thread
from typing import IO

from litebert.errors import LitebertError
from litebert.hub.errors import Failure, explained
from litebert.hub.names import HubName
from litebert.hub.transfer import HubRequest

PATIENCE = 30.0
"""A transfer is abandoned after this many seconds without a new byte or an answer."""


def request(action: str, name: HubName) -> HubRequest:
    """Return a request without files; the caller adds them."""
    return HubRequest(
        action=action,
        name=name.repository,
        revision=name.revision,
        patterns=[],
        files={},
        texts={},
        private=False,
        message="",
    )


def run(request: HubRequest, patience: float) -> dict[str, object]:
    """Let another process carry out a request; stop it after `patience` seconds of silence.

    Raises:
        LitebertError: LB-621 to LB-633, the transfer failed.
    """
    if find_spec("huggingface_hub") is None:
        raise LitebertError(
            "LB-621",
            f"{request['name']} is on the Hub, and huggingface_hub is not installed",
            received="no package huggingface_hub",
            expected="the extra [hub], or a folder on this disk",
            next="pip install 'litebert[hub]'",
        )
    has_terminal = sys.stderr is not None and sys.stderr.isatty()
    process = subprocess.Popen(
        # -P: do not import the modules beside that file as top-level modules.
        [sys.executable, "-P", str(Path(__file__).with_name("transfer.py"))],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=None if has_terminal else subprocess.DEVNULL,
        text=True,
        env=os.environ | {"HF_HUB_DISABLE_TELEMETRY": "1", "PYTHONWARNINGS": "ignore"},
    )
    assert process.stdin is not None and process.stdout is not None
    lines: Queue[str] = Queue()
    reader = Thread(target=_collect, args=(process.stdout, lines), daemon=True)
    reader.start()
    try:
        with suppress(BrokenPipeError), process.stdin:
            process.stdin.write(json.dumps(request))
        return _outcome(lines, request, patience)
    finally:
        process.kill()
        process.wait()
        reader.join()
        process.stdout.close()


def _collect(stream: IO[str], lines: Queue[str]) -> None:
    for line in stream:
        lines.put(line)
    lines.put("")


def _outcome(lines: Queue[str], request: HubRequest, patience: float) -> dict[str, object]:
    """Read the messages of the other process until it is done, has failed, or is silent."""
    reached = most = 0.0
    last_words = f"nothing new for {patience:.0f} seconds"
    deadline = time.monotonic() + patience
    while True:
        try:
            line = lines.get(timeout=max(0.0, deadline - time.monotonic()))
        except Empty:
            raise _failed("stalled", last_words, request) from None
        if not line:
            raise _failed("other", "the process that fetches has ended", request)
        message = json.loads(line)
        if "done" in message:
            return dict(message["done"])
        if "failed" in message:
            raise _failed(message["failed"], message["text"], request, message["endpoint"])
        last_words = message.get("warning", last_words)
        reached += message.get("bytes", 0)
        if reached > most:  # sending bytes a second time is no progress
            most, deadline = reached, time.monotonic() + patience


def _failed(reason: str, text: str, request: HubRequest, endpoint: str = "") -> LitebertError:
    return explained(Failure(reason, text, request["action"], request["name"], endpoint))
