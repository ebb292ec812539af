"""A run that was stopped resumes as if nothing had happened; faults are reported and
cost no good checkpoint.
"""

import io
import itertools
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
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from litebert.config import OptimConfig, TrainConfig
from litebert.device import choose_device
from litebert.errors import DamagedError, LitebertError, NonFiniteError, ResourceError
from litebert.folder import read_folder
from litebert.optim import build_optimizer
from litebert.runs import read_metrics
from litebert.tasks.pretraining import Pretraining
from litebert.tasks.task import Loss
from litebert.train import checkpoint, loop
from litebert.train.checkpoint import Checkpoints, RunProgress, manifest_of, verify
from litebert.train.log import RunLog
from litebert.train.pretrain import pretrain
from litebert.train.session import Session
from tests.kills import killed

from .conftest import Configure, EachStep, at, checkpoints_of, state_of

EVERYTHING = (
    "optim.name=muon optim.beta2=0.98 optim.average_decay=0.9 early.mask_prob=0.3"
    " early.depth=1 early.depth_share=0.4"
)


@pytest.mark.parametrize(("at_step", "settings"), [(1, ""), (6, EVERYTHING), (11, "")])
def test_a_run_stopped_after_any_step_equals_an_uninterrupted_one(
    tmp_path: Path,
    configure: Configure,
    each_step: EachStep,
    at_step: int,
    settings: str,
) -> None:
    configured = configure(*settings.split())
    pretrain(configured, tmp_path / "whole", is_quiet=True)
    each_step(at(at_step, signal.raise_signal, signal.SIGTERM))
    assert pretrain(configured, tmp_path / "stopped", is_quiet=True) == 143
    assert checkpoints_of(tmp_path / "stopped")[-1].name == f"step-{at_step:09d}"
    assert not (tmp_path / "stopped" / "model").exists()
    assert pretrain(configured, tmp_path / "stopped", is_quiet=True) == 0
    assert state_of(tmp_path / "stopped") == state_of(tmp_path / "whole")


def test_control_moments_that_are_not_restored_change_the_run(
    tmp_path: Path,
    configure: Configure,
    each_step: EachStep,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(checkpoint, "load_state_tensors", lambda *_: None)
    with pytest.raises(AssertionError, match="Differing items"):
        test_a_run_stopped_after_any_step_equals_an_uninterrupted_one(
            tmp_path, configure, each_step, 5, ""
        )


def test_a_resume_with_other_settings_is_refused_if_they_change_numbers(
    tmp_path: Path, configure: Configure
) -> None:
    pretrain(configure(), tmp_path, is_quiet=True)
    with pytest.raises(LitebertError, match=r"LB-505[\s\S]*train\.seed: 12345 -> 7"):
        pretrain(configure("train.seed=7"), tmp_path, is_quiet=True)
    assert (
        pretrain(configure("train.log_every=1", "train.keep_checkpoints=1"), tmp_path)
        == 0
    )


def change_record(run: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Change the settings in a run.json, as another version would have written them."""
    path = run / "run.json"
    record = json.loads(path.read_text("utf-8"))
    change(record["settings"])
    path.write_text(json.dumps(record), "utf-8")


def as_of_version_0_3_0(settings: dict[str, Any]) -> None:
    del settings["optim.settings"]
    settings["model.attention_window"] = 64
    settings["train.exits"] = False


def test_a_run_of_an_earlier_version_resumes_if_no_setting_changes_it(
    tmp_path: Path,
    configure: Configure,
    each_step: EachStep,
    capsys: pytest.CaptureFixture[str],
) -> None:
    pretrain(configure(), tmp_path / "whole", is_quiet=True)
    run = tmp_path / "stopped"
    each_step(at(5, signal.raise_signal, signal.SIGINT))
    assert pretrain(configure(), run, is_quiet=True) == 130
    change_record(run, as_of_version_0_3_0)
    capsys.readouterr()

    assert pretrain(configure(), run) == 0

    said = capsys.readouterr().err
    assert "another version of litebert began" in said
    assert "train.exits is gone" in said
    assert "optim.settings is new" in said
    assert state_of(run) == state_of(tmp_path / "whole")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("train.exits", True),  # removed: the run had another loss
        ("train.unheard_of", 1),  # of a later version
        ("optim.weight_decay", None),  # not what that version had
    ],
)
def test_a_run_of_another_version_is_refused_if_a_setting_changes_it(
    tmp_path: Path, configure: Configure, name: str, value: object
) -> None:
    pretrain(configure(), tmp_path, is_quiet=True)
    change_record(tmp_path, lambda settings: settings.update({name: value}))
    with pytest.raises(LitebertError, match=f"LB-505(.|\n)*{name}"):
        pretrain(configure(), tmp_path, is_quiet=True)


def test_two_processes_cannot_train_in_one_folder(
    tmp_path: Path, configure: Configure, asleep: "subprocess.Popen[bytes]"
) -> None:
    with pytest.raises(LitebertError, match=rf"LB-504[\s\S]*pid {asleep.pid}"):
        pretrain(configure(), tmp_path, is_quiet=True)


def test_control_without_the_lock_two_processes_train_in_one_folder(
    tmp_path: Path,
    configure: Configure,
    asleep: "subprocess.Popen[bytes]",
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("fcntl.flock", lambda *_: None)
    assert pretrain(configure(), tmp_path, is_quiet=True) == 0
    assert asleep.poll() is None


def test_control_a_damaged_checkpoint_that_is_not_verified_changes_the_run(
    tmp_path: Path, configure: Configure, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the protection the run resumes from the previous checkpoint
    (`contract/test_training_kills.py`).
    """
    pretrain(configure(), tmp_path / "whole", is_quiet=True)
    for is_verified in (True, False):
        run = Path(shutil.copytree(tmp_path / "whole", tmp_path / f"run-{is_verified}"))
        shutil.rmtree(run / "model")  # as a run that was killed before its end
        newest = checkpoints_of(run)[-1] / "model.safetensors"
        data = bytearray(newest.read_bytes())
        data[len(data) // 2] ^= 1
        if not is_verified:
            monkeypatch.setattr(checkpoint, "verify", lambda _: None)
            data = data.replace(b'"sha256"', b'"nobody"')  # the hash in the file
        newest.write_bytes(data)
        pretrain(configure(), run, is_quiet=True)
        assert (state_of(run) == state_of(tmp_path / "whole")) == is_verified


# Checkpoints: killed while they are written, and damaged afterwards

IN_PLACE = """
from contextlib import contextmanager
@contextmanager
def in_place(final):
    final.mkdir(parents=True, exist_ok=True)
    yield final
checkpoint.files.staged_folder = in_place
"""


@pytest.mark.parametrize(
    "without", ["", pytest.param(IN_PLACE, marks=pytest.mark.slow)]
)
def test_a_save_killed_at_any_moment_leaves_whole_checkpoints(
    tmp_path: Path, small_model: Path, without: str
) -> None:
    """In the negative control checkpoints are written in place, and a kill leaves an
    incomplete one.
    """
    assert (killed("saves", without, folder=tmp_path, model=small_model) > 0) == bool(
        without
    )


def test_a_reader_never_finds_a_checkpoint_that_is_not_whole(
    tmp_path: Path, small_model: Path
) -> None:
    assert killed("readers", folder=tmp_path, model=small_model) == 0


def test_control_checkpoints_written_in_place_are_found_half_written(
    tmp_path: Path, small_model: Path
) -> None:
    assert killed("readers", IN_PLACE, folder=tmp_path, model=small_model) > 0


@pytest.fixture
def saved(tmp_path: Path, small_model: Path) -> Path:
    network = read_folder(small_model).network
    optimizer = build_optimizer(OptimConfig(), network.named_parameters())
    path = Checkpoints(tmp_path, keep=1).save(network, optimizer, RunProgress(step=7))
    verify(path)
    return path


def test_every_damage_of_a_checkpoint_is_noticed(saved: Path) -> None:
    """Try 64 truncations and a page of zeros for each large file, and 2,000 flipped
    bits.
    """
    seed = int(time.time())
    draw = random.Random(seed)
    contents = {file: file.read_bytes() for file in sorted(saved.iterdir())}
    large = [file for file in contents if len(contents[file]) > 8_192]
    assert len(large) == 2
    damages = [
        (f, contents[f][: len(contents[f]) * cut // 64])
        for f in large
        for cut in range(64)
    ]
    damages += [
        (f, contents[f][:-4_096] + bytes(4_096))
        for f in large
        if any(contents[f][-4_096:])
    ]
    for _ in range(2_000):
        file = draw.choice(sorted(contents.keys() - {saved / "manifest.json"}))
        data = bytearray(contents[file])
        data[draw.randrange(len(data))] ^= 1 << draw.randrange(8)
        damages.append((file, bytes(data)))
    for file, data in damages:
        file.write_bytes(data)
        with pytest.raises(LitebertError, match="LB-501"):
            verify(saved)
            pytest.fail(
                f"seed {seed}: {file.name}, {len(data)} bytes, is taken as whole"
            )
        file.write_bytes(contents[file])
    verify(saved)


def test_control_sizes_alone_do_not_reveal_a_flipped_bit(
    saved: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoint.files, "hash_file", lambda _: "")
    (saved / "manifest.json").write_text(json.dumps(manifest_of(saved, 7)))
    with pytest.raises(pytest.fail.Exception):
        test_every_damage_of_a_checkpoint_is_noticed(saved)


def _swap(path: Path) -> None:
    for old, new in (
        ("model", "other"),
        ("optimizer", "model"),
        ("other", "optimizer"),
    ):
        (path / f"{old}.safetensors").rename(path / f"{new}.safetensors")


def _edit(old: str, new: str) -> Callable[[Path], object]:
    return lambda path: (path / "manifest.json").write_text(
        (path / "manifest.json").read_text().replace(old, new, 1)
    )


DAMAGES = [
    _swap,
    lambda path: (path / "extra").touch(),
    lambda path: (path / "state.json").unlink(),
]
DAMAGES += [
    lambda path: (path / "manifest.json").unlink(),
    _edit("{", "["),
    _edit('"format": 1', '"format": 2'),
]
DAMAGES += [_edit('"blake2b": "', '"blake2b": "0'), _edit('"bytes": ', '"bytes": 1')]


@pytest.mark.parametrize("damage", DAMAGES)
def test_swapped_missing_and_foreign_files_are_noticed(
    saved: Path, damage: Callable[[Path], object]
) -> None:
    damage(saved)
    with pytest.raises(DamagedError, match=r"LB-(501|005)"):
        verify(saved)


def test_a_whole_checkpoint_that_does_not_fit_is_an_error_and_stays(
    saved: Path, small_model: Path
) -> None:
    network = read_folder(small_model).network
    torch.nn.init.zeros_(network.albert.pooler.weight)
    optimizer = build_optimizer(OptimConfig(name="muon"), network.named_parameters())
    with pytest.raises(LitebertError, match="LB-423"):
        Checkpoints(saved.parent, keep=1).restore_latest(network, optimizer, [])
    verify(saved)
    assert not network.albert.pooler.weight.any()


# Numbers that are not finite

Poison = Callable[[Callable[[int], float], float], None]


@pytest.fixture
def poison(monkeypatch: pytest.MonkeyPatch) -> Poison:
    """Return a function that multiplies each training loss by a factor of its step,
    from 1 on, and adds a number.
    """
    original = Pretraining.loss

    def change(factor: Callable[[int], float], added: float = 0.0) -> None:
        steps = itertools.count(1)

        def poisoned(self: Pretraining, *arguments: object) -> Loss:
            loss = original(self, *arguments)
            return (
                Loss(loss.total * factor(next(steps)) + added, loss.sums)
                if self.network.training
                else loss
            )

        monkeypatch.setattr(Pretraining, "loss", poisoned)

    return change


NAN = float("nan")
INFINITY = float("inf")


# an infinity that is added leaves the gradients finite
@pytest.mark.parametrize(
    ("factor", "added", "detail"), [(NAN, 0.0, ""), (1.0, INFINITY, r"[\s\S]*loss inf")]
)
def test_steps_that_are_not_finite_change_nothing_and_then_stop_the_run(
    tmp_path: Path,
    configure: Configure,
    poison: Poison,
    factor: float,
    added: float,
    detail: str,
) -> None:
    poison(lambda _: factor, added)
    with pytest.raises(NonFiniteError, match="LB-503" + detail):
        pretrain(configure("train.max_skipped_steps=3"), tmp_path, is_quiet=True)
    assert [row["step"] for row in read_metrics(tmp_path) if row["kind"] == "note"] == [
        1,
        2,
        3,
        4,
    ]
    assert checkpoints_of(tmp_path) == []


def test_a_run_survives_single_steps_that_are_not_finite_and_stops_after_a_finite_one(
    tmp_path: Path, configure: Configure, poison: Poison, each_step: EachStep
) -> None:
    poison(lambda step: NAN if step in (2, 3, 6) else 1.0)
    each_step(at(6, signal.raise_signal, signal.SIGTERM))
    assert pretrain(configure("train.log_every=1"), tmp_path, is_quiet=True) == 143
    assert checkpoints_of(tmp_path)[-1].name == "step-000000007"
    pretrain(
        configure("train.save_every=1", "train.log_every=1"), tmp_path, is_quiet=True
    )
    rows = read_metrics(tmp_path)
    assert [row["step"] for row in rows if row["kind"] == "note"] == [2, 3, 6]
    assert len([row for row in rows if row["kind"] == "train"]) == 12 - 3
    assert all(
        tensor.isfinite().all()
        for tensor in load_file(tmp_path / "model" / "model.safetensors").values()
    )


def test_no_checkpoint_is_written_while_steps_are_skipped(
    tmp_path: Path, configure: Configure, poison: Poison
) -> None:
    poison(lambda step: NAN if step >= 6 else 1.0)
    with pytest.raises(NonFiniteError, match="LB-503"):
        pretrain(
            configure("train.save_every=1", "train.max_skipped_steps=3"),
            tmp_path,
            is_quiet=True,
        )
    assert [path.name for path in checkpoints_of(tmp_path)] == [
        "step-000000004",
        "step-000000005",
    ]


def test_control_checkpoints_of_skipped_steps_evict_the_good_ones(
    tmp_path: Path,
    configure: Configure,
    poison: Poison,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    count = loop.count
    skipped = 0

    def careless(progress: RunProgress, *arguments: object) -> None:
        nonlocal skipped
        progress.skipped_in_a_row = skipped
        count(progress, *arguments)
        skipped = progress.skipped_in_a_row
        progress.skipped_in_a_row = 0

    monkeypatch.setattr(loop, "count", careless)
    with pytest.raises(AssertionError):
        test_no_checkpoint_is_written_while_steps_are_skipped(
            tmp_path, configure, poison
        )


def test_a_state_that_is_not_finite_is_never_saved_and_evicts_nothing(
    tmp_path: Path, configure: Configure
) -> None:
    network = torch.nn.Linear(2, 2)
    optimizer = build_optimizer(configure().config.optim, network.named_parameters())
    (tmp_path / "step-000000001").mkdir()
    with torch.no_grad():
        network.weight[0, 0] = INFINITY
    with pytest.raises(NonFiniteError, match=r"LB-541[\s\S]*weight"):
        Checkpoints(tmp_path, keep=1).save(network, optimizer, RunProgress(step=2))
    assert [path.name for path in tmp_path.iterdir()] == ["step-000000001"]


def test_control_a_state_that_is_not_checked_is_saved_and_evicts_the_good_one(
    tmp_path: Path, configure: Configure, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoint, "first_not_finite", lambda _: None)
    monkeypatch.setattr(checkpoint, "write_folder", lambda *_: None)
    with pytest.raises(pytest.fail.Exception, match="DID NOT RAISE"):
        test_a_state_that_is_not_finite_is_never_saved_and_evicts_nothing(
            tmp_path, configure
        )
    assert [path.name for path in tmp_path.iterdir()] == ["step-000000002"]


def test_a_resume_skips_a_checkpoint_that_is_not_finite_and_keeps_the_good_one(
    tmp_path: Path, configure: Configure, capsys: pytest.CaptureFixture[str]
) -> None:
    pretrain(configure(), tmp_path / "whole", is_quiet=True)
    run = Path(shutil.copytree(tmp_path / "whole", tmp_path / "run"))
    shutil.rmtree(run / "model")
    newest = checkpoints_of(run)[-1]
    tensors = load_file(newest / "optimizer.safetensors")
    next(iter(tensors.values())).view(-1)[0] = NAN
    save_file(tensors, newest / "optimizer.safetensors")
    (newest / "manifest.json").unlink()
    (newest / "manifest.json").write_text(json.dumps(manifest_of(newest, 12)))
    pretrain(configure("train.save_every=1", "train.keep_checkpoints=1"), run)
    assert "is not finite" in capsys.readouterr().err
    assert [path.name for path in checkpoints_of(run)] == ["step-000000012"]
    assert state_of(run) == state_of(tmp_path / "whole")


def test_an_evaluation_that_is_not_finite_is_noted(
    tmp_path: Path, configure: Configure, monkeypatch
) -> None:
    monkeypatch.setattr(
        Pretraining,
        "evaluate",
        lambda _: {"masked_lm_loss": NAN, "masked_lm_accuracy": 0.5},
    )
    assert pretrain(configure(), tmp_path, is_quiet=True) == 0
    rows = read_metrics(tmp_path)
    assert {row["masked_lm_loss"] for row in rows if row["kind"] == "eval"} == {None}
    assert any("masked_lm_loss" in str(row.get("text")) for row in rows)


# Disks, files, folders, terminals


def test_a_disk_too_full_for_the_checkpoints_is_refused_before_work(
    tmp_path: Path, configure: Configure, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("litebert.train.checkpoint.free_bytes", lambda _: 1_000)
    with pytest.raises(ResourceError, match="LB-506"):
        pretrain(configure(), tmp_path / "run", is_quiet=True)
    assert not (tmp_path / "run" / "metrics.jsonl").exists()
    monkeypatch.setattr("litebert.train.checkpoint.free_bytes", lambda _: 17 << 20)
    checkpoints = Checkpoints(tmp_path / "checkpoints", keep=2)
    with pytest.raises(
        ResourceError, match=r"LB-506[\s\S]*17.0 MiB free[\s\S]*40.0 MiB"
    ):
        checkpoints.require_disk(1 << 20)
    for step in (4, 8):  # a resume replaces the existing ones
        (tmp_path / "checkpoints" / f"step-{step:09d}").mkdir(parents=True)
        (
            tmp_path / "checkpoints" / f"step-{step:09d}" / "model.safetensors"
        ).write_bytes(bytes(12 << 20))
    checkpoints.require_disk(1 << 20)


def test_damaged_rows_of_the_log_are_named_and_kept_aside(
    tmp_path: Path,
    configure: Configure,
    each_step: EachStep,
    capsys: pytest.CaptureFixture[str],
) -> None:
    each_step(at(6, signal.raise_signal, signal.SIGTERM))
    pretrain(configure(), tmp_path, is_quiet=True)
    lines = (tmp_path / "metrics.jsonl").read_bytes().split(b"\n")
    (tmp_path / "metrics.jsonl").write_bytes(
        b"\n".join([lines[0], b"\xff\x00{", *lines[1:]])
    )
    with pytest.raises(LitebertError, match=r"LB-651[\s\S]*line 2"):
        read_metrics(tmp_path)
    pretrain(configure(), tmp_path)
    assert "line 2 of metrics.jsonl is damaged" in capsys.readouterr().err
    assert (tmp_path / "metrics.damaged").read_text().startswith("line 2: ")
    assert read_metrics(tmp_path)[-1]["step"] == 12


def test_a_run_whose_folder_is_deleted_says_so(
    tmp_path: Path, configure: Configure, each_step: EachStep
) -> None:
    each_step(at(3, shutil.rmtree, tmp_path / "run"))
    with pytest.raises(LitebertError, match="LB-543"):
        pretrain(configure(), tmp_path / "run", is_quiet=True)


def test_work_continues_if_nobody_reads_its_output() -> None:
    talk = (
        "import sys; from litebert.errors import say; [say(f'line {step}') for step in"
        " range(5)]; sys.exit(7)"
    )
    reading, writing = os.pipe()
    os.close(reading)
    assert (
        subprocess.run(
            [sys.executable, "-c", talk], stderr=writing, check=False
        ).returncode
        == 7
    )
    os.close(writing)


def test_a_short_run_says_nothing_twice(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "run.json").write_text("{}")
    log = RunLog(Session(tmp_path), TrainConfig(steps=4), choose_device("cpu"))
    log.total_steps = 4
    for step in range(1, 5):
        log.training(step, 10, {"loss": 1.0}, {"learning_rate": 1e-3})
        log.evaluation(step, lambda: {"accuracy": 1.0})
    shown = capsys.readouterr().err
    assert shown.count("held out") == 2  # the first and the last
    assert shown.count("loss 1") == 2
    assert len((tmp_path / "metrics.jsonl").read_text().splitlines()) == 8


def test_a_terminal_shows_a_progress_bar_that_lines_replace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    screen = io.StringIO()
    monkeypatch.setattr(screen, "isatty", lambda: True)
    monkeypatch.setattr("sys.stderr", screen)
    monkeypatch.setattr("litebert.train.log.STATUS_SECONDS", 0.0)
    progress = RunLog(Session(tmp_path), TrainConfig(steps=40), choose_device("cpu"))
    for step in range(1, 11):
        progress.advance(step, 40)
    progress.say("held out")
    shown = screen.getvalue()
    assert shown.count("\r\x1b[K") == 11 and " 25%  step 10/40  left " in shown
    assert shown.endswith("\r\x1b[Kheld out\n")
