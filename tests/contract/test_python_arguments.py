"""The names of the package, and values of another type: errors of ours, raised before any work."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import litebert

CALLS: dict[str, Callable[[], object]] = {
    "a model that is a number": lambda: litebert.load(5),  # type: ignore[arg-type]
    "a preset that is a number": lambda: litebert.preset(5),  # type: ignore[arg-type]
    "a run that is a number": lambda: litebert.Run(5),  # type: ignore[arg-type]
    "a tokenizer that is a number": lambda: litebert.Tokenizer.load(5),  # type: ignore[arg-type]
    "no texts": lambda: litebert.pretrain(None),  # type: ignore[arg-type]
    "texts that are numbers": lambda: litebert.pretrain([5]),  # type: ignore[list-item]
    "settings in one string": lambda: litebert.pretrain("t.txt", settings="train.steps=5"),
    "a share that is a word": lambda: litebert.pretrain("t.txt", held_out="a"),  # type: ignore[arg-type]
    "a name that is a number": lambda: litebert.pretrain("t.txt", name=5),  # type: ignore[arg-type]
    "a teacher that is a number": lambda: litebert.distil(5, "t.txt"),  # type: ignore[arg-type]
    "a share above 1": lambda: litebert.pretrain("t.txt", held_out=2),
    "two lengths": lambda: litebert.pretrain("t.txt", minutes=1, settings={"train.steps": 5}),
    "no task": lambda: litebert.finetune(None),  # type: ignore[arg-type]
    "seeds that are words": lambda: litebert.finetune("t.csv", seeds=["a"]),  # type: ignore[list-item]
    "seeds in one string": lambda: litebert.finetune("t.csv", seeds="1,2"),  # type: ignore[arg-type]
    "columns that are a number": lambda: litebert.finetune("t.csv", columns=5),  # type: ignore[arg-type]
    "no model to evaluate": lambda: litebert.evaluate([]),
    "a model to evaluate that is none": lambda: litebert.evaluate(None),  # type: ignore[arg-type]
    "data that are a number": lambda: litebert.evaluate("m", data=5),  # type: ignore[arg-type]
    "no model to predict with": lambda: litebert.predict([]),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_wrong_type_is_refused_before_any_work(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("t.txt").write_text("A cat sat.\n\nA dog ran.\n")
    Path("t.csv").write_text("text,label\na cat,x\na dog,y\n")
    with pytest.raises(litebert.LitebertError):
        CALLS[name]()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["t.csv", "t.txt"]


def test_a_run_may_be_named_by_a_string() -> None:
    assert litebert.Run("runs/x").folder == Path("runs/x")


def test_public_names_are_listed_before_they_are_imported() -> None:
    assert set(litebert.__all__) <= set(dir(litebert))
    assert all(getattr(litebert, name) for name in litebert.__all__)
    assert litebert.preset("base-v2").hidden_size == 768
    with pytest.raises(AttributeError):
        _ = litebert.nothing


def test_the_package_loads_no_torch_before_it_is_needed() -> None:
    code = "import sys, litebert; litebert.preset('tiny'); dir(litebert); assert 'torch' not in sys.modules"
    assert subprocess.run([sys.executable, "-c", code], timeout=120).returncode == 0


def test_an_error_has_its_parts(tmp_path: Path) -> None:
    with pytest.raises(litebert.LitebertError) as caught:
        litebert.preset("bsae-v2")
    error = caught.value
    assert error.code.startswith("LB-")
    assert "bsae-v2" in str(error)
    assert "base-v2" in str(error)
    assert all(part in str(error) for part in (error.code, error.what, error.next))
