"""A kind of attention from outside the package, made from its how-to page alone."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from litebert.config import ATTENTION_KINDS
from litebert.fast import pack
from litebert.nn import Batch

PAGE = Path(__file__).parents[2] / "docs" / "extending" / "attention.md"


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, object]]:
    file, use = (part.split("```")[0] for part in PAGE.read_text("utf-8").split("```python\n")[1:])
    (tmp_path / "causal.py").write_text(file)
    monkeypatch.syspath_prepend(tmp_path)
    names: dict[str, object] = {}
    exec(use, names)
    yield names
    del ATTENTION_KINDS["causal"]


def test_the_kind_of_the_page_reads_what_stands_before(made: dict[str, object]) -> None:
    albert = made["albert"]
    whole, short = (Batch.from_lists([[2, 8, 9, 11, 3][:n]]) for n in (5, 3))
    with torch.no_grad():
        expected = albert(whole)
        torch.testing.assert_close(expected[:3], albert(short), rtol=0, atol=1e-5)
        torch.testing.assert_close(albert(whole, torch.tensor([4, 1])), expected[[4, 1]])
        pack(albert)
        torch.testing.assert_close(albert(whole), expected, rtol=0, atol=1e-5)
    albert.train()(whole).sum().backward()
    assert albert.attention[0].query.weight.grad.isfinite().all()
