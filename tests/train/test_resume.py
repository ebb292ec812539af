"""A run that was stopped ends as if nothing had happened; one that cannot go on says why."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import nullcontext
from pathlib import Path

import pytest

from litebert.config.load import RETIRED
from litebert.errors import LitebertError
from litebert.folder import weights
from litebert.train import checkpoint, loop
from litebert.train.pretrain import pretrain

from .conftest import SMALL, Configure, checkpoints_of, state_of

EVERYTHING = (
    "optim.name=muon optim.beta2=0.98 optim.average_decay=0.9 early.mask_prob=0.3 early.depth=1 early.depth_share=0.4"
)


@pytest.mark.parametrize(("at_step", "settings"), [(1, ""), (6, EVERYTHING), (11, "")])
def test_a_run_stopped_after_any_step_equals_an_uninterrupted_one(
    tmp_path: Path, configure: Configure, monkeypatch: pytest.MonkeyPatch, at_step: int, settings: str
) -> None:
    configured, step = configure(*settings.split()), loop.training_step
    pretrain(configured, tmp_path / "whole", is_quiet=True)

    def stopping(*args: object, **kwargs: object) -> object:
        if kwargs["step"] == at_step - 1:
            os.kill(os.getpid(), signal.SIGTERM)
        return step(*args, **kwargs)

    with monkeypatch.context() as patched:
        patched.setattr(loop, "training_step", stopping)
        assert pretrain(configured, tmp_path / "stopped", is_quiet=True) == 143
    assert checkpoints_of(tmp_path / "stopped")[-1].name == f"step-{at_step:09d}"
    assert not (tmp_path / "stopped" / "model").exists()
    assert pretrain(configured, tmp_path / "stopped", is_quiet=True) == 0
    assert state_of(tmp_path / "stopped") == state_of(tmp_path / "whole")


def test_control_moments_that_are_not_restored_change_the_run(
    tmp_path: Path, configure: Configure, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoint, "load_state_tensors", lambda *_: None)
    with pytest.raises(AssertionError, match="Differing items"):
        test_a_run_stopped_after_any_step_equals_an_uninterrupted_one(tmp_path, configure, monkeypatch, 5, "")


def test_another_configuration_is_refused_unless_it_changes_no_number(tmp_path: Path, configure: Configure) -> None:
    pretrain(configure(), tmp_path, is_quiet=True)
    with pytest.raises(LitebertError, match=r"LB-505[\s\S]*train\.seed: 12345 -> 7"):
        pretrain(configure("train.seed=7"), tmp_path, is_quiet=True)
    assert pretrain(configure("train.log_every=1", "train.keep_checkpoints=1"), tmp_path) == 0


def test_a_run_begun_with_a_setting_that_is_gone_says_so_unless_it_did_nothing(
    tmp_path: Path, configure: Configure
) -> None:
    pretrain(configure(), tmp_path, is_quiet=True)
    recorded = json.loads((tmp_path / "run.json").read_text())
    gone = [RETIRED, {"distil.relations": 1.0}, {"train.spike_sigma": 6.0}, {"objective.sentence": "contrast"}]
    for settings in gone:
        (tmp_path / "run.json").write_text(json.dumps({**recorded, "settings": recorded["settings"] | settings}))
        (name, value), *others = settings.items()
        told = rf"LB-505[\s\S]*{name}: {value} -> "
        with nullcontext() if others else pytest.raises(LitebertError, match=told):
            pretrain(configure(), tmp_path, is_quiet=True)


TRAIN = """
import sys
from pathlib import Path
from litebert.config import PretrainConfig, resolve, settings_from_words
from litebert.train.pretrain import pretrain
pretrain(resolve(PretrainConfig, settings_from_words(sys.argv[2:])), Path(sys.argv[1]), is_quiet=True)
"""


def test_two_processes_cannot_train_in_one_folder(tmp_path: Path, corpus: Path, configure: Configure) -> None:
    words = [f"data.corpus={corpus}", *SMALL, "train.steps=5000"]
    child = subprocess.Popen([sys.executable, "-c", TRAIN, str(tmp_path), *words], stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 60
    while not (tmp_path / "run.json").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    try:
        with pytest.raises(LitebertError, match=rf"LB-504[\s\S]*pid {child.pid}"):
            pretrain(configure(), tmp_path, is_quiet=True)
    finally:
        child.kill()
        child.wait()


def test_control_without_the_lock_two_processes_meet(
    tmp_path: Path, corpus: Path, configure: Configure, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("litebert.files.fcntl.flock", lambda *_: None)
    with pytest.raises(AssertionError):
        test_two_processes_cannot_train_in_one_folder(tmp_path, corpus, configure)


def test_control_a_damaged_checkpoint_that_nobody_verifies_changes_the_run(
    tmp_path: Path, configure: Configure, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the protection the run goes on from the checkpoint before (`contract/test_training_kills.py`)."""
    pretrain(configure(), tmp_path / "whole", is_quiet=True)
    for is_verified in (True, False):
        run = Path(shutil.copytree(tmp_path / "whole", tmp_path / f"run-{is_verified}"))
        shutil.rmtree(run / "model")  # as a run that was killed before its end
        newest = checkpoints_of(run)[-1] / "model.safetensors"
        data = bytearray(newest.read_bytes())
        data[len(data) // 2] ^= 1
        newest.write_bytes(data)
        if not is_verified:
            monkeypatch.setattr(checkpoint, "verify", lambda _: None)
            unhashed = lambda path, read=weights._read_header: (read(path)[0], None)  # noqa: E731
            monkeypatch.setattr(weights, "_read_header", unhashed)
        pretrain(configure(), run, is_quiet=True)
        assert (state_of(run) == state_of(tmp_path / "whole")) == is_verified
