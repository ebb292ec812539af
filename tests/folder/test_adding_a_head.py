"""The how-to for a head, followed to the letter from outside the package."""

import shutil
from pathlib import Path

import pytest
import torch

from litebert.config import HEADS
from litebert.errors import LitebertError
from litebert.folder import load_model, save_model
from litebert.hub.card import model_card
from litebert.inference import Model
from litebert.nn import AlbertForTask, Batch
from tests.extending.test_pages import made_by_page


@torch.inference_mode()
def test_a_head_from_outside_is_saved_loaded_and_described(
    tmp_path: Path, small_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    try:
        network = made_by_page("head", tmp_path, monkeypatch, "polarity")["network"].eval()
        save_model(network, tmp_path / "model")
        again = load_model(tmp_path / "model").network
        assert isinstance(again, AlbertForTask) and again.head_config.kind == "two-scores"
        batch = Batch.from_lists([[2, 7, 3], [2, 8, 9, 3]])
        assert torch.equal(again(batch), network(batch)) and again(batch).shape == (2, 2)
        assert "gives two scores to each text" in model_card(tmp_path / "model")
    finally:
        HEADS.pop("two-scores")
    others = shutil.ignore_patterns("model.safetensors", "config.json")
    shutil.copytree(small_model, tmp_path / "model", dirs_exist_ok=True, ignore=others)
    said = r"LB-615[\s\S]*no imported module[\s\S]*scores\.weight[\s\S]*import the module"
    with pytest.raises(LitebertError, match=said):
        Model.load(tmp_path / "model").classify(["A text."])
