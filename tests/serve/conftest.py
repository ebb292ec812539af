"""A real `litebert serve` with tiny random models; the client is the one of the contract."""

import http.client
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from litebert.tokenizer import Tokenizer
from tests.contract.served import Reply, Server, serve
from tests.inference.random_model import CHOICES, LABELS, SPANS, TAGS, save_random


def ask_all(server: Server, calls: Sequence[tuple[str, object]], *, clients: int) -> list[Reply]:
    """Send all calls over so many kept-alive connections; answers in order."""
    own, links = threading.local(), list[http.client.HTTPConnection]()

    def one(call: tuple[str, object]) -> Reply:
        if not hasattr(own, "link"):
            own.link = server.connect()
            links.append(own.link)
        return server.ask(*call, link=own.link)

    with ThreadPoolExecutor(clients) as pool:
        replies = list(pool.map(one, calls))
    for link in links:
        link.close()
    return replies


HEADS = {"base": None, "classify": LABELS, "tag": TAGS, "choose": CHOICES, "answer": SPANS}


@pytest.fixture(scope="session")
def make_model(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Return a function that writes a tiny random model, and gives its folder."""
    tokenizer = Tokenizer.load(corpus / "tokenizer")
    return lambda name="base", seed=1: save_random(tmp_path_factory.mktemp(name), tokenizer, HEADS[name], seed=seed)


@pytest.fixture(scope="session")
def folders(make_model: Callable[..., Path]) -> dict[str, Path]:
    """Give a pretrained model, and one with each head."""
    return {name: make_model(name) for name in HEADS}


@pytest.fixture(scope="session")
def server(folders: dict[str, Path]) -> Iterator[Server]:
    """Give a server with all models and the default limits."""
    with serve(*(f"{name}={folder}" for name, folder in folders.items())) as started:
        for name in folders:
            started.wait_for(f"{name} is ready")
        yield started


@pytest.fixture(scope="session")
def small_server(folders: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Give a server with little patience, a short queue and API keys."""
    keys = tmp_path_factory.mktemp("keys") / "keys.txt"
    keys.write_text("first\nsecond\n")
    with serve(f"base={folders['base']}", "--queue", 4, "--client-seconds", 3, "--api-keys", keys) as started:
        started.wait_for("base is ready")
        started.key = "second"
        yield started
