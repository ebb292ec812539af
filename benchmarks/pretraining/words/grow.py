"""Grow the packaged network to 16 MB without changing what it computes: `python -m
benchmarks.pretraining.words.grow MODEL OUT --neurons 1856`.

Every layer gets a block of its own, a copy of the one that it shared, and every
feed-forward block gets new neurons, whose output weights are zero. A network that has
this shape already stays as it is.
"""

from dataclasses import replace
from pathlib import Path

import torch
from torch import nn

from litebert.cli.command import command_of
from litebert.folder import read_folder, write_folder
from litebert.nn import AlbertForPretraining, Batch

SEED = 57


BLOCKS = ("albert.attention.", "albert.feed_forward.")


def main(model: Path, out: Path, *, neurons: int = 1_856) -> None:
    source = read_folder(model, dtype=torch.float32)
    assert isinstance(source.network, AlbertForPretraining)
    network = grown(source.network, neurons)
    require_same_function(source.network, network)
    write_folder(replace(source, network=network), out)
    size = sum(parameter.numel() for parameter in network.parameters())
    print(f"{out}: {size:,} parameters")


@torch.no_grad()
def grown(source: AlbertForPretraining, neurons: int) -> AlbertForPretraining:
    """Return a network with a block for each layer and `neurons` in each."""
    changes = {
        "num_hidden_groups": source.config.num_hidden_layers,
        "intermediate_size": neurons,
    }
    network = AlbertForPretraining(
        source.config.model_copy(update=changes),
        generator=torch.Generator().manual_seed(SEED),
    )
    weights = source.state_dict()
    outside = {name: w for name, w in weights.items() if not name.startswith(BLOCKS)}
    network.load_state_dict(outside, strict=False)
    plans = zip(network.albert.plan, source.albert.plan, strict=True)
    for step, source_step in plans:
        attention = source.albert.attention[source_step.attention]
        network.albert.attention[step.attention].load_state_dict(attention.state_dict())
        _fill_block(
            network.albert.feed_forward[step.feed_forward],
            source.albert.feed_forward[source_step.feed_forward],
            source.config.intermediate_size,
        )
    return network


def _fill_block(block: nn.Module, source: nn.Module, former: int) -> None:
    """Copy a feed-forward block of `former` neurons into a wider one; the new neurons
    add nothing.
    """
    begun = source.state_dict()
    for name, weight in block.state_dict().items():
        if name.startswith("intermediate."):  # (neurons, hidden) or (neurons,)
            weight[:former] = begun[name]
        elif name == "output.weight":  # (hidden, neurons)
            weight[:, :former] = begun[name]
            weight[:, former:] = 0
        else:
            weight.copy_(begun[name])


@torch.no_grad()
def require_same_function(
    source: AlbertForPretraining, network: AlbertForPretraining
) -> None:
    batch = Batch.from_lists([[2, *range(100, 140), 3]])
    wanted = source.eval().albert(batch)
    states = network.eval().albert(batch)
    torch.testing.assert_close(states, wanted, atol=1e-4, rtol=1e-4)


if __name__ == "__main__":
    command_of(main, "grow")()
