"""A device is named wherever a model is opened."""

import numpy as np
import pytest
import torch

import litebert
from litebert.device import choose_device
from litebert.errors import LitebertError
from litebert.folder import read_folder
from litebert.hub import packaged_model
from tests.contract.shell import litebert as shell

NO_GPU = pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")


def test_a_model_says_where_and_how_precisely_it_computes() -> None:
    model = litebert.load(device="cpu")
    assert model.device == choose_device("cpu")
    assert model.precision == "fp32"
    assert litebert.load(device="cpu", precision="bf16").precision == "bf16"


@NO_GPU
def test_auto_is_the_cpu_without_a_gpu() -> None:
    on_auto = litebert.load().embed("A cat.")
    on_cpu = litebert.load(device="cpu").embed("A cat.")
    assert np.array_equal(on_auto, on_cpu)


@NO_GPU
@pytest.mark.parametrize("name", ["cuda", "cuda:99", "tpu", "gpu", ""])
def test_a_device_that_is_not_there_is_named(name: str) -> None:
    with pytest.raises(LitebertError, match="LB-507") as raised:
        litebert.load(device=name)
    assert f"device {name}:" in str(raised.value)
    assert "hpu" not in str(raised.value)  # of the list of all that torch knows


@NO_GPU
def test_the_shell_takes_a_device() -> None:
    done = shell("embed", "A cat.", "--device", "cpu", "--json")
    assert done.code == 0, done.stderr
    for command in (
        ["embed", "A cat.", "--device", "cuda"],
        ["evaluate", str(packaged_model()), "--data", "README.md", "--device", "cuda"],
    ):
        assert "LB-507" in shell(*command).stderr


def test_a_model_for_training_is_on_the_cpu_until_it_is_moved() -> None:
    network = read_folder(packaged_model()).network
    assert network.albert.embedding.word.weight.device.type == "cpu"
