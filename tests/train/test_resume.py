"""A run killed at any moment ends as if nothing had happened."""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from litebert.config import PretrainConfig, Resolved
from litebert.errors import LitebertError
from litebert.files import hash_file
from litebert.runs import read_metrics
from litebert.train import checkpoint
from litebert.train.pretrain import pretrain

Configure = Callable[..., Resolved[PretrainConfig]]

CHILD = """
import json, sys
from pathlib import Path
from litebert.config import PretrainConfig, resolve, settings_from_words
from litebert.train.pretrain import pretrain
import torch
torch.set_num_threads(1)
words = json.loads(sys.argv[2])
outcome = pretrain(resolve(PretrainConfig, settings_from_words(words)), Path(sys.argv[1]))
sys.exit(outcome.exit_code)
"""


def _state(run: Path) -> dict[str, object]:
    """Return everything of a finished run that must be equal bit for bit."""
    clocks = {"tokens_per_second"}
    rows = [{k: v for k, v in row.items() if k not in clocks} for row in read_metrics(run)]
    last = sorted((run / "checkpoints").iterdir())[-1]
    names = ("model.safetensors", "optimizer.safetensors", "state.json")
    return {"rows": rows, **{name: hash_file(last / name) for name in names}}


def _words(configure: Configure, *changes: str) -> str:
    config = configure(*changes).config
    values = {
        f"{section}.{name}": value
        for section, table in config.model_dump(mode="json").items()
        for name, value in table.items()
        if value is not None and name != "vocab_size"
    }
    return json.dumps([f"{name}={json.dumps(value)}" for name, value in values.items()])


def _start(run: Path, words: str) -> subprocess.Popen[bytes]:
    environment = {**os.environ, "PYTHONHASHSEED": str(random.randrange(1000))}
    command = [sys.executable, "-c", CHILD, str(run), words]
    return subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL)


@pytest.mark.parametrize("at_step", [1, 5, 11])
def test_a_run_stopped_after_any_step_equals_an_uninterrupted_one(
    tmp_path: Path, configure: Configure, monkeypatch: pytest.MonkeyPatch, at_step: int
) -> None:
    pretrain(configure(), tmp_path / "whole", is_quiet=True)
    stopped = tmp_path / "stopped"
    with monkeypatch.context() as patched:
        _interrupt_at(patched, at_step)
        outcome = pretrain(configure(), stopped, is_quiet=True)
        assert (outcome.step, outcome.exit_code, outcome.model) == (at_step, 143, None)
    assert pretrain(configure(), stopped, is_quiet=True).model == stopped / "model"
    assert _state(stopped) == _state(tmp_path / "whole")


def _interrupt_at(patched: pytest.MonkeyPatch, step: int) -> None:
    """Send this process a real SIGTERM when a step begins its update."""
    from litebert.train import loop

    original = loop.training_step

    def signalling(*args: object, **kwargs: object) -> object:
        if kwargs["step"] == step - 1:
            os.kill(os.getpid(), signal.SIGTERM)
        return original(*args, **kwargs)

    patched.setattr(loop, "training_step", signalling)


def test_workers_and_accumulation_change_nothing_that_matters(tmp_path: Path, configure: Configure) -> None:
    pretrain(configure(), tmp_path / "inline", is_quiet=True)
    pretrain(configure("train.loader_workers=2"), tmp_path / "workers", is_quiet=True)
    assert _state(tmp_path / "inline") == _state(tmp_path / "workers")


def test_another_configuration_is_refused_field_by_field(tmp_path: Path, configure: Configure) -> None:
    pretrain(configure(), tmp_path, is_quiet=True)
    with pytest.raises(LitebertError, match=r"LB-505[\s\S]*train\.seed: 12345 -> 7"):
        pretrain(configure("train.seed=7"), tmp_path, is_quiet=True)


def test_settings_that_change_no_number_may_change(tmp_path: Path, configure: Configure) -> None:
    pretrain(configure(), tmp_path, is_quiet=True)
    outcome = pretrain(configure("train.log_every=1", "train.keep_checkpoints=1"), tmp_path)
    assert outcome.step == 12


def test_two_processes_cannot_train_in_one_folder(tmp_path: Path, configure: Configure) -> None:
    child = _start(tmp_path, _words(configure).replace("train.steps=12", "train.steps=5000"))
    deadline = time.monotonic() + 60
    while not (tmp_path / "run.json").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    try:
        with pytest.raises(LitebertError, match=rf"LB-504[\s\S]*pid {child.pid}"):
            pretrain(configure(), tmp_path, is_quiet=True)
    finally:
        child.kill()
        child.wait()


@pytest.mark.parametrize(
    ("setting", "value"), [("distil.relations", 1.0), ("train.spike_sigma", 6.0), ("objective.sentence", "contrast")]
)
def test_a_run_begun_with_a_setting_that_is_gone_says_so(
    tmp_path: Path, configure: Configure, setting: str, value: float | str
) -> None:
    pretrain(configure(), tmp_path, is_quiet=True)
    recorded = json.loads((tmp_path / "run.json").read_text())
    older = {"replaced.depth": None, "replaced.weight": 50.0, "elastic.teaching": 0.0, "distil.logits": 0.0}
    recorded["settings"] |= older
    (tmp_path / "run.json").write_text(json.dumps(recorded))
    pretrain(configure(), tmp_path, is_quiet=True)  # what did nothing changes nothing
    recorded["settings"][setting] = value
    (tmp_path / "run.json").write_text(json.dumps(recorded))
    with pytest.raises(LitebertError, match=f"LB-103: {setting}={value} is no longer part"):
        pretrain(configure(), tmp_path, is_quiet=True)


def test_a_damaged_checkpoint_is_passed_over_and_named(
    tmp_path: Path, configure: Configure, capsys: pytest.CaptureFixture[str]
) -> None:
    pretrain(configure(), tmp_path / "whole", is_quiet=True)
    run = tmp_path / "run"
    pretrain(configure(), run, is_quiet=True)
    shutil.rmtree(run / "model")  # as a run that was killed before its end
    newest = sorted((run / "checkpoints").iterdir())[-1] / "model.safetensors"
    data = bytearray(newest.read_bytes())
    data[len(data) // 2] ^= 1
    newest.write_bytes(data)
    pretrain(configure(), run)
    assert "passed over a damaged checkpoint" in capsys.readouterr().err
    assert _state(run) == _state(tmp_path / "whole")


def test_control_a_damaged_checkpoint_that_nobody_verifies_changes_the_run(
    tmp_path: Path, configure: Configure, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoint, "verify", lambda _: None)
    monkeypatch.setattr("litebert.folder.weights._stored_hash", lambda _: None)
    with pytest.raises(AssertionError):
        test_a_damaged_checkpoint_is_passed_over_and_named(tmp_path, configure, capsys)


def test_control_without_the_lock_two_processes_meet(
    tmp_path: Path, configure: Configure, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("litebert.files.fcntl.flock", lambda *_: None)
    with pytest.raises(AssertionError):
        test_two_processes_cannot_train_in_one_folder(tmp_path, configure)
