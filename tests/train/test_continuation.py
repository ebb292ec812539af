"""A finished run that is begun again with other settings or data says what to do."""

import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import litebert
from litebert import cli
from litebert.errors import LitebertError
from tests.tables import csv_text

ROWS = [(f"row number ${number}", "ab"[number % 2]) for number in range(24)]
SETTINGS = {"train.steps": 2, "train.batch_size": 4}


@pytest.fixture
def train(
    tmp_path: Path, small_model: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Any]:
    """Return a function that trains on a.csv, with the column `words`, in a folder of
    its own.
    """
    monkeypatch.chdir(tmp_path)
    Path("a.csv").write_text(csv_text([("words", "mark"), *ROWS]), "utf-8")

    def train_with(**changes: object) -> litebert.Run:
        return litebert.finetune(
            "a.csv",
            model=small_model,
            columns={"text": "words"},
            settings=SETTINGS | {f"train.{name}": v for name, v in changes.items()},
            quiet=True,
        )

    return train_with


def error_of(train: Callable[..., Any], **changes: object) -> LitebertError:
    with pytest.raises(LitebertError, match="LB-505") as raised:
        train(**changes)
    return raised.value


def test_the_command_that_shows_a_model_has_a_text_of_its_file(
    train: Callable[..., Any],
) -> None:
    command = train().notes[-1].removeprefix("next    ")
    assert "classify 'row number " in command
    program, *words = shlex.split(command)
    assert program == "litebert"
    assert cli.run(words) == 0


def test_a_longer_training_is_told_the_command_that_trains_further(
    train: Callable[..., Any],
) -> None:
    train()
    error = error_of(train, steps=3)
    program, *words = shlex.split(error.next)
    assert program == "litebert"
    assert cli.run([*words, "--quiet"]) == 0
    assert litebert.Run("runs/a-more").is_finished


def test_other_settings_are_told_another_name(train: Callable[..., Any]) -> None:
    train()
    error = str(error_of(train, steps=3, seed=7))
    assert "repeat the first" in error
    assert "such as a-2" in error


def test_a_table_that_was_corrected_since_is_named_with_another_name_for_the_run(
    train: Callable[..., Any],
) -> None:
    train()
    corrected = [(text, "a") for text, _ in ROWS[:4]] + ROWS[4:]
    Path("a.csv").write_text(csv_text([("words", "mark"), *corrected]), "utf-8")
    error = error_of(train)
    assert "a.csv has changed since" in str(error)
    assert "--name a-2" in error.next
    assert len(str(error)) < 600  # no hashes
