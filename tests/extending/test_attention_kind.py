"""A kind of attention from outside the package, made from its how-to page alone."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

import litebert
from litebert.config import ATTENTION_KINDS
from litebert.errors import LitebertError
from litebert.fast import pack
from litebert.folder import save_model
from litebert.interop.export.network import open_source
from litebert.nn import Albert, AlbertForPretraining, Batch
from litebert.serve.batching import attention
from litebert.tokenizer import Tokenizer

PAGE = Path(__file__).parents[2] / "docs" / "extending" / "attention.md"


@pytest.fixture
def albert(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Albert]:
    file, use = (part.split("```")[0] for part in PAGE.read_text("utf-8").split("```python\n")[1:])
    (tmp_path / "causal.py").write_text(file)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "causal", raising=False)
    names: dict[str, object] = {}
    exec(use, names)
    made = names["albert"]
    assert isinstance(made, Albert)
    yield made
    del ATTENTION_KINDS["causal"]


def test_the_kind_of_the_page_reads_what_stands_before(albert: Albert) -> None:
    whole, short = (Batch.from_lists([[2, 8, 9, 11, 3][:n]]) for n in (5, 3))
    with torch.no_grad():
        expected = albert(whole)
        torch.testing.assert_close(expected[:3], albert(short), rtol=0, atol=1e-5)
        pack(albert)
        torch.testing.assert_close(albert(whole), expected, rtol=0, atol=1e-5)
        torch.testing.assert_close(albert(whole, torch.tensor([4, 1])), expected[[4, 1]], rtol=0, atol=1e-5)
    albert.train()(whole).sum().backward()
    assert albert.attention[0].query.weight.grad.isfinite().all()


def test_its_map_its_files_and_its_exports_follow_from_its_record(albert: Albert, corpus: Path, tmp_path: Path) -> None:
    tokenizer = Tokenizer.load(corpus / "tokenizer")
    folder = tmp_path / "model"
    folder.mkdir()
    save_model(AlbertForPretraining(albert.config.model_copy(update={"vocab_size": tokenizer.vocab_size})), folder)
    tokenizer.save(folder)
    assert (folder / "model-causal.safetensors").is_file()
    assert "attention_window" not in (folder / "config.json").read_text()
    found = attention(litebert.load(folder), "Anna walked home.", step=1)
    for head in torch.tensor(found["heads"]):
        assert torch.equal(head, head.tril())
        torch.testing.assert_close(head.sum(1), torch.ones(len(head)), atol=1e-3, rtol=0)
    with pytest.raises(LitebertError, match="LB-470"):
        open_source(folder)
    kind = ATTENTION_KINDS.pop("causal")
    try:
        with pytest.raises(LitebertError, match="import the file that adds it"):
            litebert.load(folder)
    finally:
        ATTENTION_KINDS["causal"] = kind
