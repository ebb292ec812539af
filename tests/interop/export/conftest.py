"""Small model folders of every kind, with weights large enough that a mistake shows."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from litebert.config import AlbertConfig, HeadConfig
from litebert.folder import save_model
from litebert.interop.export.onnx import export_onnx
from litebert.interop.reports import OnnxReport
from litebert.nn import AlbertForPretraining, AlbertForTask
from litebert.tokenizer import Tokenizer, train_tokenizer

SHAPE = AlbertConfig(
    vocab_size=700,
    embedding_size=16,
    hidden_size=32,
    num_hidden_layers=2,
    num_attention_heads=4,
    intermediate_size=48,
    max_position_embeddings=512,
)
LABELS = ("bad", "fair", "good")
HEADS = {
    "sequence-classification": HeadConfig(kind="sequence-classification", labels=LABELS),
    "vector-classification": HeadConfig(kind="vector-classification", labels=LABELS),
    "token-classification": HeadConfig(kind="token-classification", labels=LABELS),
    "question-answering": HeadConfig(kind="question-answering"),
    "conditional-question-answering": HeadConfig(kind="conditional-question-answering"),
    "multiple-choice": HeadConfig(kind="multiple-choice"),
}
Build = Callable[..., AlbertForPretraining | AlbertForTask]


@pytest.fixture(scope="session")
def build() -> Build:
    """Build a network by the kind of its head, with changes to its configuration."""

    def make(kind: str = "pretraining", **changes: object) -> AlbertForPretraining | AlbertForTask:
        config = SHAPE.model_copy(update=changes)
        network = AlbertForTask(config, HEADS[kind]) if kind in HEADS else AlbertForPretraining(config)
        generator = torch.Generator().manual_seed(5)
        for name, parameter in network.named_parameters():
            mean = 1.0 if name.endswith("norm.weight") else 0.0
            torch.nn.init.normal_(parameter, mean, 0.3, generator=generator)
        return network.eval()

    return make


@pytest.fixture(scope="session")
def tokenizer(stories: Path) -> Tokenizer:
    """Train a small vocabulary."""
    lines = stories.read_text(encoding="utf-8").splitlines()
    return Tokenizer.from_model(train_tokenizer(lines, vocab_size=90))


@pytest.fixture(scope="session")
def folder_of(build: Build, tokenizer: Tokenizer, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Give the model folder of a kind of head; each is written once."""
    folders: dict[str, Path] = {}

    def folder(kind: str) -> Path:
        if kind not in folders:
            folders[kind] = tmp_path_factory.mktemp(kind)
            save_model(build(kind), folders[kind])
            tokenizer.save(folders[kind])
        return folders[kind]

    return folder


@pytest.fixture(scope="session")
def padded_inputs() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Give ids, mask and segments of three sequences, of 14, 9 and 11 tokens."""
    generator = torch.Generator().manual_seed(2)
    ids = torch.randint(5, 90, (3, 14), generator=generator)
    mask = torch.ones_like(ids)
    mask[1, 9:] = mask[2, 11:] = 0
    segments = torch.zeros_like(ids)
    segments[:, 5:] = 1
    return ids, mask, segments * mask


@pytest.fixture(scope="session")
def exported(folder_of: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], OnnxReport]:
    """Export the folder of a kind of head, once."""
    reports: dict[str, OnnxReport] = {}

    def export(kind: str) -> OnnxReport:
        if kind not in reports:
            output = tmp_path_factory.mktemp("exported") / kind / "model.onnx"
            reports[kind] = export_onnx(folder_of(kind), output, has_latency=False)
        return reports[kind]

    return export
