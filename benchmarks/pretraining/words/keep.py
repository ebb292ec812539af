"""Write the running average of a checkpoint's weights as a model folder, in float8 as
the packaged model: `python -m benchmarks.pretraining.words.keep CHECKPOINT OUT`.

So a run can be measured before it ends, and another one can start from it.
"""

import sys
from dataclasses import replace
from pathlib import Path

import torch
from safetensors import safe_open

from benchmarks.distillation.package import matrices_to_float8, shorten_vocabulary
from litebert.folder import SentenceVectors, read_folder, write_folder


@torch.no_grad()
def keep(checkpoint: Path, out: Path) -> None:
    model = read_folder(checkpoint, dtype=torch.float32)
    with safe_open(checkpoint / "optimizer.safetensors", "pt") as moments:
        for name, weight in model.network.named_parameters():
            key = f"{name}/average"
            if key in moments.keys():  # noqa: SIM118 (it is no mapping)
                weight.copy_(moments.get_tensor(key))
    out.mkdir(parents=True)
    averaged = replace(model, vectors=SentenceVectors(normalize=True))
    write_folder(averaged, out, dtype=torch.bfloat16)
    matrices_to_float8(out / "model.safetensors")
    (out / "spiece.model").unlink()  # tokenizer.json holds the same pieces
    shorten_vocabulary(out / "tokenizer.json")


if __name__ == "__main__":
    keep(Path(sys.argv[1]), Path(sys.argv[2]))
