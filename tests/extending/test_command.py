"""The pages for contributors: a command, and a rival of the benchmarks."""

import json
from pathlib import Path

import click
import numpy as np
import pytest
from click.testing import CliRunner

from litebert.config import AlbertConfig
from litebert.folder import ModelFolder, write_folder
from litebert.nn import AlbertForPretraining
from tests.conftest import ROOT, made_by_page
from tests.networks import SHAPE


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
    help_text = call("--help")
    assert "Letters of the longest word that counts." in help_text
    assert "litebert words my-text.txt --longest 12 --json" in help_text
    assert "x>=1" in call("text.txt", "--longest", "0")
    assert "FILE" in call()


def test_the_rival_of_the_page_gives_the_same_states_as_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(ROOT))
    from benchmarks.speed.rivals import RIVALS, load, names
    from benchmarks.texts import Texts

    monkeypatch.setattr("benchmarks.speed.rivals.RIVALS", RIVALS | {})
    made_by_page("rival", tmp_path, monkeypatch)
    assert "plain fp32" in names()

    network = AlbertForPretraining(AlbertConfig(**SHAPE, vocab_size=60))
    write_folder(ModelFolder(network), tmp_path / "model")
    texts = Texts(([2, 7, 8, 3], [2, 9, 3]), ([0] * 4, [0] * 3))
    states = []
    for name in ("plain fp32", "litebert fp32"):
        rival = load(name, tmp_path)
        output = rival.ready(texts)().detach()
        states.append(rival.states(output, texts))
    np.testing.assert_allclose(states[0], states[1], rtol=0, atol=1e-5)
