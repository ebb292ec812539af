"""A network with local attention is loaded by us alone, and refused by name elsewhere."""

import json
from pathlib import Path

import pytest
import torch

from litebert.config import AlbertConfig
from litebert.errors import LitebertError
from litebert.folder import load_model, save_model
from litebert.interop.export.network import open_source
from litebert.interop.google import export_checkpoint
from litebert.nn import AlbertForPretraining, Batch

LOCAL = AlbertConfig(
    vocab_size=40,
    embedding_size=8,
    hidden_size=16,
    num_hidden_layers=2,
    num_attention_heads=4,
    intermediate_size=24,
    max_position_embeddings=24,
    attention="local",
    attention_window=2,
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    save_model(AlbertForPretraining(LOCAL), tmp_path)
    return tmp_path


@torch.no_grad()
def test_the_folder_holds_its_kind_of_attention(folder: Path) -> None:
    table = json.loads((folder / "config.json").read_text())
    assert (table["attention"], table["attention_window"]) == ("local", 2)
    network = load_model(folder).network
    assert network.config == LOCAL
    ids = Batch.from_lists([list(range(5, 25))])
    packed = load_model(folder, for_inference=True).network
    torch.testing.assert_close(packed.albert(ids), network.albert(ids), rtol=0, atol=1e-5)


def test_transformers_refuses_the_folder_by_its_model_type(folder: Path) -> None:
    transformers = pytest.importorskip("transformers")
    with pytest.raises(ValueError, match="albert-litebert"):
        transformers.AutoConfig.from_pretrained(folder)


def test_transformers_finds_no_weights_when_its_class_is_named(folder: Path) -> None:
    transformers = pytest.importorskip("transformers")
    with pytest.raises(OSError, match=r"model\.safetensors"):
        transformers.AlbertModel.from_pretrained(folder)


def test_exports_refuse_it(folder: Path) -> None:
    with pytest.raises(LitebertError, match="LB-470"):
        open_source(folder)
    with pytest.raises(LitebertError, match=r"LB-709[\s\S]*attention local"):
        export_checkpoint(folder, folder / "out")
