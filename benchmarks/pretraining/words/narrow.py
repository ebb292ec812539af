"""Take neurons from feed-forward blocks: `python -m benchmarks.pretraining.words.narrow
CHECKPOINT OUT 832`.

Those go that do least: the variance of the activation on chapters of books, times the
squared norm of the output weights. The mean of what they add goes into the output's
bias. The optimizer's state loses the same rows and columns.
"""

import re
import shutil
from collections import defaultdict
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

import litebert
from benchmarks.texts import chapters
from litebert.cli.command import command_of
from litebert.files import read_json, write_json
from litebert.nn import Batch

NUM_CHAPTERS = 128
NUM_TOKENS = 254
NUM_CHARACTERS = 4_000  # enough of a chapter for these tokens
# in the names of the weights, and in those of the optimizer's state, which end in the
# kind of state
_BLOCK = re.compile(
    r".*(?:layer_groups|feed_forward)\.(?P<number>\d)\..*?"
    r"(?P<layer>ffn_output|output|ffn|intermediate)\.(?P<kind>weight|bias)"
    r"(?P<state>/.*)?"
)


@dataclass(frozen=True)
class Cut:
    """What stays of a block, and what makes up for the rest."""

    kept: Tensor  # (width,), numbers of neurons, in order
    bias: Tensor  # (hidden,), what the other neurons add on average


def main(checkpoint: Path, out: Path, width: int) -> None:
    shutil.copytree(
        checkpoint, out, ignore=shutil.ignore_patterns("*.safetensors", "manifest.json")
    )
    config = read_json(out / "config.json", command=f"ls {out}")
    write_json(out / "config.json", config | {"intermediate_size": width})
    weights = load_file(checkpoint / "model.safetensors")
    cuts = dict[int, Cut]()
    for number, activations in activations_of(checkpoint).items():
        layers = f"albert.encoder.albert_layer_groups.{number}.albert_layers.0"
        output = weights[f"{layers}.ffn_output.weight"]  # (hidden, neurons)
        cuts[number] = cut_of(number, activations, output, width)
    for path in checkpoint.glob("*.safetensors"):
        tensors = load_file(path)
        for name, tensor in tensors.items():
            tensors[name] = cut_tensor(name, tensor, cuts)
        save_file(tensors, out / path.name, metadata={"format": "pt"})


def activations_of(checkpoint: Path) -> dict[int, Tensor]:
    """Return what the neurons of each block put out on chapters: (tokens, neurons)."""
    model = litebert.load(checkpoint)
    albert = model.network.albert
    albert.engine = None  # the plain blocks, which call hooks
    parts = defaultdict[int, list[Tensor]](list)
    for number, block in enumerate(albert.feed_forward):
        block.output.register_forward_pre_hook(partial(_keep_input, parts[number]))
    texts = list(chapters())
    for text in texts[:: len(texts) // NUM_CHAPTERS]:
        ids = model.tokenizer.encode(text[:NUM_CHARACTERS]).ids[:NUM_TOKENS]
        with torch.no_grad():
            albert(Batch.from_lists([[2, *ids, 3]]))
    return {number: torch.cat(activations) for number, activations in parts.items()}


def _keep_input(parts: list[Tensor], _: nn.Module, inputs: tuple[Tensor, ...]) -> None:
    parts.append(inputs[0])


def cut_of(number: int, activations: Tensor, output: Tensor, width: int) -> Cut:
    """Choose the neurons of a block that stay, and print how little the others do."""
    effect = activations.var(0) * output.square().sum(0)  # (neurons,)
    order = effect.argsort(descending=True)
    dropped = order[width:]
    share = effect[dropped].sum() / effect.sum()
    print(number, f"{share:.2%} of the variance goes")
    bias = output[:, dropped] @ activations.mean(0)[dropped]
    return Cut(order[:width].sort().values, bias)


def cut_tensor(name: str, tensor: Tensor, cuts: dict[int, Cut]) -> Tensor:
    """Return what stays of a weight, or of the optimizer's state of one."""
    match = _BLOCK.fullmatch(name)
    if match is None or tensor.ndim == 0:
        return tensor
    cut = cuts[int(match["number"])]
    if match["layer"] in ("ffn", "intermediate"):  # (neurons, hidden) or (neurons,)
        return tensor[cut.kept].contiguous()
    if match["kind"] == "weight":  # (hidden, neurons)
        return tensor[:, cut.kept].contiguous()
    is_value = match["state"] in (None, "/average")  # not a moment of gradients
    return tensor + cut.bias if is_value else tensor


if __name__ == "__main__":
    command_of(main, "narrow")()
