"""A `litebert serve` in a process of its own, and a minimal client."""

import http.client
import json
import os
import re
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import pytest

from tests.waiting import DEADLINE, exit_code, wait_until

from .shell import COMMAND
from .tiny import Desk

JSON = {"Content-Type": "application/json"}


@dataclass(frozen=True)
class Reply:
    """What the server answered."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> dict:
        return json.loads(self.body)

    @property
    def code(self) -> str:
        return self.json["error"]["code"]


@dataclass
class Server:
    """A server process and the lines of its log."""

    process: subprocess.Popen
    lines: list[str] = field(default_factory=list)
    port: int = 0
    key: str = ""

    def __post_init__(self) -> None:
        self.reader = threading.Thread(
            target=lambda: [self.lines.append(line) for line in self.process.stderr]
        )
        self.reader.start()

    def connect(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=DEADLINE)

    def ask(
        self,
        path: str,
        body: object = None,
        *,
        raw: bytes | None = None,
        headers: dict[str, str] | None = None,
        method: str = "",
        link: http.client.HTTPConnection | None = None,
    ) -> Reply:
        """Send a request, with the key of the server if it has one."""
        data = raw
        if data is None and body is not None:
            data = json.dumps(body).encode()
        if headers is None:
            headers = dict(JSON)
            if self.key:
                headers["Authorization"] = f"Bearer {self.key}"
        default_method = "GET" if data is None else "POST"
        connection = link or self.connect()
        try:
            connection.request(method or default_method, path, data, headers)
            answer = connection.getresponse()
            names = {name.lower(): value for name, value in answer.getheaders()}
            return Reply(answer.status, names, answer.read())
        finally:
            if link is None:
                connection.close()

    def wait_for(self, pattern: str, *, seen: int = 0) -> str:
        """Wait until the log has a line after the first `seen` ones, and return it."""

        def found() -> list[str]:
            return [line for line in self.lines[seen:] if re.search(pattern, line)]

        self.wait_until(lambda: found() or not self.reader.is_alive())
        assert found(), (pattern, self.lines)
        return found()[0]

    def wait_until(self, holds: Callable[[], object]) -> None:
        """Wait until a condition holds; a failure shows the server's log."""
        wait_until(holds, describe=lambda: self.lines)

    def metric(self, name: str) -> float:
        """Return the sum of a metric over all of its labels."""
        text = self.ask("/metrics").body.decode()
        row = rf"(?m)^{re.escape(name)}(?:\{{[^}}]*\}})? (\S+)$"
        return sum(map(float, re.findall(row, text)))


@contextmanager
def serve(*arguments: object) -> Iterator[Server]:
    """Run `litebert serve` until the block ends; the block starts once the server
    listens.
    """
    words = [*COMMAND, "serve", "--port", "0", "--threads", "1", *map(str, arguments)]
    unbuffered = {**os.environ, "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(
        words, stderr=subprocess.PIPE, text=True, env=unbuffered
    ) as process:
        server = Server(process)
        try:
            address = server.wait_for(r"listening on")
            server.port = int(re.search(r":(\d+)\b", address)[1])
            yield server
        finally:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
            exit_code(process)
            server.reader.join()


MODELS = {
    "base": "base",
    "classify": "reviews",
    "tag": "tags",
    "choose": "choices",
    "answer": "spans",
}
"""The served names and their runs."""


@pytest.fixture(scope="session")
def server(desk: Desk) -> Iterator[Server]:
    with serve(
        *(f"{name}={getattr(desk, run)}" for name, run in MODELS.items())
    ) as started:
        for name in MODELS:
            started.wait_for(f"{name} is ready")
        yield started


@pytest.fixture(scope="session")
def guarded(desk: Desk, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    keys = tmp_path_factory.mktemp("keys") / "keys.txt"
    keys.write_text("key-one\n# of the laboratory\nkey-two\n", "utf-8-sig")
    with serve(f"base={desk.base}", "--api-keys", keys) as started:
        started.wait_for("base is ready")
        yield started
