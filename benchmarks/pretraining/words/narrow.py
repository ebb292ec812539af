"""Take neurons from feed-forward blocks: `python -m benchmarks.pretraining.words.narrow
CHECKPOINT OUT 832`.

Those go that do least: the variance of the activation on chapters of books, times the
squared norm of the output weights. The mean of what they add goes into the output's
bias. The optimizer's state loses the same rows and columns.
"""

import re
import shutil
from collections import defaultdict
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

import litebert
from benchmarks.texts import DATA, rows
from litebert.cli.command import command_of
from litebert.files import read_json, write_json
from litebert.nn import Batch

NUM_CHAPTERS = 128
NUM_TOKENS = 254
_BLOCK = re.compile(
    r".*(?:layer_groups|feed_forward)\.(\d)\..*?(ffn_output|output|ffn|intermediate)\.(weight|bias)(/.*)?"
)


def moments(checkpoint: Path) -> dict[int, tuple[Tensor, Tensor]]:
    """Return, for each block, the mean and the variance of what its neurons put out:
    (neurons,) each.
    """
    model = litebert.load(checkpoint)
    found = defaultdict[int, list[Tensor]](list)
    model.network.albert.engine = None  # the plain blocks, which call hooks
    for number, block in enumerate(model.network.albert.feed_forward):
        block.output.register_forward_pre_hook(
            lambda _, inputs, number=number: found[number].append(inputs[0])
        )
    chapters = [
        chapter["text"]
        for book in rows(DATA / "text" / "books.jsonl.gz")
        for chapter in book["chapters"]
    ]
    for text in chapters[:: len(chapters) // NUM_CHAPTERS]:
        with torch.no_grad():
            model.network.albert(
                Batch.from_lists(
                    [[2, *model.tokenizer.encode(text[:4_000]).ids[:NUM_TOKENS], 3]]
                )
            )
    return {
        number: (torch.cat(parts).mean(0), torch.cat(parts).var(0))
        for number, parts in found.items()
    }


def main(checkpoint: Path, out: Path, width: int) -> None:
    shutil.copytree(
        checkpoint, out, ignore=shutil.ignore_patterns("*.safetensors", "manifest.json")
    )
    write_json(
        out / "config.json",
        read_json(out / "config.json", command=f"ls {out}")
        | {"intermediate_size": width},
    )
    weights = load_file(checkpoint / "model.safetensors")
    dropped = dict[int, Tensor]()
    keep = dict[int, Tensor]()
    for number, (mean, variance) in moments(checkpoint).items():
        prefix = (
            f"albert.encoder.albert_layer_groups.{number}.albert_layers.0.ffn_output."
        )
        effect = variance * weights[f"{prefix}weight"].square().sum(0)
        order = effect.argsort(descending=True)
        keep[number] = order[:width].sort().values
        dropped[number] = (
            weights[f"{prefix}weight"][:, order[width:]] @ mean[order[width:]]
        )
        print(
            number,
            f"{effect[order[width:]].sum() / effect.sum():.2%} of the variance goes",
        )
    for path in checkpoint.glob("*.safetensors"):
        tensors = load_file(path)
        for name, tensor in tensors.items():
            if (match := _BLOCK.fullmatch(name)) and tensor.ndim:
                number = int(match[1])
                layer = match[2]
                kind = match[3]
                state = match[4]
                if layer in ("ffn", "intermediate"):
                    tensors[name] = tensor[keep[number]].contiguous()
                elif kind == "weight":
                    tensors[name] = tensor[:, keep[number]].contiguous()
                elif state in (None, "/average"):
                    tensors[name] = tensor + dropped[number]
        save_file(tensors, out / path.name, metadata={"format": "pt"})


if __name__ == "__main__":
    command_of(main, "narrow")()
