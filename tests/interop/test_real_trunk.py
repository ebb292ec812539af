"""A really pretrained trunk (PL-BERT): read, imported, and computed as transformers does."""

import shutil
from pathlib import Path

import numpy as np
import torch
import transformers
from safetensors.torch import load_file, save_file

from litebert.folder import load_model
from litebert.nn import Batch

# States reach 11.6, where float32 numbers lie 1e-6 apart. Against float64 both implementations are
# off by 1.2e-5 to 1.7e-5 after twelve layers, and by as much from each other: order of summation.
ROUNDING = 4e-5


@torch.no_grad()
def test_its_states_are_those_that_were_recorded_and_those_of_transformers(real_data: Path, tmp_path: Path) -> None:
    source = real_data / "plbert"
    stored = load_file(source / "model.int8.safetensors")  # one scale a row or a table
    scales = {name.removesuffix("_scale"): t.reshape(-1, 1) for name, t in stored.items() if name.endswith("_scale")}
    kept = {name: tensor for name, tensor in stored.items() if not name.endswith("_scale")}
    tensors = {name: tensor.float() * scales[name] if name in scales else tensor for name, tensor in kept.items()}
    save_file(tensors, tmp_path / "model.safetensors", metadata={"format": "pt"})
    shutil.copyfile(source / "config.json", tmp_path / "config.json")

    loaded = load_model(tmp_path)  # without pooler and heads
    assert {name.split(".")[0] for name in loaded.missing} == {"albert", "masked_lm", "sentence_order"}
    assert loaded.unused == ()
    assert sum(p.numel() for p in loaded.network.parameters() if not p.is_meta) == 5_701_888

    with np.load(source / "reference_io.npz") as arrays:  # a sentence, as transformers computed it elsewhere
        reference = {name: torch.from_numpy(arrays[name]) for name in arrays.files}
    ids = reference["input_ids"]
    states = list(loaded.network.albert.states(Batch.from_padded(ids, torch.ones_like(ids), torch.zeros_like(ids))))
    for step in (0, 1, 6, 12):
        difference = states[step] - reference[f"hf_fp32_hidden_{step}"][0]
        assert float(difference.abs().max()) < ROUNDING, step
    theirs = transformers.AlbertModel.from_pretrained(tmp_path, add_pooling_layer=False).eval()
    for precision in (torch.float32, torch.float64):
        others = theirs.to(precision)(ids, output_hidden_states=True).hidden_states
        for step, (ours, other) in enumerate(zip(states, others, strict=True)):
            assert float((ours - other[0]).abs().max()) < ROUNDING, step
