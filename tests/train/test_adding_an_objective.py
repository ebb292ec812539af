"""The how-tos of docs/extending about what pretraining learns work as they stand, workers included."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from litebert.errors import LitebertError
from litebert.objectives import sentence_objective

HEAD = Path(__file__).parents[2] / "docs/extending/pretraining-head.md"
HOW_TO = Path(__file__).parents[2] / "docs/extending/objective.md"
SETTINGS = (
    "model.hidden_size=32",
    "model.num_hidden_layers=1",
    "model.num_attention_heads=2",
    "model.intermediate_size=32",
    "model.embedding_size=16",
    "objective.max_seq_length=48",
    "optim.name=adamw",
    "train.steps=3",
    "train.batch_size=4",
    "train.eval_sequences=8",
    "train.loader_workers=1",
)


def test_an_objective_from_outside_trains_by_the_how_to_alone(tmp_path: Path, corpus: Path) -> None:
    objective, script = re.findall(r"```python\n(.*?)```", HOW_TO.read_text("utf-8"), re.DOTALL)
    (tmp_path / "gap.py").write_text(objective)
    (tmp_path / "mine.py").write_text(script)

    run = tmp_path / "run"
    words = [str(run), f"data.corpus={corpus}", *SETTINGS]
    done = subprocess.run(
        [sys.executable, "mine.py", *words],
        cwd=tmp_path,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert "sentence_order_accuracy" in rows[-1]
    assert json.loads((run / "run.json").read_text())["settings"]["objective.sentence"] == "gap"


def test_a_head_from_outside_is_logged_saved_resumed_and_reported(tmp_path: Path, corpus: Path) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", HEAD.read_text("utf-8"), re.DOTALL)
    (tmp_path / "next_piece.py").write_text(code)
    words = ["--corpus", str(corpus), "--name", "own", *SETTINGS, "train.save_every=2", "train.loader_workers=0"]
    ours, plain = (f"{first}from litebert.cli import main; main()" for first in ("import next_piece; ", ""))

    def run(program: str, *words: str) -> str:
        command = [sys.executable, "-c", program, *words]
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout + done.stderr

    whole = run(ours, "pretrain", *words)
    shutil.rmtree(tmp_path / "runs/own/model")
    shutil.rmtree(tmp_path / "runs/own/checkpoints/step-000000003")
    again = run(ours, "pretrain", *words)
    assert "resuming from step 2" in again
    last = [[line for line in said.splitlines() if line.startswith("held out at 3")] for said in (whole, again)]
    assert last[0] == last[1] != []
    assert re.search(r"next \d", last[0][0])
    assert "Next-piece accuracy" in (tmp_path / "runs/own/report.html").read_text()
    run(plain, "fill", "Anna [MASK] home.", "--model", "runs/own")


def test_a_misspelt_objective_is_refused_with_the_right_one() -> None:
    with pytest.raises(LitebertError, match=r"LB-431(?s:.*)did you mean next"):
        sentence_objective("nxt")
