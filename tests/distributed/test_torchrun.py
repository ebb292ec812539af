"""torchrun: a process killed or asked to stop; nothing is lost, nobody is left behind."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from litebert.files import hash_file
from litebert.runs import read_metrics

from .test_several_processes import _pretrain

pytestmark = pytest.mark.slow

LONGER = {"train.steps": 60, "train.batch_size": 8, "train.eval_every": 20, "train.eval_sequences": 16}
LONGER |= {"train.save_every": 4, "train.log_every": 2, "train.loader_workers": 1}
Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def start(corpus: Path, tmp_path: Path) -> Iterator[Start]:
    """Start a run of two processes; whatever is left of it at the end is a failure."""
    mark = {"LITEBERT_TEST_MARK": str(tmp_path)}

    def begin(name: str, *options: str) -> "subprocess.Popen[str]":
        launch = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--standalone", *options]
        settings = _pretrain(corpus, tmp_path, name)[1]["settings"] | LONGER
        words = ["pretrain", "--corpus", str(corpus), "--name", name, "--runs", str(tmp_path)]
        command = [*launch, "-m", "litebert", *words, *(f"{name}={value}" for name, value in settings.items())]
        with open(tmp_path / f"{name}.log", "a") as log:
            return subprocess.Popen(command, env={**os.environ, **mark}, stdout=log, stderr=log, text=True)

    yield begin
    left = _processes(f"LITEBERT_TEST_MARK={tmp_path}")
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    assert left == []


def _processes(*marks: str) -> list[int]:
    """Find the living processes whose environment has all of the given entries."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            entries = (folder / "environ").read_bytes().decode("utf-8", "replace").split("\0")
        except OSError:
            continue
        if set(marks) <= set(entries):
            found.append(int(folder.name))
    return found


def _wait_for_step(run: Path, step: int) -> None:
    limit = time.monotonic() + 240
    while time.monotonic() < limit:
        rows = read_metrics(run) if (run / "metrics.jsonl").exists() else []
        if rows and int(str(rows[-1]["step"])) >= step:
            return
        time.sleep(0.1)
    raise AssertionError(f"{run} did not reach step {step}")


def _weights(run: Path) -> str:
    return hash_file(run / "model" / "model.safetensors")


def test_a_process_killed_a_restart_and_a_preemption_change_no_bit(start: Start, tmp_path: Path) -> None:
    assert start("whole").wait(timeout=500) == 0
    launcher = start("killed", "--max-restarts", "1")
    _wait_for_step(tmp_path / "killed", 10)
    ranks_own = min(_processes(f"LITEBERT_TEST_MARK={tmp_path}", "RANK=1"))  # not those that prepare its batches
    os.kill(ranks_own, signal.SIGKILL)
    assert launcher.wait(timeout=500) == 0
    assert "resuming from step" in (tmp_path / "killed.log").read_text()
    assert _weights(tmp_path / "killed") == _weights(tmp_path / "whole")

    launcher = start("preempted")
    _wait_for_step(tmp_path / "preempted", 10)
    launcher.terminate()
    launcher.wait(timeout=60)
    assert not (tmp_path / "preempted" / "model").exists()
    step = max((tmp_path / "preempted" / "checkpoints").iterdir()).name
    reached = read_metrics(tmp_path / "preempted")[-1]["step"]
    assert int(step.removeprefix("step-")) >= int(str(reached))
    assert start("preempted").wait(timeout=500) == 0
    assert _weights(tmp_path / "preempted") == _weights(tmp_path / "whole")


def test_killing_the_launcher_leaves_nobody(start: Start, tmp_path: Path) -> None:
    launcher = start("orphaned")
    _wait_for_step(tmp_path / "orphaned", 2)
    launcher.kill()
    launcher.wait()
    limit = time.monotonic() + 60
    while _processes(f"LITEBERT_TEST_MARK={tmp_path}") and time.monotonic() < limit:
        time.sleep(0.5)
    assert not _processes(f"LITEBERT_TEST_MARK={tmp_path}")
    assert any((tmp_path / "orphaned" / "checkpoints").iterdir())
