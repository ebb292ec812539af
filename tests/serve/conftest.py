"""A real `litebert serve` with tiny random models; the client is the one of the contract."""

import http.client
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch

from litebert.config import AlbertConfig, HeadConfig
from litebert.folder import save_model
from litebert.nn import AlbertForPretraining, AlbertForTask
from litebert.tokenizer import Tokenizer
from tests.contract.served import Reply, Server, serve


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
