"""A rival from outside the benchmark, made from its how-to page alone."""

from pathlib import Path

import numpy as np
import pytest

from litebert.config import AlbertConfig
from litebert.folder import save_model
from litebert.nn import AlbertForPretraining

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "extending" / "rival.md"


def test_the_rival_of_the_page_gives_what_ours_gives(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT))
    from benchmarks.speed.rivals import RIVALS, load, names
    from benchmarks.texts import Texts

    monkeypatch.setattr("benchmarks.speed.rivals.RIVALS", RIVALS | {})
    (block,) = PAGE.read_text("utf-8").split("```python\n")[1:]
    exec(block.split("```")[0], {})
    config = AlbertConfig(
        vocab_size=60, hidden_size=32, num_hidden_layers=2, num_attention_heads=4,
        intermediate_size=64,
    )  # fmt: skip
    save_model(AlbertForPretraining(config), tmp_path / "model")
    texts = Texts(([2, 7, 8, 3], [2, 9, 3]), ([0] * 4, [0] * 3))
    assert "plain fp32" in names()
    states = []
    for name in ("plain fp32", "litebert fp32"):
        rival = load(name, tmp_path)
        states.append(rival.states(rival.ready(texts)().detach(), texts))
    np.testing.assert_allclose(states[0], states[1], rtol=0, atol=1e-5)
