"""Which checkpoints stay when another one is written, which are restored, and how many
steps a run has left.
"""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from litebert.config import OptimConfig
from litebert.errors import DamagedError, LitebertError
from litebert.files import Json
from litebert.folder import read_folder
from litebert.nn import AlbertForPretraining
from litebert.optim import MomentOptimizer, build_optimizer
from litebert.train import checkpoint
from litebert.train.checkpoint import (
    Checkpoints,
    RunProgress,
    manifest_of,
    mean_model,
)

from .conftest import checkpoints_of

Save = Callable[..., None]


@pytest.fixture
def network(small_model: Path) -> AlbertForPretraining:
    network = read_folder(small_model).network
    assert isinstance(network, AlbertForPretraining)
    return network


@pytest.fixture
def optimizer(network: AlbertForPretraining) -> MomentOptimizer:
    return build_optimizer(OptimConfig(), network.named_parameters())


@pytest.fixture
def save(
    tmp_path: Path, network: AlbertForPretraining, optimizer: MomentOptimizer
) -> Save:
    """Return a function that writes checkpoints after some steps of a run."""

    def save_at(
        *steps: int,
        keep: int = 2,
        keep_every: int | None = None,
        diverged: int | None = None,
    ) -> None:
        folder = tmp_path / "checkpoints"
        checkpoints = Checkpoints(folder, keep=keep, keep_every=keep_every)
        for step in steps:
            is_after = diverged is not None and step >= diverged
            progress = RunProgress(step=step, diverged=diverged if is_after else None)
            checkpoints.save(network, optimizer, progress)

    return save_at


def steps_in(run: Path) -> list[int]:
    return [int(path.name.removeprefix("step-")) for path in checkpoints_of(run)]


# ---- which stay ----------------------------------------------------------------------


def test_the_newest_checkpoints_stay(tmp_path: Path, save: Save) -> None:
    save(8, 9, 10, 11)
    assert steps_in(tmp_path) == [10, 11]


def test_checkpoints_of_every_so_many_steps_stay(tmp_path: Path, save: Save) -> None:
    save(4, 6, 8, 9, 10, 11, keep=1, keep_every=4)
    assert steps_in(tmp_path) == [4, 8, 11]


def test_the_last_checkpoint_before_a_divergence_stays(
    tmp_path: Path, save: Save
) -> None:
    """A run can start again from it, however many follow."""
    save(4, 6, 8, 9, 10, 11, 12, diverged=8)
    assert steps_in(tmp_path) == [6, 11, 12]


def test_a_checkpoint_with_a_file_of_the_user_is_not_removed(
    tmp_path: Path, save: Save
) -> None:
    save(4)
    notes = tmp_path / "checkpoints" / "step-000000004" / "notes.txt"
    notes.write_text("the one of the talk")
    save(5, 6, 7)
    assert steps_in(tmp_path) == [4, 6, 7]
    assert notes.exists()


def test_no_checkpoint_goes_for_one_that_cannot_be_read_back(
    tmp_path: Path, save: Save, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a disk that loses a byte of what was written."""
    save(4, 5)

    def lose_a_byte(folder: Path, step: int) -> dict[str, Json]:
        manifest = manifest_of(folder, step)
        monkeypatch.undo()
        weights = folder / "model.safetensors"
        weights.write_bytes(weights.read_bytes()[:-1])
        return manifest

    monkeypatch.setattr(checkpoint, "manifest_of", lose_a_byte)
    with pytest.raises(DamagedError, match="LB-501"):
        save(6)
    assert steps_in(tmp_path) == [4, 5, 6]


# ---- which are restored --------------------------------------------------------------


def restored_step(
    run: Path, network: AlbertForPretraining, optimizer: MomentOptimizer
) -> int | None:
    problems = list[LitebertError]()
    checkpoints = Checkpoints(run / "checkpoints", keep=2)
    progress = checkpoints.restore_latest(network, optimizer, problems)
    assert all(problem.code == "LB-501" for problem in problems)
    if progress is None:
        return None
    assert isinstance(progress, dict)
    return int(str(progress["step"]))


def test_the_newest_whole_checkpoint_is_restored_and_damaged_ones_get_another_name(
    tmp_path: Path,
    save: Save,
    network: AlbertForPretraining,
    optimizer: MomentOptimizer,
) -> None:
    save(4, 5, 6, keep=3)
    folder = tmp_path / "checkpoints"
    with (folder / "step-000000006" / "model.safetensors").open("ab") as file:
        file.write(b" ")
    assert restored_step(tmp_path, network, optimizer) == 5
    (damaged,) = folder.glob("damaged-*")
    assert damaged.name.startswith("damaged-step-000000006-")
    # it takes the place of none of those that stay
    save(7)
    assert steps_in(tmp_path) == [5, 7]


def test_what_a_killed_process_left_is_no_checkpoint(
    tmp_path: Path,
    save: Save,
    network: AlbertForPretraining,
    optimizer: MomentOptimizer,
) -> None:
    save(4)
    unfinished = tmp_path / "checkpoints" / "step-000000005.tmp"
    unfinished.mkdir()
    assert restored_step(tmp_path, network, optimizer) == 4
    assert unfinished.exists()


def test_a_head_that_nothing_trains_is_neither_written_nor_needed(
    tmp_path: Path,
    save: Save,
    network: AlbertForPretraining,
    optimizer: MomentOptimizer,
) -> None:
    """As the sentence head of a run on a text without neighboring sentences."""
    layer = "sentence_order.classifier"
    network.untrained = frozenset({f"{layer}.weight", f"{layer}.bias"})
    save(4)
    folder = tmp_path / "checkpoints" / "step-000000004"
    assert read_folder(folder).missing == network.untrained
    architectures = json.loads((folder / "config.json").read_text())["architectures"]
    assert architectures == ["AlbertForMaskedLM"]

    head = network.sentence_order.classifier.weight
    before = head.detach().clone()
    assert restored_step(tmp_path, network, optimizer) == 4
    assert torch.equal(head, before)
    # of a network that trains it, the checkpoint lacks a part
    network.untrained = frozenset()
    assert restored_step(tmp_path, network, optimizer) is None


# ---- averages ------------------------------------------------------------------------


def test_the_mean_of_equal_models_has_their_bits(small_model: Path) -> None:
    """In float32, the sum of three equal weights would be rounded."""
    expected = read_folder(small_model).network.state_dict()
    mean = mean_model([small_model] * 3).network.state_dict()
    for name, weight in expected.items():
        assert torch.equal(mean[name], weight), name


# ---- progress ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("position", "stride", "num_steps"),
    [
        (0.0, 1.0, 12),
        (4.0, 1.0, 8),
        (4.0, 2.0, 4),  # each training step takes two of the schedule
        (4.0, 0.5, 16),
        (12.4, 1.0, 0),  # past the end
        (14.0, 1.0, 0),
    ],
)
def test_the_steps_left_are_those_of_the_schedule_at_the_stride(
    position: float, stride: float, num_steps: int
) -> None:
    progress = RunProgress(position=position, stride=stride)
    assert progress.steps_left(12) == num_steps
