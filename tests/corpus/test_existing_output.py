"""What a second command finds in a folder stays; advice on it can be pasted into a shell."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from litebert.api.corpus import train_vocabulary
from litebert.cli import run
from litebert.corpus import build_corpus
from litebert.errors import LitebertError

TEXT = "A small cat sat on the mat.\nThe old dog ran home.\n\n" * 9


def test_a_vocabulary_is_not_replaced_by_another(tmp_path: Path) -> None:
    text, folder = tmp_path / "t.txt", tmp_path / "v"
    text.write_text(TEXT)
    train_vocabulary(text, folder, vocab_size=30)
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    train_vocabulary(text, folder, vocab_size=30)
    with pytest.raises(LitebertError, match="LB-105"):
        train_vocabulary(text, folder, vocab_size=29)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_advice_quotes_a_folder_with_spaces_and_names_a_stopped_build(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    text, folder = tmp_path / "t.txt", tmp_path / "my corpus"
    text.write_text(TEXT)
    vocabulary = tmp_path / "v"
    train_vocabulary(text, vocabulary, vocab_size=30)
    build_corpus([str(text)], tokenizer=vocabulary, output=folder)
    with pytest.raises(LitebertError, match="LB-333") as caught:
        build_corpus([str(text)], tokenizer=vocabulary, output=folder, held_out=0.01)
    assert str(folder) in shlex.split(caught.value.next)
    (folder / "corpus.json").rename(folder / "build.json")  # as if it had been stopped
    assert run(["corpus", "check", str(folder)]) == 1
    assert "LB-322" in capfd.readouterr().err
    assert run(["corpus", "check", str(tmp_path)]) == 1
    assert "a folder" in capfd.readouterr().err
