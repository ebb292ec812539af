"""What the tests of plug-ins run: short trainings, commands in this process, commands
that must fail.
"""

import shutil
import sys
from pathlib import Path

import pytest

from litebert import cli
from litebert.plugins import REGISTRIES

QUICK = ("train.steps=3", "train.batch_size=8", "train.eval_every=3", "--quiet")
SMALL = (
    "--preset",
    "tiny",
    "model.hidden_size=32",
    "model.intermediate_size=64",
    "model.num_attention_heads=4",
    "objective.max_seq_length=64",
    "train.loader_workers=0",
)


def forget(plugin: Path) -> None:
    """Undo the loading of a plug-in, as a new process does; the records of other
    plug-ins stay.
    """
    sys.modules.pop(plugin.stem, None)
    for registry in REGISTRIES:
        for name in registry.from_plugins():
            if registry.plugin_of(name) == plugin.stem:
                registry.remove(name)


def shell(*words: object) -> int:
    """Run a command in this process and return its exit code."""
    return cli.run([str(word) for word in words])


def refused(capsys: pytest.CaptureFixture[str], *words: object) -> str:
    """Return the error of a command that must fail."""
    capsys.readouterr()
    assert shell(*words) == 1, words
    return capsys.readouterr().err


def weights_of(name: str) -> bytes:
    """Return the weights of the model of a run."""
    return Path(f"runs/{name}/model/model.safetensors").read_bytes()


def assert_resumes_to_equal_bits(*words: object) -> None:
    """Train twice, as `whole` and as `cut`; the second run is killed after two of its
    three steps and resumed.
    """
    assert shell(*words, "--name", "whole") == 0
    assert shell(*words, "--name", "cut") == 0
    _leave_two_steps(Path("runs/cut"))
    assert shell(*words, "--name", "cut") == 0
    assert weights_of("cut") == weights_of("whole")


def _leave_two_steps(run: Path) -> None:
    """Leave of a run of three steps what there is if it is killed after its second."""
    shutil.rmtree(run / "checkpoints/step-000000003")
    shutil.rmtree(run / "model")
