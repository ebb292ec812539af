"""A real `litebert serve` with tiny random models, and a client without comforts."""

import http.client
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import torch

from litebert.config import AlbertConfig, HeadConfig
from litebert.folder import save_model
from litebert.nn import AlbertForPretraining, AlbertForTask
from litebert.tokenizer import Tokenizer

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
class Running:
    """A server process."""

    process: subprocess.Popen
    lines: list[str] = field(default_factory=list)
    port: int = 0
    key: str = ""
    new_line: threading.Condition = field(default_factory=threading.Condition)

    def ask(
        self,
        path: str,
        body: object = None,
        *,
        raw: bytes | None = None,
        headers: dict[str, str] | None = None,
        method: str | None = None,
        connection: http.client.HTTPConnection | None = None,
    ) -> Reply:
        data = raw if raw is not None else None if body is None else json.dumps(body).encode()
        link = connection or self.connect()
        verb = method or ("GET" if data is None else "POST")
        own = {**JSON, "Authorization": f"Bearer {self.key}"}
        link.request(verb, path, data, own if headers is None else headers)
        answer = link.getresponse()
        reply = Reply(answer.status, {k.lower(): v for k, v in answer.getheaders()}, answer.read())
        if connection is None:
            link.close()
        return reply

    def connect(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)

    def ask_all(self, calls: Sequence[tuple[str, object]], *, clients: int) -> list[Reply]:
        """Send all calls over so many kept-alive connections; answers in order."""
        own, links = threading.local(), []

        def one(call: tuple[str, object]) -> Reply:
            if not hasattr(own, "link"):
                own.link = self.connect()
                links.append(own.link)
            return self.ask(*call, connection=own.link)

        with ThreadPoolExecutor(clients) as pool:
            replies = list(pool.map(one, calls))
        for link in links:
            link.close()
        return replies

    def metric(self, name: str) -> float:
        """Sum a metric over its labels."""
        text = self.ask("/metrics").body.decode()
        found = re.findall(rf"(?m)^{re.escape(name)}(?:\{{[^}}]*\}})? (\S+)$", text)
        return sum(float(value) for value in found)

    def wait_for_line(self, pattern: str, *, seen: int = 0, seconds: float = 120) -> str:
        """Wait until the log has a line after the first `seen` ones."""
        with self.new_line:
            assert self.new_line.wait_for(
                lambda: any(re.search(pattern, line) for line in self.lines[seen:]), seconds
            ), (pattern, self.lines)
            return next(line for line in self.lines[seen:] if re.search(pattern, line))

    def wait_until(self, holds: Callable[[], bool], *, seconds: float = 120) -> None:
        """Ask again and again until something holds."""
        deadline = time.monotonic() + seconds
        while not holds():
            assert time.monotonic() < deadline, self.lines

    def stop(self) -> int:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        return self.process.wait(60)


@contextmanager
def _running(*arguments: str | Path, key: str = "") -> Iterator[Running]:
    """Run `litebert serve`, wait until it listens, end it afterwards."""
    words = ["-m", "litebert", "serve", "--port", "0", "--threads", "1", *map(str, arguments)]
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    process = subprocess.Popen([sys.executable, *words], stderr=subprocess.PIPE, text=True, env=environment)
    server = Running(process, key=key)

    def read() -> None:
        assert process.stderr is not None
        for line in process.stderr:
            with server.new_line:
                server.lines.append(line)
                server.new_line.notify_all()

    reader = threading.Thread(target=read)
    reader.start()
    try:
        listening = server.wait_for_line(r"listening on|LB-|Error")
        server.port = int((re.findall(r":(\d+), loading", listening) or ["0"])[0])
        yield server
    finally:
        server.stop()
        reader.join()
        assert process.stderr is not None
        process.stderr.close()


HEADS = {
    "classify": HeadConfig(kind="sequence-classification", labels=("no", "yes")),
    "tag": HeadConfig(kind="token-classification", labels=("O", "B")),
    "choose": HeadConfig(kind="multiple-choice"),
    "answer": HeadConfig(kind="question-answering"),
}


@pytest.fixture(scope="session")
def make_model(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Return a function that writes a tiny random model, and gives its folder."""
    tokenizer = Tokenizer.load(corpus / "tokenizer")
    config = AlbertConfig(
        vocab_size=tokenizer.vocab_size,
        embedding_size=16,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=64,
        max_position_embeddings=64,
    )

    def make(head: str | None = None, *, seed: int = 1) -> Path:
        folder = tmp_path_factory.mktemp(head or "pretrained")
        generator = torch.Generator().manual_seed(seed)
        network = AlbertForTask(config, HEADS[head]) if head else AlbertForPretraining(config)
        for parameter in network.parameters():
            torch.nn.init.normal_(parameter, std=0.3, generator=generator)
        save_model(network, folder)
        tokenizer.save(folder)
        return folder

    return make


@pytest.fixture(scope="session")
def folders(make_model: Callable[..., Path]) -> dict[str, Path]:
    """Give a pretrained model, and one with each head."""
    return {"base": make_model(), **{head: make_model(head) for head in HEADS}}


@pytest.fixture(scope="session")
def server(folders: dict[str, Path]) -> Iterator[Running]:
    """Give a server with all models and the default limits."""
    with _running(*(f"{name}={folder}" for name, folder in folders.items())) as started:
        for name in folders:
            started.wait_for_line(f"{name} is ready")
        yield started


@pytest.fixture(scope="session")
def small_server(folders: dict[str, Path], tmp_path_factory) -> Iterator[Running]:
    """Give a server with little patience, a short queue and API keys."""
    keys = tmp_path_factory.mktemp("keys") / "keys.txt"
    keys.write_text("first\nsecond\n")
    limits = ("--queue", "4", "--client-seconds", "3", "--api-keys", keys)
    with _running(f"base={folders['base']}", *limits, key="second") as started:
        started.wait_for_line("base is ready")
        yield started


@pytest.fixture(scope="session")
def run_server() -> Callable[..., AbstractContextManager[Running]]:
    """Give the function that runs a server of one's own."""
    return _running
