"""The sentence objective of docs/extending/objective.md."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from litebert.runs import RunFolder
from tests.conftest import blocks

# two processes prepare the batches, and import the plug-in
SHORT = {
    "model.preset": "tiny",
    "model.hidden_size": 32,
    "model.intermediate_size": 64,
    "model.num_attention_heads": 4,
    "objective.max_seq_length": 64,
    "train.steps": 3,
    "train.batch_size": 8,
    "train.eval_every": 3,
    "train.loader_workers": 2,
}


def test_the_script_of_the_page_trains_with_its_objective(
    page: Callable[[str], Path], corpus: Path
) -> None:
    page("objective")
    Path("corpora").mkdir()
    Path("corpora/mine").symlink_to(corpus)
    _, script = blocks(Path("docs/extending/objective.md"))
    settings = {"objective.sentence": "gap"}
    as_written = 'settings={"objective.sentence": "gap"}'
    assert as_written in script
    short = script.replace(as_written, f"settings={settings | SHORT}")
    Path("mine.py").write_text(short, "utf-8")
    done = subprocess.run(
        [sys.executable, "mine.py"],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr

    run = RunFolder(Path("runs/gaps"))
    assert run.settings["objective.sentence"] == "gap"
    assert "sentence_order_accuracy" in run.evaluations[-1].values
