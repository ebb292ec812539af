"""A command from outside the package, made from its how-to page alone."""

import json
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

PAGE = Path(__file__).parents[2] / "docs" / "extending" / "command.md"


@pytest.fixture
def command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> click.Command:
    file, use = (part.split("```")[0] for part in PAGE.read_text("utf-8").split("```python\n")[1:])
    (tmp_path / "words.py").write_text(file)
    (tmp_path / "text.txt").write_text("one two three-and-a-half")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "words", raising=False)
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    exec(use, names)
    made = names["command"]
    assert isinstance(made, click.Command)
    return made


def test_the_command_of_the_page_has_help_checks_and_json(command: click.Command) -> None:
    def call(*words: str) -> str:
        return CliRunner().invoke(command, words).output

    assert call("text.txt") == "3 words\n"
    assert json.loads(call("text.txt", "--longest", "3", "--json")) == {"number": 2}
    assert "Letters of the longest word that counts." in call("--help")
    assert "litebert words my-text.txt --longest 12 --json" in call("--help")
    assert "at least 1" in call("text.txt", "--longest", "0")
    assert "FILE" in call()
