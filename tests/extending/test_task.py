"""The task of docs/extending/task.md."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

import litebert
from tests.extending.commands import QUICK, forget, refused, shell

SPLITS = ("train", "dev", "test")
NUM_ROWS = 24


@pytest.fixture
def plugin(
    page: Callable[[str], Path], small_model: Path, capsys: pytest.CaptureFixture[str]
) -> Path:
    """Fine-tune on the task of the page; return the plug-in, which is loaded."""
    path = page("task")
    lines = list[str]()
    for number in range(NUM_ROWS):
        question = {"question": f"is {number} a cat", "passage": "the cat sat"}
        lines.append(json.dumps(question | {"answer": number % 2 == 0}))
    for split in SPLITS:
        Path(f"{split}.jsonl").write_text("\n".join(lines), "utf-8")

    finetune = ("finetune", "boolq", "--data", ".", "--model", small_model, *QUICK)
    assert shell(*finetune, "--plugin", path) == 0
    capsys.readouterr()
    return path


def test_the_task_of_the_page_is_listed_among_the_recipes(
    page: Callable[[str], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    assert shell("recipes", "list", "--plugin", page("task")) == 0
    assert "yes/no questions on passages" in capsys.readouterr().out


def test_a_run_takes_its_recipe_and_records_the_plug_in(plugin: Path) -> None:
    run = litebert.Run("runs/boolq")
    assert run.file.origins["task.max_length"] == "recipe boolq"
    assert run.file.plugins == {"boolq": str(plugin)}


@pytest.mark.usefixtures("plugin")
def test_a_report_has_the_published_figure() -> None:
    assert "80.4" in litebert.Run("runs/boolq").report.read_text("utf-8")


@pytest.mark.usefixtures("plugin")
def test_a_prediction_answers_every_row_of_the_test_set() -> None:
    assert shell("predict", "runs/boolq", "--data", ".", "--output", "answers") == 0
    answers = Path("answers/BoolQ.jsonl").read_text("utf-8").splitlines()
    assert len(answers) == NUM_ROWS


def test_a_model_of_the_task_needs_no_plug_in(plugin: Path) -> None:
    forget(plugin)
    answer = litebert.load("runs/boolq/model").classify("is it", "a cat")
    assert len(answer.labels) == 1


def test_an_evaluation_needs_the_plug_in(
    plugin: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    forget(plugin)
    error = refused(capsys, "evaluate", "runs/boolq", "--data", ".")
    assert "needs the plug-in boolq" in error
