"""The optimizer of docs/extending/optimizer.md, Lion."""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from litebert.plugins import load_plugin
from litebert.runs import RunFolder
from tests.extending.commands import (
    QUICK,
    SMALL,
    assert_resumes_to_equal_bits,
    refused,
    shell,
    weights_of,
)

Words = tuple[object, ...]


@pytest.fixture
def pretrain(page: Callable[[str], Path], corpus: Path) -> Words:
    """Return the words of a short training with the plug-in."""
    plugin = page("optimizer")
    return ("pretrain", "--corpus", corpus, *SMALL, *QUICK, "--plugin", plugin)


def test_every_weight_takes_a_step_of_the_same_size(
    page: Callable[[str], Path],
) -> None:
    load_plugin(str(page("optimizer")))
    weight = torch.nn.Parameter(torch.tensor([3.0, -4.0]))
    weight.grad = torch.tensor([0.5, 0.01])
    sys.modules["lion"].Lion([weight], lr=0.1, weight_decay=0.0).step()
    torch.testing.assert_close(weight.detach(), torch.tensor([2.9, -4.1]))


def test_a_run_resumes_to_equal_bits(pretrain: Words) -> None:
    assert_resumes_to_equal_bits(*pretrain, "optim.name=lion", "train.save_every=1")


def test_its_own_setting_is_recorded_and_changes_the_run(pretrain: Words) -> None:
    one_step = ("optim.name=lion", "train.steps=1", "optim.warmup_steps=0")
    # every average is smaller than this floor: without decay, no weight moves
    still = ("optim.weight_decay=0", "optim.settings.floor=1e9")
    assert shell(*pretrain, *one_step, *still, "--name", "still") == 0
    assert shell(*pretrain, *one_step, "--name", "moves") == 0

    run = RunFolder(Path("runs/still"))
    assert run.settings["optim.settings"] == {"floor": 1e9}
    assert weights_of("still") != weights_of("moves")
    checkpoint = run.folder / "checkpoints/step-000000001/optimizer.safetensors"
    assert any(tensor.any() for tensor in load_file(checkpoint).values())


WRONG_SETTINGS = [
    pytest.param(
        ("optim.name=lion", "optim.settings.flor=1"),
        ["the optimizer lion has no setting of this name", "did you mean floor?"],
        id="misspelt",
    ),
    pytest.param(
        ("optim.name=lion", "optim.settings.floor=low"),
        ["optim.settings.floor of the optimizer lion cannot have this value"],
        id="wrong value",
    ),
    pytest.param(
        ("optim.name=adamw", "optim.settings.floor=1"),
        ["the optimizer adamw has no setting of this name"],
        id="of another optimizer",
    ),
]


@pytest.mark.parametrize(("words", "messages"), WRONG_SETTINGS)
def test_a_wrong_setting_is_refused(
    pretrain: Words,
    words: Words,
    messages: list[str],
    capsys: pytest.CaptureFixture[str],
) -> None:
    error = refused(capsys, *pretrain, *words)
    for message in messages:
        assert message in error
