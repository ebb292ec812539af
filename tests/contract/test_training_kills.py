"""A training that is killed, anywhere, and started again ends with the bits of one that was left alone."""

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

import litebert as package

from .shell import TABLES
from .tiny import FINETUNING, PRETRAINING, Tiny, rows, weights

PARTS = {"pretrain": [0.15, 0.35, 0.5, 0.65, 0.8, 0.95], "finetune": [0.3, 0.6, 0.9]}
"""Where a training is killed, as shares of its operations on files."""


class Killed(NamedTuple):
    """Runs that were killed, the one that was not, and the call that goes on."""

    runs: Path
    verb: str
    arguments: dict[str, object]

    def resumed(self, name: str) -> package.Run:
        return getattr(package, self.verb)(**self.arguments, runs=self.runs, name=name, quiet=True)

    @property
    def whole(self) -> Path:
        return self.runs / "whole"


@pytest.fixture(scope="module")
def killed(tiny: Tiny, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Killed]:
    """Give the killed runs of a verb."""
    made: dict[str, Killed] = {}
    table = tiny.folder / "reviews.csv"
    table.write_text(TABLES["reviews.csv"])
    pace = {"train.steps": 8, "train.save_every": 2, "train.eval_every": 4}
    calls: dict[str, dict[str, object]] = {
        "pretrain": {
            "corpus": str(tiny.corpus),
            "settings": {**PRETRAINING, **pace, "optim.name": "muon", "optim.average_decay": 0.5, "mining.pool": 2},
        },
        "finetune": {"task": str(table), "model": str(tiny.run), "settings": {**FINETUNING, **pace}},
    }

    def make(verb: str) -> Killed:
        if verb not in made:
            runs = tmp_path_factory.mktemp(verb)
            asked = {"verb": verb, "arguments": calls[verb], "runs": str(runs), "parts": PARTS[verb]}
            script = [sys.executable, str(Path(__file__).with_name("kills.py"))]
            done = subprocess.run(script, input=json.dumps(asked), capture_output=True, text=True, timeout=300)
            assert done.returncode == 0, done.stderr
            assert int(done.stdout) > 50
            made[verb] = Killed(runs, verb, calls[verb])
        return made[verb]

    return make


@pytest.mark.parametrize(("verb", "part"), [(verb, part) for verb, parts in PARTS.items() for part in parts])
def test_a_killed_training_goes_on_to_the_same_bits(
    killed: Callable[[str], Killed], tmp_path: Path, verb: str, part: float
) -> None:
    of_verb = killed(verb)
    run = of_verb.resumed(f"killed-{part}")
    assert run.is_finished
    assert weights(run) == weights(of_verb.whole)
    assert rows(run) == rows(of_verb.whole)
    assert sorted(path.name for path in run.folder.iterdir()) == sorted(path.name for path in of_verb.whole.iterdir())


def flipped(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def emptied(path: Path) -> None:
    path.write_bytes(b"")


def removed(path: Path) -> None:
    path.unlink()


DAMAGES = {"model.safetensors": flipped, "optimizer.safetensors": cut, "state.json": emptied, "manifest.json": removed}


@pytest.mark.parametrize("name", DAMAGES)
def test_a_damaged_checkpoint_is_passed_over_and_named(
    killed: Callable[[str], Killed], tmp_path: Path, capfd: pytest.CaptureFixture[str], name: str
) -> None:
    of_verb = killed("pretrain")
    run = Path(shutil.copytree(of_verb.whole, tmp_path / "runs" / "own"))
    shutil.rmtree(run / "model")
    before, last = sorted((run / "checkpoints").iterdir())
    DAMAGES[name](next(last.rglob(name)))
    again = package.pretrain(**of_verb.arguments, runs=run.parent, name=run.name)
    said = capfd.readouterr().err
    assert last.name in said
    assert before.name not in said
    assert weights(again) == weights(of_verb.whole)
    assert rows(again) == rows(of_verb.whole)
