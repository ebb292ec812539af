"""A model is ready only when it passed its self-test."""

from pathlib import Path

import pytest
import torch

import litebert
from litebert.errors import DamagedError
from litebert.folder import save_model
from litebert.serve.model_process import self_test


def test_a_sound_model_passes(folders: dict[str, Path]) -> None:
    for folder in folders.values():
        self_test(litebert.load(folder))


@pytest.mark.parametrize("value", [0.0, 1.0])
def test_a_model_to_which_all_texts_are_alike_does_not_pass(
    folders: dict[str, Path], tmp_path: Path, value: float
) -> None:
    model = litebert.load(folders["base"])
    with torch.no_grad():
        for parameter in model.network.albert.parameters():
            parameter.fill_(value)
    save_model(model.network, tmp_path)
    model.tokenizer.save(tmp_path)
    with pytest.raises(DamagedError, match="LB-967"):
        self_test(litebert.load(tmp_path))
