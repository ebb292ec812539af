"""A really pretrained trunk (PL-BERT): read, imported, and computed as transformers does."""

import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file
from torch import Tensor

from litebert.folder import load_model
from litebert.nn import Batch

# States reach 11.6, where float32 numbers lie 1e-6 apart. Against float64 both implementations are
# off by 1.2e-5 to 1.7e-5 after twelve layers, and by as much from each other: order of summation.
ROUNDING = 4e-5


@pytest.fixture(scope="module")
def trunk(real_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write the trunk's int8 weights as float32, one scale a row or a table."""
    source, folder = real_data / "plbert", tmp_path_factory.mktemp("trunk")
    stored = load_file(source / "model.int8.safetensors")
    scales = {name: t for name, t in stored.items() if name.endswith("_scale")}
    tensors = {
        name: tensor.float() * scales[f"{name}_scale"].reshape(-1, 1) if f"{name}_scale" in scales else tensor
        for name, tensor in stored.items()
        if name not in scales
    }
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    shutil.copyfile(source / "config.json", folder / "config.json")
    return folder


@pytest.fixture(scope="module")
def reference(real_data: Path) -> dict[str, Tensor]:
    """Give a sentence's ids and hidden states, as transformers computed them elsewhere."""
    with np.load(real_data / "plbert" / "reference_io.npz") as arrays:
        return {name: torch.from_numpy(arrays[name]) for name in arrays.files}


def test_a_trunk_without_pooler_and_heads_is_read_whole(trunk: Path) -> None:
    loaded = load_model(trunk)
    heads = {".".join(name.split(".")[:2]) for name in loaded.missing}
    assert {name.split(".")[0] for name in heads} == {"albert", "masked_lm", "sentence_order"}
    assert "albert.pooler" in heads and loaded.unused == ()
    assert sum(p.numel() for p in loaded.network.parameters() if not p.is_meta) == 5_701_888


@torch.no_grad()
def test_its_states_are_those_that_were_recorded_and_those_of_transformers(
    trunk: Path, reference: dict[str, Tensor]
) -> None:
    ids = reference["input_ids"]
    batch = Batch.from_padded(ids, torch.ones_like(ids), torch.zeros_like(ids))
    states = list(load_model(trunk).network.albert.states(batch))
    for step in (0, 1, 6, 12):
        difference = states[step] - reference[f"hf_fp32_hidden_{step}"][0]
        assert float(difference.abs().max()) < ROUNDING, step
    quantised = reference["ort_int8_last_hidden"][0].flatten()
    assert float(torch.cosine_similarity(states[12].flatten(), quantised, dim=0)) > 0.99
    theirs = transformers.AlbertModel.from_pretrained(trunk, add_pooling_layer=False).eval()
    for precision in (torch.float32, torch.float64):
        others = theirs.to(precision)(ids, output_hidden_states=True).hidden_states
        for step, (ours, other) in enumerate(zip(states, others, strict=True)):
            assert float((ours - other[0]).abs().max()) < ROUNDING, step
