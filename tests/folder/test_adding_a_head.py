"""The how-to for a head, followed to the letter from outside the package."""

import importlib
import re
import shutil
from pathlib import Path

import pytest
import torch

from litebert.config import HEADS, AlbertConfig, HeadConfig
from litebert.errors import LitebertError
from litebert.folder import load_model, save_model
from litebert.hub import model_card
from litebert.inference import Model
from litebert.nn import AlbertForTask, Batch
from tests.interop.transformers_models import SHAPE

HOW_TO = Path(__file__).parents[2] / "docs" / "extending" / "head.md"


@torch.inference_mode()
def test_a_head_from_outside_is_saved_loaded_and_described(
    tmp_path: Path, small_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = re.findall(r"```python\n(.*?)```", HOW_TO.read_text(encoding="utf-8"), re.DOTALL)[0]
    (tmp_path / "polarity.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    importlib.import_module("polarity")
    try:
        network = AlbertForTask(AlbertConfig(**SHAPE), HeadConfig(kind="two-scores")).eval()
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
