"""The commands: their help and its examples, what they leave on a terminal, and the edge that a mistake reaches."""

import re
import shlex
import shutil
from pathlib import Path

import click
import pytest

from litebert.cli import cli
from litebert.errors import LitebertError
from tests.contract.shell import leaves, litebert
from tests.contract.tiny import Desk

LEAVES = leaves()


@pytest.mark.parametrize("name", LEAVES)
def test_the_examples_of_every_command_parse(name: str) -> None:
    for line in re.findall(r"(?m)^ *litebert ([^>\n]+)", str(LEAVES[name].help)):
        words, command = shlex.split(line, comments=True), cli
        context = click.Context(cli, info_name="litebert")
        while isinstance(command, click.Group):
            command = command.get_command(context, words.pop(0))
            assert command is not None, line
        command.make_context(command.name or "", words)


# ---- the terminal ---------------------------------------------------------------------------------------------------


def test_control_labels_that_nobody_escapes_steer_the_terminal(
    desk: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That they are escaped is tested in the contract."""
    model = Path(shutil.copytree(desk.reviews / "model", tmp_path / "m"))
    config = model / "config.json"
    config.write_text(config.read_text().replace('"bad"', '"\\u001b[31mbad\\u009b0m"'))
    assert "\x9b" not in litebert("classify", "Anna", "--model", model).stdout
    monkeypatch.setattr("litebert.cli.command.harmless", str)
    assert "\x9b" in litebert("classify", "Anna", "--model", model).stdout


# ---- mistakes -------------------------------------------------------------------------------------------------------


def test_control_without_the_boundary_a_mistake_is_a_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("litebert.cli.as_litebert_error", lambda _: None)
    with pytest.raises((LitebertError, OSError)):
        litebert("corpus", "build", "x.txt", "--tokenizer", "x" * 300, "--output", "c")


# ---- files of answers -----------------------------------------------------------------------------------------------


def test_a_corrected_command_takes_over_an_output_without_rows(desk: Desk, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("body\nAnna left.\n")
    words = ("embed", tmp_path / "t.csv", "--model", desk.base, "--output", tmp_path / "v.npy")
    assert litebert(*words).code == 1
    assert litebert(*words, "--column", "body").code == 0


def test_rows_without_an_answer_are_known_again_when_the_command_is_rerun(
    desk: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "t.jsonl").write_text('{"text": "Anna left."}\n{"text": " "}\n{"text": null}\n')
    words = ("embed", tmp_path / "t.jsonl", "--model", desk.base, "--output", tmp_path / "v.npy")
    with monkeypatch.context() as patch, pytest.raises(ZeroDivisionError):
        patch.setattr("litebert.cli.verbs.write_stream", lambda *_: 1 / 0)
        litebert(*words)
    done = litebert(*words)
    assert (done.code, "resuming after 3 rows" in done.stderr) == (0, True), done.stderr
