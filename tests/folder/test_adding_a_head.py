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
        config = AlbertConfig(vocab_size=90, hidden_size=32, num_attention_heads=4, num_hidden_layers=2)
        network = AlbertForTask(config, HeadConfig(kind="two-scores")).eval()
        save_model(network, tmp_path / "model")
        again = load_model(tmp_path / "model").network
        assert isinstance(again, AlbertForTask) and again.head_config.kind == "two-scores"
        batch = Batch.from_lists([[2, 7, 3], [2, 8, 9, 3]])
        assert torch.equal(again(batch), network(batch)) and again(batch).shape == (2, 2)
        assert "gives two scores to each text" in model_card(tmp_path / "model")
    finally:
        HEADS.pop("two-scores")
    shutil.copytree(small_model, tmp_path / "model", dirs_exist_ok=True, ignore=_weights)
    with pytest.raises(LitebertError, match=r"LB-615[\s\S]*no imported module") as caught:
        Model.load(tmp_path / "model").classify(["A text."])
    assert "scores.weight" in caught.value.received
    assert "import the module" in caught.value.next


def _weights(_: str, names: list[str]) -> list[str]:
    return [name for name in names if name in ("model.safetensors", "config.json")]
