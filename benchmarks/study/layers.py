"""Figure 1 for four networks: the packaged model, books-wiki-mini, a BERT, and a trained trunk.

    python -m benchmarks.study.layers TEXTS [BERT TRUNK]

TEXTS has a text a line, BERT is a folder with a BERT (all-MiniLM-L6-v2 for the committed figures),
TRUNK the folder of PL-BERT in eight bits with a recorded sentence (tests/interop/test_real_trunk.py
says what it is). Without these two their recorded measures stay, and only the models of this
repository are measured. Writes benchmarks/study/layers-NAME.json, the figures and study.html.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file, save_file

import litebert
from litebert.api.study import write_page
from litebert.files import write_json
from litebert.folder import load_model
from litebert.nn import Batch
from litebert.report.page import write_pictures
from litebert.study.findings import Layers, read_parts
from litebert.study.layers import layers_of, measure_layers

HERE = Path(__file__).parent
SHARED = HERE.parent / "pretraining" / "books-wiki-mini" / "model"
DEPTHS = (24, 48, 96, 192)
NAMES = ("packaged", "books-wiki-mini", "minilm-bert")


def main(texts: Path, bert: Path | None = None, trunk: Path | None = None) -> None:
    """Measure and write."""
    torch.set_num_threads(1)
    models = zip(NAMES, (None, SHARED, *([bert] if bert else [])), strict=False)
    lines = [line for line in texts.read_text("utf-8").split("\n") if line.strip()][:32]
    found = {name: measure_layers(litebert.load(model), lines, depths=DEPTHS) for name, model in models}
    if trunk:
        found["pl-bert"] = _trunk(trunk)
    for name, each in found.items():
        source = each.model_copy(update={"source": name})
        write_json(HERE / f"layers-{name}.json", source.model_dump(mode="json"))
    parts = read_parts(HERE)
    write_pictures(HERE, parts[:1])
    write_page(HERE / "build" / "study.html", parts)
    print(parts[0].finding)


def _trunk(folder: Path) -> Layers:
    """Measure PL-BERT on its recorded sentence of phonemes, without the padding at its ends."""
    stored = load_file(folder / "model.int8.safetensors")
    scales = {name: t for name, t in stored.items() if name.endswith("_scale")}
    tensors = {
        name: tensor.float() * scales[f"{name}_scale"].reshape(-1, 1) if f"{name}_scale" in scales else tensor
        for name, tensor in stored.items()
        if name not in scales
    }
    with tempfile.TemporaryDirectory() as scratch:
        save_file(tensors, Path(scratch) / "model.safetensors", metadata={"format": "pt"})
        shutil.copyfile(folder / "config.json", Path(scratch) / "config.json")
        albert = load_model(Path(scratch)).network.albert.eval()
    with np.load(folder / "reference_io.npz") as arrays:
        ids = torch.from_numpy(arrays["input_ids"])
    batch = Batch.from_padded(ids, torch.ones_like(ids), torch.zeros_like(ids))
    return layers_of(albert, batch, batch.ids != 0, source="pl-bert", depths=DEPTHS)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("texts", type=Path)
    parser.add_argument("bert", type=Path, nargs="?")
    parser.add_argument("trunk", type=Path, nargs="?")
    main(**vars(parser.parse_args()))
