"""The task of docs/extending/task.md."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

import litebert
from tests.extending.commands import QUICK, forget, refused, shell

BOOLQ = [
    {"question": f"is {n} a cat", "passage": "the cat sat", "answer": n % 2 == 0}
    for n in range(24)
]


def test_the_task_of_the_page_has_a_recipe_and_a_published_figure(
    page: Callable[[str], Path], small_model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plugin = page("task")
    lines = "".join(json.dumps(row) + "\n" for row in BOOLQ)
    for split in ("train", "dev", "test"):
        Path(f"{split}.jsonl").write_text(lines, "utf-8")
    assert shell("recipes", "list", "--plugin", plugin) == 0
    assert "yes/no questions on passages" in capsys.readouterr().out

    finetune = ("finetune", "boolq", "--data", ".", "--model", small_model, *QUICK)
    assert shell(*finetune, "--plugin", plugin) == 0
    run = litebert.Run("runs/boolq")
    assert run.file.origins["task.max_length"] == "recipe boolq"
    assert run.file.plugins == {"boolq": str(plugin)}
    assert "80.4" in run.report.read_text("utf-8")

    assert shell("predict", "runs/boolq", "--data", ".", "--output", "answers") == 0
    answers = Path("answers/BoolQ.jsonl").read_text("utf-8").splitlines()
    assert len(answers) == len(BOOLQ)

    forget(plugin)
    litebert.load("runs/boolq/model").classify("is it", "a cat")  # needs no plug-in
    error = refused(capsys, "evaluate", "runs/boolq", "--data", ".")
    assert "needs the plug-in boolq" in error
