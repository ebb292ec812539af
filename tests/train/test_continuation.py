"""A finished run that is begun again with other settings or data says what to do."""

import json
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
SETTINGS = {"train.steps": 2, "train.batch_size": 4, "task.max_length": 32}


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
            label_names=["b", "a"],
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
    # with the order of the labels and all else that was asked for
    assert cli.run([*words, "--quiet"]) == 0
    further = litebert.Run("runs/a-2")
    assert further.is_finished
    assert further.settings["train.steps"] == 3
    for name in ("train.batch_size", "data.columns", "data.labels", "task.max_length"):
        assert further.settings[name] == litebert.Run("runs/a").settings[name], name


def test_steps_decide_whether_a_run_of_some_epochs_is_to_be_longer(
    train: Callable[..., Any],
) -> None:
    train(epochs=1, steps=0)
    longer = error_of(train, steps=50)
    assert "train.epochs: 1.0 -> 3.0" in str(longer)  # the default
    assert "train.steps=50" in longer.next
    assert "repeat the first command" in error_of(train, steps=2).next


def test_fewer_epochs_in_more_steps_are_longer(train: Callable[..., Any]) -> None:
    train(epochs=4, steps=0)
    assert "train.steps=50" in error_of(train, steps=50).next


def test_a_second_continuation_has_a_name_of_its_own(train: Callable[..., Any]) -> None:
    train()
    Path("runs/a-2").mkdir()
    assert "--name a-3" in error_of(train, steps=3).next


@pytest.mark.parametrize("changes", [{"steps": 1}, {"eval_every": 1}])
def test_a_shorter_training_and_other_evaluations_are_no_continuation(
    train: Callable[..., Any], changes: dict[str, object]
) -> None:
    train()
    assert "repeat the first command" in error_of(train, **changes).next


def test_a_run_of_an_earlier_version_is_told_the_command_too(
    train: Callable[..., Any],
) -> None:
    train()
    path = Path("runs/a/run.json")
    record = json.loads(path.read_text("utf-8"))
    del record["settings"]["optim.settings"]  # which that version did not have
    path.write_text(json.dumps(record), "utf-8")
    assert error_of(train, steps=3).next.startswith("litebert finetune a.csv")


def test_another_order_of_columns_is_the_same_data(train: Callable[..., Any]) -> None:
    train()
    turned = [(mark, text) for text, mark in ROWS]
    Path("a.csv").write_text(csv_text([("mark", "words"), *turned]), "utf-8")
    assert train().is_finished


def test_a_distillation_is_continued_with_its_teacher(
    tmp_path: Path, small_model: Path, corpus: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    def distil(steps: int) -> None:
        litebert.distil(
            small_model,
            corpus=corpus,
            name="student",
            settings={"train.steps": steps, "train.batch_size": 4, "distil.texts": 4},
            quiet=True,
        )

    distil(2)
    with pytest.raises(LitebertError, match="LB-505") as raised:
        distil(3)
    program, *words = shlex.split(raised.value.next)
    assert program == "litebert"
    assert words[:2] == ["distil", str(small_model)]
    assert cli.run([*words, "--quiet"]) == 0
    further = litebert.Run("runs/student-2")
    assert further.settings["train.steps"] == 3
    assert further.settings["start.model"] == "runs/student"


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
