"""Small models for the command line, and the command line in this process."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch

from litebert.cli import run
from litebert.config import AlbertConfig, HeadConfig
from litebert.folder import save_model
from litebert.nn import AlbertForPretraining, AlbertForTask
from litebert.tokenizer import Tokenizer


@dataclass(frozen=True)
class Done:
    """What a command left: its exit code and what it printed."""

    exit_code: int
    stdout: str
    stderr: str


Command = Callable[..., Done]


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str]) -> Command:
    """Return a function that runs a command as the shell does, boundary included."""

    def call(*words: object) -> Done:
        capsys.readouterr()
        code = 0
        try:
            code = run([str(word) for word in words])
        except SystemExit as stopped:
            code = int(stopped.code or 0)
        shown = capsys.readouterr()
        return Done(code, shown.out, shown.err)

    return call


def write_model(folder: Path, corpus: Path, labels: Sequence[str] = (), *, kind: str | None = None) -> Path:
    """Write a tiny model with random weights: for pretraining, for classification, or of a kind."""
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
    generator = torch.Generator().manual_seed(1)
    kind = kind or ("sequence-classification" if labels else None)
    head = HeadConfig(kind=kind, labels=tuple(labels)) if kind else None
    network = (
        AlbertForTask(config, head, generator=generator) if head else AlbertForPretraining(config, generator=generator)
    )
    folder.mkdir(parents=True, exist_ok=True)
    save_model(network, folder)
    tokenizer.save(folder)
    return folder


@pytest.fixture(scope="session")
def pretrained(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give a model with pretraining heads."""
    return write_model(tmp_path_factory.mktemp("pretrained"), corpus)


@pytest.fixture(scope="session")
def classifier(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give a model that classifies, with a label that steers a terminal."""
    return write_model(tmp_path_factory.mktemp("classifier"), corpus, ("good", "\x1b[31mbad\x9b0m"))
