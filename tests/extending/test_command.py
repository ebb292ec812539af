"""The pages for contributors: a command, and a rival of the benchmarks."""

import json
from collections.abc import Callable
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

# ---- a command -----------------------------------------------------------------------

Call = Callable[..., str]


@pytest.fixture
def call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Call:
    """Return a function that runs the command of the page, which counts words."""
    (tmp_path / "text.txt").write_text("one two three-and-a-half")
    monkeypatch.chdir(tmp_path)
    command = made_by_page("command", tmp_path, monkeypatch, "words")["command"]
    assert isinstance(command, click.Command)

    def output_of(*words: str) -> str:
        return CliRunner().invoke(command, words).output

    return output_of


def test_the_command_of_the_page_answers_as_text(call: Call) -> None:
    assert call("text.txt") == "3 words\n"


def test_the_command_of_the_page_answers_as_json(call: Call) -> None:
    assert json.loads(call("text.txt", "--longest", "3", "--json")) == {"number": 2}


def test_the_command_of_the_page_has_help(call: Call) -> None:
    help_text = call("--help")
    assert "Letters of the longest word that counts." in help_text
    assert "litebert words my-text.txt --longest 12 --json" in help_text


def test_the_command_of_the_page_checks_its_options(call: Call) -> None:
    assert "x>=1" in call("text.txt", "--longest", "0")
    assert "FILE" in call()


# ---- a rival -------------------------------------------------------------------------


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

    def states_of(name: str) -> object:
        rival = load(name, tmp_path)
        output = rival.ready(texts)().detach()
        return rival.states(output, texts)

    np.testing.assert_allclose(
        states_of("plain fp32"), states_of("litebert fp32"), rtol=0, atol=1e-5
    )
