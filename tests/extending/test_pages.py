"""A third-party kind of attention, command and rival, each made only from its how-to
page.
"""

import json
from pathlib import Path

import click
import numpy as np
import pytest
import torch
from click.testing import CliRunner

import litebert
from litebert.config import ATTENTION_KINDS, AlbertConfig
from litebert.errors import LitebertError
from litebert.fast import pack
from litebert.folder import ModelFolder, write_folder
from litebert.inference.explain import attention
from litebert.interop.export.program import open_source
from litebert.nn import Albert, AlbertForPretraining, Batch
from litebert.tokenizer import Tokenizer
from tests.conftest import ROOT, made_by_page
from tests.networks import SHAPE


@pytest.fixture
def albert(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Albert:
    monkeypatch.setitem(ATTENTION_KINDS, "causal", None)  # undo what the page registers
    made = made_by_page("attention", tmp_path, monkeypatch, "causal")["albert"]
    assert isinstance(made, Albert)
    return made


def test_the_attention_of_the_page_reads_only_earlier_tokens(albert: Albert) -> None:
    whole, short = (Batch.from_lists([[2, 8, 9, 11, 3][:n]]) for n in (5, 3))
    with torch.no_grad():
        expected = albert(whole)
        torch.testing.assert_close(expected[:3], albert(short), rtol=0, atol=1e-5)
        pack(albert)
        torch.testing.assert_close(albert(whole), expected, rtol=0, atol=1e-5)
        torch.testing.assert_close(
            albert(whole, torch.tensor([4, 1])), expected[[4, 1]], rtol=0, atol=1e-5
        )
    albert.train()(whole).sum().backward()
    assert albert.attention[0].query.weight.grad.isfinite().all()


def test_its_map_files_and_exports_follow_from_its_record(
    albert: Albert, corpus: Path, tmp_path: Path
) -> None:
    tokenizer = Tokenizer.load(corpus / "tokenizer")
    folder = tmp_path / "model"
    folder.mkdir()
    write_folder(
        ModelFolder(
            AlbertForPretraining(
                albert.config.model_copy(update={"vocab_size": tokenizer.vocab_size})
            )
        ),
        folder,
    )
    tokenizer.save(folder)
    assert (folder / "model-causal.safetensors").is_file()
    assert "attention_window" not in (folder / "config.json").read_text()
    found = attention(litebert.load(folder), "Anna walked home.", step=1)
    for head in torch.tensor(found["heads"]):
        assert torch.equal(head, head.tril())
        torch.testing.assert_close(
            head.sum(1), torch.ones(len(head)), atol=1e-3, rtol=0
        )
    with pytest.raises(LitebertError, match="LB-470"):
        open_source(folder)
    del ATTENTION_KINDS["causal"]
    with pytest.raises(LitebertError, match="import the file that adds it"):
        litebert.load(folder)


def test_the_command_of_the_page_has_help_checks_and_json(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "text.txt").write_text("one two three-and-a-half")
    monkeypatch.chdir(tmp_path)
    command = made_by_page("command", tmp_path, monkeypatch, "words")["command"]
    assert isinstance(command, click.Command)

    def call(*words: str) -> str:
        return CliRunner().invoke(command, words).output

    assert call("text.txt") == "3 words\n"
    assert json.loads(call("text.txt", "--longest", "3", "--json")) == {"number": 2}
    assert "Letters of the longest word that counts." in call("--help")
    assert "litebert words my-text.txt --longest 12 --json" in call("--help")
    assert "x>=1" in call("text.txt", "--longest", "0") and "FILE" in call()


def test_the_rival_of_the_page_gives_the_same_states_as_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(ROOT))
    from benchmarks.speed.rivals import RIVALS, load, names
    from benchmarks.texts import Texts

    monkeypatch.setattr("benchmarks.speed.rivals.RIVALS", RIVALS | {})
    made_by_page("rival", tmp_path, monkeypatch)
    write_folder(
        ModelFolder(AlbertForPretraining(AlbertConfig(**SHAPE, vocab_size=60))),
        tmp_path / "model",
    )
    texts = Texts(([2, 7, 8, 3], [2, 9, 3]), ([0] * 4, [0] * 3))
    assert "plain fp32" in names()
    states = []
    for name in ("plain fp32", "litebert fp32"):
        rival = load(name, tmp_path)
        states.append(rival.states(rival.ready(texts)().detach(), texts))
    np.testing.assert_allclose(states[0], states[1], rtol=0, atol=1e-5)
