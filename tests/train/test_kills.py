"""Killed at any operation of a save, whole checkpoints are left, and no reader finds another; damage is noticed."""

import json
import random
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from litebert.config import OptimConfig
from litebert.errors import LitebertError
from litebert.folder import load_model
from litebert.optim import build_optimizer
from litebert.train import checkpoint
from litebert.train.checkpoint import Checkpoints, RunProgress, verify

IN_PLACE = """
from contextlib import contextmanager
@contextmanager
def in_place(final):
    final.mkdir(parents=True, exist_ok=True)
    yield final
checkpoint.files.staged_folder = in_place
"""


def _kills(task: str, folder: Path, model: Path, without: str = "") -> int:
    command = [sys.executable, str(Path(__file__).with_name("kills.py")), task, str(folder), str(model), without]
    return int(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)


@pytest.mark.parametrize("without", ["", pytest.param(IN_PLACE, marks=pytest.mark.slow)])
def test_a_save_killed_at_any_operation_leaves_whole_checkpoints(
    tmp_path: Path, small_model: Path, without: str
) -> None:
    """Written in place, which is the negative control, it leaves one that is not whole."""
    assert (_kills("saves", tmp_path, small_model, without) > 0) == bool(without)


def test_a_reader_never_finds_a_checkpoint_that_is_not_whole(tmp_path: Path, small_model: Path) -> None:
    assert _kills("readers", tmp_path, small_model) == 0


def test_control_checkpoints_written_in_place_are_found_half_written(tmp_path: Path, small_model: Path) -> None:
    assert _kills("readers", tmp_path, small_model, IN_PLACE) > 0


@pytest.fixture
def saved(tmp_path: Path, small_model: Path) -> Path:
    """Give a checkpoint of a small network."""
    network = load_model(small_model).network
    optimizer = build_optimizer(OptimConfig(), network.named_parameters())
    path = Checkpoints(tmp_path, keep=1).save(network, optimizer, RunProgress(step=7))
    verify(path)
    return path


def test_every_damage_of_a_checkpoint_is_noticed(saved: Path) -> None:
    """64 truncations of each large file, 2,000 flipped bits, and a page of zeros of each."""
    seed = int(time.time())
    draw, contents = random.Random(seed), {file: file.read_bytes() for file in sorted(saved.iterdir())}
    large = [file for file in contents if len(contents[file]) > 8_192]
    assert len(large) == 2
    damages = [(f, contents[f][: len(contents[f]) * cut // 64]) for f in large for cut in range(64)]
    damages += [(f, contents[f][:-4_096] + bytes(4_096)) for f in large if any(contents[f][-4_096:])]
    for _ in range(2_000):
        file = draw.choice(sorted(contents.keys() - {saved / "manifest.json"}))
        data = bytearray(contents[file])
        data[draw.randrange(len(data))] ^= 1 << draw.randrange(8)
        damages.append((file, bytes(data)))
    for file, data in damages:
        file.write_bytes(data)
        with pytest.raises(LitebertError, match="LB-501"):
            verify(saved)
            pytest.fail(f"seed {seed}: {file.name}, {len(data)} bytes, is taken as whole")
        file.write_bytes(contents[file])
    verify(saved)


def test_control_sizes_alone_do_not_tell_a_flipped_bit(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoint.files, "hash_file", lambda _: "")
    (saved / "manifest.json").write_text(json.dumps(checkpoint.manifest_of(saved, 7)))
    with pytest.raises(pytest.fail.Exception):
        test_every_damage_of_a_checkpoint_is_noticed(saved)


def _swap(path: Path) -> None:
    (path / "model.safetensors").rename(path / "other")
    (path / "optimizer.safetensors").rename(path / "model.safetensors")
    (path / "other").rename(path / "optimizer.safetensors")


def _edit(old: str, new: str) -> Callable[[Path], object]:
    return lambda path: (path / "manifest.json").write_text((path / "manifest.json").read_text().replace(old, new, 1))


@pytest.mark.parametrize(
    "damage",
    [
        _swap,
        lambda path: (path / "state.json").unlink(),
        lambda path: (path / "manifest.json").unlink(),
        lambda path: (path / "extra").touch(),
        _edit('"format": 1', '"format": 2'),
        _edit('"blake2b": "', '"blake2b": "0'),
        _edit('"bytes": ', '"bytes": 1'),
        _edit("{", "["),
    ],
)
def test_swapped_missing_and_foreign_files_are_noticed(saved: Path, damage: Callable[[Path], object]) -> None:
    damage(saved)
    with pytest.raises(LitebertError, match=r"LB-(501|00\d)"):
        verify(saved)
