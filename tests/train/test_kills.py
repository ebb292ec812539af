"""Checkpoints are whole or absent, whenever a writer is killed; whatever damages one is noticed."""

import random
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from litebert.config import PretrainConfig, Resolved
from litebert.errors import LitebertError
from litebert.folder import load_model
from litebert.optim import build_optimizer
from litebert.train.checkpoint import Checkpoints, RunProgress, verify

Configure = Callable[..., Resolved[PretrainConfig]]


@pytest.mark.parametrize("task", ["saves", "readers"])
def test_a_save_killed_at_any_operation_leaves_whole_checkpoints_to_every_reader(
    tmp_path: Path, small_model: Path, task: str
) -> None:
    command = [sys.executable, str(Path(__file__).with_name("kills.py")), task, str(tmp_path), str(small_model)]
    assert int(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout) == 0


@pytest.fixture
def saved(tmp_path: Path, small_model: Path, configure: Configure) -> Path:
    """Give a checkpoint of a small network."""
    network = load_model(small_model).network
    optimizer = build_optimizer(configure().config.optim, network.named_parameters())
    path = Checkpoints(tmp_path, keep=1).save(network, optimizer, RunProgress(step=7))
    verify(path)
    return path


def _damages(path: Path, draw: random.Random) -> list[tuple[Path, bytes]]:
    """List 64 truncations of each large file, 2,000 flipped bits, and a page of zeros of each."""
    contents = {file: file.read_bytes() for file in sorted(path.iterdir())}
    large = [file for file in contents if len(contents[file]) > 8_192]
    assert len(large) == 2
    damages = [(f, contents[f][: len(contents[f]) * cut // 64]) for f in large for cut in range(64)]
    for _ in range(2_000):
        file = draw.choice(sorted(contents.keys() - {path / "manifest.json"}))
        data = bytearray(contents[file])
        data[draw.randrange(len(data))] ^= 1 << draw.randrange(8)
        damages.append((file, bytes(data)))
    damages += [(file, contents[file][:-4_096] + bytes(4_096)) for file in large]
    return [(file, data) for file, data in damages if data != contents[file]]


def test_every_damage_of_a_checkpoint_is_noticed(saved: Path) -> None:
    seed = int(time.time())
    for file, data in _damages(saved, random.Random(seed)):
        before = file.read_bytes()
        file.write_bytes(data)
        with pytest.raises(LitebertError, match="LB-501"):
            verify(saved)
            pytest.fail(f"seed {seed}: {file.name}, {len(data)} bytes, is taken as whole")
        file.write_bytes(before)
    verify(saved)


def _swap(path: Path) -> None:
    (path / "model.safetensors").rename(path / "other")
    (path / "optimizer.safetensors").rename(path / "model.safetensors")
    (path / "other").rename(path / "optimizer.safetensors")


def _manifest(old: str, new: str) -> Callable[[Path], None]:
    def change(path: Path) -> None:
        text = (path / "manifest.json").read_text()
        assert old in text
        (path / "manifest.json").write_text(text.replace(old, new, 1))

    return change


@pytest.mark.parametrize(
    "damage",
    [
        _swap,
        lambda path: (path / "state.json").unlink(),
        lambda path: (path / "extra").touch(),
        lambda path: (path / "manifest.json").unlink(),
        _manifest('"format": 1', '"format": 2'),
        _manifest('"blake2b": "', '"blake2b": "0'),
        _manifest('"bytes": ', '"bytes": 1'),
        _manifest("{", "["),
    ],
)
def test_swapped_missing_and_foreign_files_are_noticed(saved: Path, damage: Callable[[Path], object]) -> None:
    damage(saved)
    with pytest.raises(LitebertError, match=r"LB-(501|00\d)"):
        verify(saved)
