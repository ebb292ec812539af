"""A finished run that is begun again with another length says how to train it further."""

import shlex
from pathlib import Path
from typing import Any

import pytest

import litebert
from litebert import cli
from litebert.errors import LitebertError


def run_next(error: LitebertError) -> int:
    """Run the command that an error advises."""
    program, *words = shlex.split(error.next)
    assert program == "litebert"
    return cli.run([*words, "--quiet"])


def test_the_next_command_trains_a_fine_tuned_model_further(
    tmp_path: Path, small_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    rows = [f"row number ${n};{'ab'[n % 2]}" for n in range(24)]
    Path("a.csv").write_text("words;mark\n" + "\n".join(rows), "utf-8")
    arguments: dict[str, Any] = {"model": small_model, "columns": {"text": "words"}}
    settings = {"train.steps": 2, "train.batch_size": 4}
    run = litebert.finetune("a.csv", settings=settings, quiet=True, **arguments)
    # the command that shows the model has a text of the file
    example = run.notes[-1].removeprefix("next    ")
    assert "classify 'row number " in example
    assert cli.run(shlex.split(example)[1:]) == 0
    longer = settings | {"train.steps": 3}
    with pytest.raises(LitebertError, match="LB-505") as caught:
        litebert.finetune("a.csv", settings=longer, quiet=True, **arguments)
    assert run_next(caught.value) == 0
    assert litebert.Run("runs/a-more").is_finished
    # other settings are no other length
    wanted = r"LB-505(.|\n)*repeat the first(.|\n)*such as a-2"
    with pytest.raises(LitebertError, match=wanted) as caught:
        other = longer | {"train.seed": 7}
        litebert.finetune("a.csv", settings=other, quiet=True, **arguments)


def test_a_table_that_was_corrected_since_is_named_with_another_name_for_the_run(
    tmp_path: Path, small_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    rows = [f"row number {n};{'ab'[n % 2]}" for n in range(24)]
    table = Path("a.csv")
    table.write_text("text;label\n" + "\n".join(rows), "utf-8")
    settings = {"train.steps": 1, "train.batch_size": 4}
    litebert.finetune(table, model=small_model, settings=settings, quiet=True)
    table.write_text(table.read_text("utf-8").replace("number 3;b", "number 3;a"))
    with pytest.raises(LitebertError, match="LB-505") as caught:
        litebert.finetune(table, model=small_model, settings=settings, quiet=True)
    said = str(caught.value)
    assert "a.csv has changed since" in said
    assert "--name a-2" in caught.value.next
    assert len(said) < 600  # no hashes
