"""What goes wrong while training never costs a good checkpoint, and is always said."""

import io
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from litebert.config import PretrainConfig, Resolved
from litebert.errors import LitebertError, NonFiniteError, ResourceError
from litebert.files import Json
from litebert.optim import build_optimizer
from litebert.runs import read_metrics
from litebert.tasks.base import Loss
from litebert.tasks.pretraining import Pretraining
from litebert.train import checkpoint, log, loop
from litebert.train.checkpoint import Checkpoints, RunProgress, manifest_of
from litebert.train.log import RunLog
from litebert.train.pretrain import cost_of_steps, pretrain

Configure = Callable[..., Resolved[PretrainConfig]]


class At:
    """Does something when a row of this step is written."""

    def __init__(self, step: int, action: Callable[[], object]) -> None:
        self.step, self.action = step, action

    def row(self, row: dict[str, Json]) -> None:
        if row["step"] == self.step:
            self.action()


def _steps(run: Path) -> list[str]:
    return sorted(path.name for path in (run / "checkpoints").iterdir())


def _weights(run: Path) -> dict[str, bytes]:
    last = sorted((run / "checkpoints").glob("step-*"))[-1]
    names = ("model.safetensors", "optimizer.safetensors", "state.json")
    return {name: (last / name).read_bytes() for name in names}


def _poison_from(monkeypatch: pytest.MonkeyPatch, step: int, factor: float) -> None:
    """Multiply what `training_step` sees as loss from a step on."""
    original, current = Pretraining.loss, {"step": 0}
    train = loop.training_step

    def counted(*args: object, **kwargs: object) -> object:
        current["step"] = int(str(kwargs["step"])) + 1
        return train(*args, **kwargs)

    def poisoned(self: Pretraining, work: object) -> Loss:
        loss = original(self, work)
        is_late = self.network.training and current["step"] >= step
        return Loss(loss.total * factor, loss.sums) if is_late else loss

    monkeypatch.setattr(loop, "training_step", counted)
    monkeypatch.setattr(Pretraining, "loss", poisoned)


def test_no_checkpoint_is_written_while_steps_are_skipped(
    tmp_path: Path, configure: Configure, monkeypatch: pytest.MonkeyPatch
) -> None:
    _poison_from(monkeypatch, 6, float("nan"))
    with pytest.raises(NonFiniteError, match="LB-503"):
        changes = ("train.save_every=1", "train.max_skipped_steps=3")
        pretrain(configure(*changes), tmp_path, is_quiet=True)
    assert _steps(tmp_path) == ["step-000000004", "step-000000005"]


def test_a_state_that_is_not_finite_is_never_saved_and_evicts_nothing(tmp_path: Path, configure: Configure) -> None:
    network = torch.nn.Linear(2, 2)
    optimizer = build_optimizer(configure().config.optim, network.named_parameters())
    checkpoints = Checkpoints(tmp_path, keep=1)
    (tmp_path / "step-000000001").mkdir()
    with torch.no_grad():
        network.weight[0, 0] = float("inf")
    with pytest.raises(NonFiniteError, match=r"LB-541[\s\S]*weight"):
        checkpoints.save(network, optimizer, RunProgress(step=2))  # type: ignore[arg-type]
    assert [path.name for path in tmp_path.iterdir()] == ["step-000000001"]


def test_a_resume_falls_back_past_what_is_not_finite_and_keeps_the_good_one(
    tmp_path: Path, configure: Configure, capsys: pytest.CaptureFixture[str]
) -> None:
    pretrain(configure(), tmp_path / "whole", is_quiet=True)
    run = tmp_path / "run"
    pretrain(configure(), run, is_quiet=True)
    shutil.rmtree(run / "model")
    newest = sorted((run / "checkpoints").iterdir())[-1]
    tensors = load_file(newest / "optimizer.safetensors")
    next(iter(tensors.values())).view(-1)[0] = float("nan")
    save_file(tensors, newest / "optimizer.safetensors")
    (newest / "manifest.json").unlink()
    (newest / "manifest.json").write_text(json.dumps(manifest_of(newest, 12)))
    pretrain(configure("train.save_every=1", "train.keep_checkpoints=1"), run)
    assert "is not finite" in capsys.readouterr().err
    assert [name for name in _steps(run) if name.startswith("step")] == ["step-000000012"]
    assert _weights(run) == _weights(tmp_path / "whole")


def test_an_infinite_loss_with_a_finite_gradient_changes_nothing(
    tmp_path: Path, configure: Configure, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = Pretraining.loss

    def infinite(self: Pretraining, work: object) -> Loss:
        loss = original(self, work)
        return Loss(loss.total + float("inf"), loss.sums) if self.network.training else loss

    monkeypatch.setattr(Pretraining, "loss", infinite)
    with pytest.raises(NonFiniteError, match=r"LB-503[\s\S]*loss inf"):
        pretrain(configure("train.max_skipped_steps=2"), tmp_path, is_quiet=True)


def test_an_evaluation_that_is_not_finite_is_noted(
    tmp_path: Path, configure: Configure, monkeypatch: pytest.MonkeyPatch
) -> None:
    measured = {"masked_lm_loss": float("nan"), "masked_lm_accuracy": 0.5}
    monkeypatch.setattr(Pretraining, "evaluate", lambda _: measured)
    assert pretrain(configure(), tmp_path, is_quiet=True).model is not None
    rows = read_metrics(tmp_path)
    assert {row["masked_lm_loss"] for row in rows if row["kind"] == "eval"} == {None}
    assert any("masked_lm_loss" in str(row.get("text")) for row in rows)


def test_leftovers_of_killed_writers_are_removed(tmp_path: Path, configure: Configure) -> None:
    for name in ("model", "best", "checkpoints/step-000000004"):
        (tmp_path / f"{name}.partial-0123456789ab").mkdir(parents=True)
    for name in ("run.json", "metrics.jsonl", "report.html"):
        (tmp_path / f"{name}.partial-0123456789ab").write_text("half")
    pretrain(configure(), tmp_path, is_quiet=True)
    assert not list(tmp_path.rglob("*.partial-*"))


def test_a_resume_that_fits_is_not_refused_and_sizes_can_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("litebert.train.checkpoint.free_bytes", lambda _: 17 << 20)
    checkpoints = Checkpoints(tmp_path / "checkpoints", keep=2)
    with pytest.raises(ResourceError, match=r"LB-506[\s\S]*17.0 MiB free[\s\S]*40.0 MiB"):
        checkpoints.require_disk(1 << 20)
    for step in (4, 8):
        folder = tmp_path / "checkpoints" / f"step-{step:09d}"
        folder.mkdir(parents=True)
        (folder / "model.safetensors").write_bytes(bytes(12 << 20))
    checkpoints.require_disk(1 << 20)


def test_damaged_rows_are_named_and_kept_aside(
    tmp_path: Path, configure: Configure, capsys: pytest.CaptureFixture[str]
) -> None:
    stop = At(6, lambda: os.kill(os.getpid(), signal.SIGTERM))
    pretrain(configure(), tmp_path, is_quiet=True, listeners=(stop,))
    lines = (tmp_path / "metrics.jsonl").read_bytes().split(b"\n")
    (tmp_path / "metrics.jsonl").write_bytes(b"\n".join([lines[0], b"\xff\x00{", *lines[1:]]))
    with pytest.raises(LitebertError, match=r"LB-651[\s\S]*line 2"):
        read_metrics(tmp_path)
    pretrain(configure(), tmp_path)
    assert "line 2 of metrics.jsonl is damaged" in capsys.readouterr().err
    assert (tmp_path / "metrics.damaged").read_text().startswith("line 2: ")
    assert read_metrics(tmp_path)[-1]["step"] == 12


def test_a_run_whose_folder_is_deleted_says_so(tmp_path: Path, configure: Configure) -> None:
    delete = At(3, lambda: shutil.rmtree(tmp_path / "run"))
    with pytest.raises(LitebertError, match="LB-543"):
        pretrain(configure(), tmp_path / "run", is_quiet=True, listeners=(delete,))


def test_nohup_is_obeyed(tmp_path: Path, configure: Configure) -> None:
    hang_up = At(6, lambda: os.kill(os.getpid(), signal.SIGHUP))
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        outcome = pretrain(configure(), tmp_path, is_quiet=True, listeners=(hang_up,))
    finally:
        signal.signal(signal.SIGHUP, before)
    assert outcome.step == 12


_TALK = """
import sys
from pathlib import Path
from litebert.errors import say
from litebert.train.log import RunLog
log = RunLog(Path("."), 10)
for step in range(5):
    {speaker}(f"line {{step}}")
sys.exit(7)
"""


@pytest.mark.parametrize("speaker", ["log.say", "say"])
def test_work_continues_when_nobody_reads_its_lines(speaker: str) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    code = _TALK.format(speaker=speaker)
    ended = subprocess.run([sys.executable, "-c", code], stderr=writing, check=False)
    os.close(writing)
    assert ended.returncode == 7


class _Screen(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_has_a_bar_that_lines_replace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    screen = _Screen()
    monkeypatch.setattr("sys.stderr", screen)
    monkeypatch.setattr("litebert.train.log.STATUS_SECONDS", 0.0)
    log = RunLog(tmp_path, 40)
    for step in range(1, 11):
        log.advance(step, 40)
    log.say("held out")
    shown = screen.getvalue()
    assert shown.count("\r\x1b[K") == 11
    assert " 25%  step 10/40  left " in shown
    assert shown.endswith("\r\x1b[Kheld out\n")


def test_a_quiet_run_says_that_it_passes_over_checkpoints_or_starts_again(
    tmp_path: Path, configure: Configure, capsys: pytest.CaptureFixture[str]
) -> None:
    stop = At(9, lambda: os.kill(os.getpid(), signal.SIGTERM))
    pretrain(configure(), tmp_path, is_quiet=True, listeners=(stop,))
    for path in (tmp_path / "checkpoints").glob("step-*"):
        (path / "model.safetensors").write_bytes(b"")
    assert capsys.readouterr().err == ""
    pretrain(configure(), tmp_path, is_quiet=True)
    said = capsys.readouterr().err
    assert said.count("passed over a damaged checkpoint") == 2
    assert "starts again from nothing" in said


def test_a_divergence_of_finite_losses_is_said_and_spares_the_checkpoint_before_it(
    tmp_path: Path, configure: Configure, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(loop, "TREND", 0.5)
    _poison_from(monkeypatch, 6, 100.0)
    pretrain(configure("train.save_every=2"), tmp_path, is_quiet=True)
    said = capsys.readouterr().err
    assert "diverges" in said
    assert "at step 6" in said
    assert any("diverges" in str(row.get("text")) for row in read_metrics(tmp_path))
    assert _steps(tmp_path) == ["step-000000004", "step-000000010", "step-000000012"]


def test_a_checkpoint_is_the_same_to_earlier_versions(tmp_path: Path) -> None:
    """They know no divergence, and wrote no `first_loss`."""
    earlier = {"step": 4, "skipped_in_a_row": 0, "window": [1.0, 2.0], "window_tokens": 7}
    progress = RunProgress.of_json(earlier | {"losses": [1.0], "omitted": 2})
    assert progress == RunProgress(step=4, window=(1.0, 2.0), window_tokens=7)
    assert progress.to_json() == earlier


def test_memory_is_in_bytes_on_macos_too(monkeypatch: pytest.MonkeyPatch) -> None:
    kilobytes = log.memory_bytes()
    monkeypatch.setattr(log.sys, "platform", "darwin")
    assert log.memory_bytes() < kilobytes / 512


def test_the_time_left_counts_evaluations_and_steps_that_will_be_slower(configure: Configure) -> None:
    early = configure("early.depth=1", "early.depth_share=0.5", "train.steps=20").config
    cost = cost_of_steps(early)
    assert [cost(0, 10), cost(10, 20), cost(0, 20), cost(5, 15)] == [5, 10, 15, 7.5]
    steady = cost_of_steps(configure("train.steps=20").config)
    assert [steady(0, 10), steady(3, 20)] == [10, 17]
    timed = log.RunLog(Path("unused"), 20, eval_every=5, cost=cost, evaluation_seconds=60)
    assert timed._left(10, 1.0) == "2m10s"  # ten steps, and the evaluations at 15 and 20
    assert log.RunLog(Path("unused"), 20, ends=time.monotonic() + 90.4)._left(3, 1.0) == "1m30s"


def test_control_a_state_that_nobody_looks_at_is_saved_and_evicts_the_good_one(
    tmp_path: Path, configure: Configure, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoint, "first_not_finite", lambda _: None)
    monkeypatch.setattr(checkpoint, "save_model", lambda *_: None)
    with pytest.raises(pytest.fail.Exception, match="DID NOT RAISE"):
        test_a_state_that_is_not_finite_is_never_saved_and_evicts_nothing(tmp_path, configure)
    assert [path.name for path in tmp_path.iterdir()] == ["step-000000002"]


def test_control_checkpoints_of_skipped_steps_evict_the_good_ones(
    tmp_path: Path, configure: Configure, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted = loop.counted_step

    def careless(trainer: loop.Trainer, progress: RunProgress, result: loop.StepResult) -> RunProgress:
        after = counted(trainer, progress, result)
        if after.skipped_in_a_row:
            trainer.checkpoints.save(trainer.network, trainer.optimizer, after)
        return after

    monkeypatch.setattr(loop, "counted_step", careless)
    with pytest.raises(AssertionError):
        test_no_checkpoint_is_written_while_steps_are_skipped(tmp_path, configure, monkeypatch)


def test_a_lost_terminal_leaves_a_checkpoint(tmp_path: Path, configure: Configure) -> None:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # the tests themselves may run under nohup
    hang_up = At(6, lambda: os.kill(os.getpid(), signal.SIGHUP))
    outcome = pretrain(configure(), tmp_path, is_quiet=True, listeners=(hang_up,))
    assert (outcome.exit_code, outcome.model) == (129, None)
    assert _steps(tmp_path)[-1] == f"step-{outcome.step:09d}"
