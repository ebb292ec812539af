"""Give each second use of a block its own copy: `python -m
benchmarks.pretraining.words.unshare CHECKPOINT OUT`.

Six layers that share three blocks, A A B B C C, become A A B B' C C' with five:
transformers' rule for the groups of layers allows no copy of A. The function is the
same until training separates the copies. The optimizer's state of the checkpoint, if
there is one, is copied in the same way.
"""

import re
import shutil
from pathlib import Path

from safetensors.torch import load_file, save_file
from torch import Tensor

from litebert.cli.command import command_of
from litebert.files import read_json, write_json

# the new blocks that are copies of each old one
GROUPS = {0: (0,), 1: (1, 2), 2: (3, 4)}
_BLOCK = re.compile(r"(.*(?:layer_groups|attention|feed_forward)\.)(\d)(\..*)")


def main(checkpoint: Path, out: Path) -> None:
    shutil.copytree(
        checkpoint, out, ignore=shutil.ignore_patterns("*.safetensors", "manifest.json")
    )
    config = read_json(out / "config.json", command=f"ls {out}")
    assert (config["num_hidden_layers"], config["num_hidden_groups"]) == (6, 3)
    write_json(out / "config.json", config | {"num_hidden_groups": 5})
    for path in checkpoint.glob("*.safetensors"):
        save_file(copied(load_file(path)), out / path.name, metadata={"format": "pt"})


def copied(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return the tensors of five blocks from those of three; all others keep their
    names.
    """
    copies = dict[str, Tensor]()
    for name, tensor in tensors.items():
        match = _BLOCK.match(name)
        if match is None:
            copies[name] = tensor
            continue
        before, block, behind = match.groups()
        for group in GROUPS[int(block)]:
            copies[f"{before}{group}{behind}"] = tensor.clone()
    return copies


if __name__ == "__main__":
    command_of(main, "unshare")()
