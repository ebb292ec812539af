"""A real `litebert serve` with tiny random models; the client is that of the contract's
tests.
"""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest

from litebert.tokenizer import Tokenizer
from tests.contract.served import Reply, Server, serve
from tests.networks import CHOICES, LABELS, SPANS, TAGS, save_random


def ask_all(
    server: Server, calls: Sequence[tuple[str, object]], *, clients: int
) -> list[Reply]:
    """Send all calls over `clients` kept-alive connections; return the replies in
    order.
    """

    def share(number: int) -> list[Reply]:
        with closing(server.connect()) as link:
            return [server.ask(*call, link=link) for call in calls[number::clients]]

    with ThreadPoolExecutor(clients) as pool:
        shares = list(pool.map(share, range(clients)))
    return [shares[number % clients][number // clients] for number in range(len(calls))]


HEADS = {
    "base": None,
    "classify": LABELS,
    "tag": TAGS,
    "choose": CHOICES,
    "answer": SPANS,
}


@pytest.fixture(scope="session")
def make_model(
    corpus: Path, tmp_path_factory: pytest.TempPathFactory
) -> Callable[..., Path]:
    tokenizer = Tokenizer.load(corpus / "tokenizer")
    made = partial(save_random, tokenizer=tokenizer, num_hidden_layers=2)
    return lambda name="base", seed=1: made(
        tmp_path_factory.mktemp(name), head=HEADS[name], seed=seed
    )


@pytest.fixture(scope="session")
def folders(make_model: Callable[..., Path]) -> dict[str, Path]:
    return {name: make_model(name) for name in HEADS}


@pytest.fixture(scope="session")
def server(folders: dict[str, Path]) -> Iterator[Server]:
    with serve(*(f"{name}={folder}" for name, folder in folders.items())) as started:
        for name in folders:
            started.wait_for(f"{name} is ready")
        yield started


@pytest.fixture(scope="session")
def small_server(
    folders: dict[str, Path], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Server]:
    """Start a server with a short client timeout, a short queue, API keys and an
    allowed origin.
    """
    keys = tmp_path_factory.mktemp("keys") / "keys.txt"
    keys.write_text("first\nsecond\n")
    own = [
        "--queue",
        4,
        "--client-seconds",
        3,
        "--api-keys",
        keys,
        "--cors-origin",
        "https://a.org",
    ]
    with serve(f"base={folders['base']}", *own) as started:
        started.wait_for("base is ready")
        started.key = "second"
        yield started
